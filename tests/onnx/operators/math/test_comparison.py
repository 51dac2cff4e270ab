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
