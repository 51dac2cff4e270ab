"""random.cu and random.py: the CPU's bits, at every length of the end, in every type."""

from __future__ import annotations

from typing import Any

import instances
import numpy as np
import pytest
import shim

import minorm as mn
import minorm.functional as F
from minorm.devices import dtypes
from minorm.kernels.reference import random as reference

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")
WIDE = [dtypes.float32, dtypes.float64]
BLOCKS = 2**40, 3, 2**63 + 5, 7


def needed() -> list[tuple[Any, ...]]:
    keys: list[tuple[Any, ...]] = [("uniform", dtype, 16 // dtype.itemsize, dtypes.int32) for dtype in WIDE]
    for dtype in instances.FLOATS:
        for width in (1, 16 // dtype.itemsize):
            how = dtype, dtypes.compute_type(dtype), width
            keys += [("dropout", *how, decides, dtypes.int32) for decides in (True, False)]
    return keys


@pytest.fixture
def gpu(cuda: Any) -> Any:
    from minorm.kernels.gpu import random

    instances.compiled(random._program, needed())
    return random


@pytest.mark.parametrize("n", [0, 1, 3, 7, 8, 9, 2048, 2051])
def test_the_bits_of_the_reference(n: int, gpu: Any, cuda: Any) -> None:
    for dtype in WIDE:
        np.testing.assert_array_equal(gpu.uniform((n,), dtype, BLOCKS).memory, reference.uniform((n,), dtype, BLOCKS))
    for dtype in instances.FLOATS:
        x = np.random.default_rng(n).standard_normal(n + 1).astype(dtype)
        for start in (0, 1):  # the second is not aligned
            part, there = x[start : start + n], cuda.array(x)[start : start + n]
            y, kept = gpu.dropout(there, 0.3, BLOCKS)
            expected, chosen = reference.dropout(part, 0.3, BLOCKS)
            np.testing.assert_array_equal(y.memory, expected)
            np.testing.assert_array_equal(kept.memory, chosen)
            np.testing.assert_array_equal(gpu.keep(there, kept, 0.3).memory, expected)


def test_a_broken_kernel_is_found(cuda: Any) -> None:
    from minorm.kernels.gpu.source import source

    text = source("random.cu")
    for right, wrong in (("round < 10", "round < 9"), ("at + v >= n", "at + v > n"), ("word[i / 2]", "word[i % 4]")):
        name = "dropout<float, float, 4, true, int>"
        assert right in text
        module = shim.Module(
            code=text.replace(right, wrong), options=("-std=c++17", "-default-device"), name_expressions=[name]
        )
        x, y, kept = np.ones(11, np.float32), np.zeros(11, np.float32), np.zeros(11, bool)
        arguments = np.int32(11), np.float32(2), np.uint32(2**31), Fields(np.array(BLOCKS, np.uint64)), None
        try:
            module.get_function(name)((1,), (256,), (x, kept, y, *arguments))
        except shim.KernelError:
            continue
        assert (y != reference.dropout(x, 0.5, BLOCKS)[0]).any()


class Fields:
    """A stand-in for structs.Struct."""

    def __init__(self, fields: np.ndarray) -> None:
        self.fields, self.ptr = fields, fields.ctypes.data


def draws(device: str, dtype: Any) -> list[mn.Tensor]:
    """Everything that is made on the device, and some of what is drawn on the CPU."""
    x = mn.full((5, 7, 3), 1.7, dtype=dtype, device=device, requires_grad=True)
    y = F.dropout(x, 0.3)
    y.sum().backward()
    x, like = x.detach(), mn.empty(5, 3, dtype=dtype, device=device)
    return [
        y, x.grad if x.grad is not None else y, F.dropout2d(x), F.alpha_dropout(x, training=True),
        mn.rand(5, 3, dtype=dtype, device=device), mn.rand_like(like), mn.bernoulli(mn.full_like(like, 0.4)),
        mn.empty_like(like).uniform_(-2, 5), mn.empty_like(like).bernoulli_(0.3), F.rrelu(-x, training=True),
        mn.nn.init.xavier_uniform_(mn.empty_like(like)), mn.randn(5, dtype=dtype, device=device),
        mn.randint(9, (4,), device=device), mn.rand(dtype=dtype, device=device),
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
def test_a_seed_means_the_same_bits_on_each_device(dtype: Any, gpu: Any) -> None:
    found = {}
    for device in ("cpu", "cuda:0", "cuda:1"):
        mn.manual_seed(5)
        results = draws(device, dtype)
        assert {str(tensor.device) for tensor in results} == {device}
        found[device] = [tensor.detach().cpu().numpy().tobytes() for tensor in results], mn.random.get_state()
    assert found["cpu"] == found["cuda:0"] == found["cuda:1"]


def test_each_rank_has_the_same_bits_on_each_device(gpu: Any) -> None:
    def program(device: str) -> Any:
        return lambda group: F.dropout(mn.ones(50, device=device)).cpu().tolist()

    mn.manual_seed(5)
    here = mn.distributed.simulate(3, program("cpu"))
    mn.manual_seed(5)
    assert mn.distributed.simulate(3, program("cuda")) == here
    assert len(set(map(str, here))) == 3


def test_nothing_is_copied_and_dropout_is_one_launch(gpu: Any, cuda: Any) -> None:
    x = mn.ones(3, 5, device="cuda", requires_grad=True)
    cuda.transfers.clear()
    y = F.dropout(x)
    assert (cuda.transfers.to_device, cuda.transfers.to_host) == (0, 0)
    before = shim.State.launches
    y.backward(y.detach())
    assert shim.State.launches == before + 1
    mn.rand(3, device="cuda")
    mn.empty(3, device="cuda").uniform_()
    assert (cuda.transfers.to_device, cuda.transfers.to_host) == (0, 0)


def test_other_generators_draw_on_the_cpu(gpu: Any, cuda: Any) -> None:
    x = mn.ones(50, device="cuda", requires_grad=True)
    state = mn.random.get_state()
    try:
        mn.random.set_state(dict(np.random.PCG64(3).state))
        y = F.dropout(x, 0.3)
        y.sum().backward()
    finally:
        mn.random.set_state(state)
    kept = np.random.Generator(np.random.PCG64(3)).random(50, np.float32) >= 0.3
    np.testing.assert_array_equal(y.detach().cpu().numpy(), kept * np.float32(1 / 0.7))
    np.testing.assert_array_equal(x.grad.cpu().numpy(), y.detach().cpu().numpy())
    drawn = mn.rand(4, device="cuda", generator=np.random.default_rng(1)).cpu().numpy()
    np.testing.assert_array_equal(drawn, np.random.default_rng(1).random(4, np.float32))
