"""Products of integers: onnxruntime's integers, exactly. Factors are unsigned: of signed ones a processor without VNNI
cuts sums off at 16 bits, and onnxruntime lets it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from tests.onnx.runtime import expected

RNG = np.random.default_rng(2)


def whole(*shape: int, dtype: Any = np.uint8) -> Any:
    ends = np.iinfo(dtype)
    return RNG.integers(ends.min, ends.max + 1, shape).astype(dtype)


F, B = np.float32, np.uint8
CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "MatMulInteger": ("MatMulInteger", [whole(3, 7), whole(7, 5), B(3), B(200)], {}),
    "MatMulInteger plain": ("MatMulInteger", [whole(2, 3, 7), whole(7, 5)], {}),
    "MatMulInteger columns": ("MatMulInteger", [whole(2, 3, 7), whole(7, 5), B(9), whole(5)], {}),
    "ConvInteger": ("ConvInteger", [whole(2, 4, 6, 5), whole(6, 2, 3, 3), B(100), B(7)],
                    {"pads": (1, 0, 1, 2), "group": 2, "strides": (2, 1)}),
    "ConvInteger dilated": ("ConvInteger", [whole(1, 3, 7, 7), whole(4, 3, 2, 2)], {"dilations": (2, 3)}),
    "QLinearMatMul": ("QLinearMatMul",
                      [whole(3, 7), F(0.02), B(120), whole(7, 5), F(0.01), B(130), F(0.3), B(128)], {}),
    "QLinearMatMul columns": ("QLinearMatMul",
                              [whole(3, 7), F(0.02), B(120), whole(7, 5),
                               RNG.uniform(0.01, 0.03, 5).astype(F),
                              whole(5), F(0.5), B(100)], {}),
    "QLinearConv": ("QLinearConv",
                    [whole(1, 3, 6, 6), F(0.03), B(128), whole(4, 3, 3, 3), F(0.01), B(120), F(0.2), B(100),
                     RNG.integers(-5000, 5000, 4).astype(np.int32)], {"pads": (1, 1, 1, 1)}),
    "QLinearConv channels": ("QLinearConv",
                             [whole(1, 4, 6, 6), F(0.03), B(128), whole(6, 2, 3, 3),
                              RNG.uniform(0.005, 0.02, 6).astype(F),
                             np.full(6, 128, B), F(0.2), B(100)], {"group": 2, "strides": (2, 2)}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_integers_are_onnxruntimes(one_node: Any, name: str) -> None:
    operator, arrays, attributes = CASES[name]
    proto = one_node(operator, arrays, 17, held=range(1, len(arrays)), **attributes)
    [want] = expected(proto, arrays[0])
    y = mo.load(proto)(mn.Tensor(arrays[0]))
    assert y.dtype == want.dtype
    np.testing.assert_array_equal(y.array, want)


def test_signed_integers_are_summed_exactly(one_node: Any) -> None:
    """Where the sums of pairs leave 16 bits, and where all together leave 32."""
    a, b = np.full((1, 4), 255, np.uint8), np.full((4, 1), 127, np.int8)
    assert mo.load(one_node("MatMulInteger", [a, b], 10))(mn.Tensor(a), mn.Tensor(b)).item() == 4 * 255 * 127
    a, b = np.full((1, 40_000), 255, np.uint8), np.full((40_000, 1), 255, np.uint8)
    total = mo.load(one_node("MatMulInteger", [a, b], 10))(mn.Tensor(a), mn.Tensor(b)).item()
    assert total == 40_000 * 255 * 255 - 2**32


@pytest.mark.parametrize(
    ("operator", "arrays", "message"),
    [
        (
            "MatMulInteger",
            [whole(3, 7), whole(7, 5), whole(4)],
            r"A has shape \(3, 7\), its scale or zero point \(4,\)",
        ),
        ("MatMulInteger", [whole(3, 7), whole(7, 5), B(0), whole(4)], r"B has shape \(7, 5\)"),
        ("ConvInteger", [whole(1, 3, 5, 5), whole(4, 3, 3, 3), whole(2)], "x_zero_point has shape"),
        ("ConvInteger", [whole(1, 3, 5, 5), whole(4, 3, 3, 3), B(0), whole(2)], "w_zero_point has shape"),
        (
            "QLinearMatMul",
            [whole(3, 7), F(0.02), B(120), whole(7, 5), F(0.01), B(130), F(0.3), whole(3)],
            "y_zero_point has shape",
        ),
        (
            "QLinearMatMul",
            [whole(3, 7), F(0.02), B(120), whole(7, 5), F(0.01), B(130), np.full((3, 1), 0.3, F), B(3)],
            r"y_scale has shape \(3, 1\)",
        ),
        (
            "QLinearConv",
            [whole(1, 3, 5, 5), F(0.1), B(0), whole(4, 3, 3, 3), F(0.1), B(0), np.full(4, 0.3, F), B(3)],
            r"y_scale has shape \(4,\)",
        ),
        (
            "QLinearConv",
            [whole(1, 4, 5, 5), np.full(4, 0.3, F), B(0), whole(4, 4, 3, 3), F(0.1), B(0), F(0.1), B(3)],
            r"x_scale has shape \(4,\)",
        ),
    ],
)
def test_parameters_that_do_not_fit_are_errors(one_node: Any, operator: str, arrays: Any, message: str) -> None:
    model = mo.load(one_node(operator, arrays, 17, held=range(1, len(arrays))))
    with pytest.raises(ValueError, match=message):
        model(mn.Tensor(arrays[0]))
