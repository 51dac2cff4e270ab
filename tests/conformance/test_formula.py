"""The judge is judged: its formulas against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.conformance.case import Case
from minorm.conformance.formula import due


def f(*values: Any) -> Any:
    return np.array(values, np.float32)


def case(operator: str, opset: int, *inputs: Any, outputs: Any = ("y",), **attributes: Any) -> Case:
    return Case(operator, opset, "", inputs, attributes, outputs)


def first(found: Case) -> Any:
    return due(found)[0][0]


X = f([1, 5], [3, 1])  # mean 2 and 3, variance 1 and 4
PARAMETERS = f(2, 1), f(10, 20), f(1, 1), f(4, 16)


@pytest.mark.parametrize(
    ("opset", "attributes", "outputs", "trains"),
    [
        (1, {}, ("y",), True),
        (6, {"is_test": 1}, ("y",), False),
        (7, {}, ("y", "m", "v", "sm", "sv"), True),
        (9, {}, ("y",), False),
        (9, {}, ("y", ""), False),
        (15, {"training_mode": 1}, ("y", "m", "v"), True),
        (15, {}, ("y",), False),
    ],
)
def test_batch_normalization_in_both_modes(opset: int, attributes: Any, outputs: Any, trains: bool) -> None:
    results = due(case("BatchNormalization", opset, X, *PARAMETERS, outputs=outputs, epsilon=0.0, **attributes))
    y = [[8, 21], [12, 19]] if trains else [[10, 21], [12, 20]]
    np.testing.assert_allclose(results[0][0], y)
    np.testing.assert_allclose(results[1][0], [0.9 * 1 + 0.1 * 2, 0.9 * 1 + 0.1 * 3])
    np.testing.assert_allclose(results[2][0], [0.9 * 4 + 0.1 * 1, 0.9 * 16 + 0.1 * 4])
    np.testing.assert_allclose(results[3][0], [2, 3])
    np.testing.assert_allclose(results[4][0], [1, 4])


def test_statistics_of_every_position() -> None:
    x = f([[1, 10]], [[3, 10]])  # (2, 1, 2): over N alone, mean 2 and 10, variance 1 and 0
    p = f([1, 1]), f([0, 7]), f([0, 0]), f([1, 1])
    y = first(case("BatchNormalization", 6, x, *p, spatial=0, epsilon=1e-30))
    np.testing.assert_allclose(y, [[[-1, 7]], [[1, 7]]])


def test_instance_group_and_layer() -> None:
    x = f([[1, 3], [2, 6]])  # (1, 2, 2)
    np.testing.assert_allclose(
        first(case("InstanceNormalization", 6, x, f(1, 2), f(0, 1), epsilon=0.0)), [[[-1, 1], [-1, 3]]]
    )
    x = f([[0, 2], [2, 4]])  # one group: mean 2, variance 2
    y = np.array([[[-2, 0], [0, 2]]]) / np.sqrt(2)
    per_group = case("GroupNormalization", 18, x, f(3), f(1), num_groups=1, epsilon=0.0)
    np.testing.assert_allclose(first(per_group), 3 * y + 1)
    s = np.array([3, 5]).reshape(1, 2, 1)
    np.testing.assert_allclose(
        first(case("GroupNormalization", 21, x, f(3, 5), f(0, 0), num_groups=1, epsilon=0.0)), s * y
    )
    results = due(case("LayerNormalization", 17, x, f(1, 1), epsilon=3.0))
    np.testing.assert_allclose(results[0][0], [[[-0.5, 0.5], [-0.5, 0.5]]])
    np.testing.assert_allclose(results[1][0], [[[1], [3]]])
    np.testing.assert_allclose(results[2][0], [[[0.5], [0.5]]])


def test_rms_mean_variance_and_lp() -> None:
    np.testing.assert_allclose(first(case("RMSNormalization", 23, f([3, 4]), f(1, 2), epsilon=12.5)), [[0.6, 1.6]])
    y = first(case("MeanVarianceNormalization", 13, f([1, 3], [5, 5]), axes=[1]))
    np.testing.assert_allclose(y, [[-1, 1], [0, 0]], atol=1e-8)
    x = f([-3, 4], [0, 0])
    np.testing.assert_allclose(first(case("LpNormalization", 22, x)), [[-0.6, 0.8], [0, 0]])
    np.testing.assert_allclose(first(case("LpNormalization", 1, x, p=1)), [[-3 / 7, 4 / 7], [0, 0]])


@pytest.mark.parametrize(("size", "sums"), [(1, [1, 4, 9]), (2, [5, 13, 9]), (3, [5, 14, 13]), (4, [14, 14, 13])])
def test_an_even_window_reaches_further_up(size: int, sums: list[int]) -> None:
    x = f([1, 2, 3])
    y = first(case("LRN", 13, x, size=size, alpha=float(size), beta=1.0, bias=0.0))
    np.testing.assert_allclose(y[0], np.array([1, 2, 3]) / sums)
