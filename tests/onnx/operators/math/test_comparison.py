from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo


def relations(a: mn.Tensor, b: Any) -> tuple[mn.Tensor, ...]:
    return a == b, a != b, a < b, a <= b, a > b, a >= b


def test_floats_with_nan_compare_as_in_minorm(proved: Any, opset: int) -> None:
    a = mn.tensor([[1.0, 2.0, np.nan, np.inf, 3.0, np.nan]])
    b = mn.tensor([[1.0, 3.0, 1.0, np.inf, 2.0, np.nan]])
    proved(relations, a, b, opset=opset)


def test_integers_compare(proved: Any, opset: int) -> None:
    proved(lambda a: relations(a, 2), mn.tensor(np.arange(5).reshape(1, 5)), opset=opset)


def test_where(proved: Any, opset: int) -> None:
    x = mn.tensor([[1.0, -2.0, np.inf]])
    if opset < 9:
        with pytest.raises(mo.ExportError, match="Where exists from opset 9 on"):
            mo.export(lambda x: mn.where(x > 0, x, 0.0), x, None, opset_version=opset)
    else:
        proved(lambda x: mn.where(x > 0, x, 0.0), x, opset=opset)


NUMBERS = np.array([[-np.inf, -1.0, 0.5, 1.0], [7.0, 2.0, np.inf, np.nan]], np.float32)


@pytest.mark.parametrize("right", [False, True])
def test_searched_places(proved: Any, opset: int, right: bool) -> None:
    x, bounds = mn.tensor(NUMBERS), mn.tensor([-1.0, 0.5, 0.5, 2.0])
    rows = mn.tensor([[-1.0, 0.0, 1.0], [2.0, 2.0, 9.0]])
    proved(lambda x: mn.bucketize(x, bounds, right=right, out_int32=True), x, opset=opset)
    proved(lambda rows, x: mn.searchsorted(rows, x, right=right), rows, x, opset=opset)
    proved(lambda x: mn.searchsorted(mn.zeros(0), x, right=right), x, opset=opset, must_run=False)
    proved(lambda n: mn.searchsorted(mn.tensor([1, 3, 3]), n, right=right), mn.arange(5).reshape(1, 5), opset=opset)


def test_elements_among_others(proved: Any, opset: int) -> None:
    x = mn.tensor(NUMBERS)
    proved(lambda x: mn.isin(x, mn.tensor([[1.0, np.nan], [np.inf, 3.0]])), x, opset=opset)
    proved(lambda x: mn.isin(x, 7, invert=True), x, opset=opset)
    proved(lambda n: mn.isin(n, mn.tensor([4, 0])), mn.arange(5).reshape(1, 5), opset=opset)
