"""Arrays of other libraries on the GPU: taken over and handed out without a copy, on the current stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn


def test_around_an_array_of_cupy_without_a_copy(cuda: Any) -> None:
    array = cuda.ones((2, 3), np.float32)
    for x in (mn.Tensor(array), mn.as_tensor(array), nn.Parameter(array)):
        assert x.array is array
    copied = mn.tensor(array)
    assert (copied.device, copied.array is array) == ("cuda:0", False)
    assert mn.tensor(array, mn.float64, "cpu").device == "cpu"


def test_dlpack_out_and_in(cuda: Any) -> None:
    x = mn.randn(2, 3).to("cuda")
    assert x.__dlpack_device__() == (2, 0)
    y = mn.from_dlpack(x)
    assert y.device == "cuda:0"
    assert y.array.data.ptr == x.array.data.ptr
    cuda.transfers.clear()
    assert mn.from_dlpack(x.array[::-1].copy()).shape == (2, 3)
    with pytest.raises(BufferError, match="requires grad"):
        x.requires_grad_().__dlpack__()
    assert cuda.transfers.to_host == 0


def test_dlpack_says_whose_stream_waits(cuda: Any) -> None:
    """The consumer names its stream, and CuPy makes that wait for the current one; no other stream waits."""
    x = mn.ones(2, 3, device="cuda")
    mn.from_dlpack(x)
    with cuda.cuda.Stream() as stream:
        mn.from_dlpack(x)
    x.__dlpack__(stream=7, max_version=(1, 0), dl_device=(2, 0))  # as PyTorch and JAX ask
    assert cuda.transfers.streams == [1, stream.ptr, 7]
    assert cuda.transfers.to_host == 0


def test_dlpack_of_a_device_that_is_not_the_current_one(cuda: Any) -> None:
    """A copy, which negative steps need, goes to the array's device, though CuPy copies to the current one."""
    x = mn.arange(3, device="cuda:1")
    for array, expected in ((x.array, [0, 1, 2]), (x.array[::-1], [2, 1, 0])):
        y = mn.from_dlpack(mn.Tensor(array))
        assert y.device == "cuda:1"
        np.testing.assert_array_equal(y.cpu().numpy(), expected)
        np.testing.assert_array_equal(np.from_dlpack(_OnHost(mn.Tensor(array))), expected)
    assert cuda.cuda.runtime.getDevice() == 0


class _OnHost:
    """Ask for a copy in the host's memory, as np.from_dlpack(x, device="cpu") does."""

    def __init__(self, x: mn.Tensor) -> None:
        self.x = x

    def __dlpack__(self, **_: Any) -> Any:
        return self.x.__dlpack__(dl_device=(1, 0), copy=True)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0
