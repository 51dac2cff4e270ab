from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo


@pytest.fixture
def x(rng: np.random.Generator) -> mn.Tensor:
    return mn.tensor(rng.normal(size=(2, 5, 4)).astype(np.float32))


def test_slices_and_places(proved: Any, x: mn.Tensor, opset: int) -> None:
    proved(
        lambda x: (
            x[:, 1],
            x[..., ::2],
            x[:, None, -1],
            x[:, 1:3, ::-1],
            x[1:],
            x[:, -3:-1],
            x[:, 3:0:-2],
            x[:, :, None],
        ),
        x,
        opset=opset,
    )


def test_a_slice_of_half_the_batch(proved: Any, x: mn.Tensor) -> None:
    proved(lambda x: (x[: 2 * x.shape[0]], x[0:-1]), x, batches=(4,))


def test_arrays_of_places(proved: Any, x: mn.Tensor, opset: int) -> None:
    kept = mn.tensor(np.array([[2, 0], [1, 3]]))
    proved(lambda x: (x[:, np.array([0, -1])], x[..., kept], x[:, [4, 4, 0]]), x, opset=opset)


def test_places_from_an_input(proved: Any, x: mn.Tensor, opset: int) -> None:
    table = mn.tensor(np.arange(12, dtype=np.float32).reshape(6, 2))
    proved(lambda i: table[i], mn.tensor(np.array([[5, 0], [2, 2], [1, 4]])), opset=opset) if opset >= 11 else None


def test_gather(proved: Any, x: mn.Tensor, opset: int) -> None:
    i = mn.tensor(np.array([[[0, 1, 2, 3]], [[4, 3, 2, 1]]]))
    if opset < 11:
        with pytest.raises(mo.ExportError, match="it is GatherElements of opset 11 on"):
            mo.export(lambda x, i: x.gather(1, i), (x, i), None, opset_version=opset)
    else:
        proved(lambda x, i: x.gather(1, i), x, i, opset=opset)


def test_a_mask_is_refused(x: mn.Tensor) -> None:
    with pytest.raises(mo.ExportError, match="depends on the values"):
        mo.export(lambda x: x[:, np.array([True, False, True, True, False])], x, None)
