"""The derivatives that judge gradients: against differences of the forward formula, and numbers worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.conformance import formula
from minorm.conformance.case import CUMULATIVE, GRADIENTS, MASKED, OUTPUTS, Case
from minorm.conformance.cases import all_cases
from minorm.conformance.framework_formula import due

BADLY_CONDITIONED = ("empty batch", "equal values", "values 1e20", "offset 1e+06", "zeros")
SMOOTH = [
    c for c in all_cases() if c.kind == GRADIENTS and not any(words in c.name for words in BADLY_CONDITIONED)
]  # elsewhere a difference of the formula says nothing


@pytest.mark.parametrize("case", SMOOTH, ids=lambda case: f"{case.operator}-{case.name}")
def test_a_gradient_is_the_limit_of_differences(case: Case) -> None:
    inputs = [array.astype(np.float64) for array in case.inputs]
    found = due(case)
    assert len(found) == len(case.wanted)
    for place, (gradient, dtype) in enumerate(found):
        assert gradient.shape == case.inputs[place].shape
        assert dtype == case.inputs[place].dtype
        step = 1e-5 * float(np.abs(inputs[place]).max()) if place == 0 and not case.offset else 1e-5
        for at in range(0, gradient.size, max(1, gradient.size // 3)):
            ends = []
            for sign in (1, -1):
                moved = [array.copy() for array in inputs]
                moved[place].flat[at] += sign * step
                y = formula.due(dataclasses.replace(case, inputs=tuple(moved), kind=OUTPUTS))[0][0]
                ends.append((y * case.beside.astype(np.float64)).sum())
            slope = (ends[0] - ends[1]) / (2 * step)
            assert slope == pytest.approx(gradient.flat[at], abs=1e-5 * max(1.0, float(np.abs(gradient).max())))


def test_of_equal_values_and_of_no_values() -> None:
    cases = {(c.operator, c.name): c for c in all_cases() if c.kind == GRADIENTS}
    equal = cases["BatchNormalization", "gradients, training, equal values"]
    dx, dscale, dbias = (value for value, _ in due(equal))
    np.testing.assert_allclose(dscale, 0, atol=1e-6)  # xhat is 0
    np.testing.assert_allclose(dx.sum((0, 2, 3)), 0, atol=1e-9)
    np.testing.assert_allclose(dbias, equal.beside.astype(np.float64).sum((0, 2, 3)))
    dx, dscale, dbias = (value for value, _ in due(cases["BatchNormalization", "gradients, training, empty batch"]))
    assert dx.shape == (0, 3, 5, 2)
    assert dscale.tolist() == dbias.tolist() == [0, 0, 0]


def small(kind: str, x: Any, beside: Any = None) -> Case:
    ones, zeros = np.ones(1), np.zeros(1)
    inputs = (np.array(x, np.float64), ones, zeros, zeros, ones)
    given = {"training_mode": 1, "momentum": 0.5, "epsilon": 0.0}
    return Case("BatchNormalization", 15, "", inputs, given, ("y", "mean", "var"), kind=kind, beside=beside)


def test_what_is_masked_does_not_count() -> None:
    y, mean, var = (value for value, _ in due(small(MASKED, [[[1, 7]], [[3, 5]]], np.array([[1, 0], [1, 1]]) > 0)))
    assert mean.tolist() == [1.5]  # half of (1 + 3 + 5) / 3
    np.testing.assert_allclose(var, [0.5 + 0.5 * 8 / 3])
    np.testing.assert_allclose(y, np.array([[[-2, 0]], [[0, 2]]]) / np.sqrt(8 / 3))


def test_the_plain_average_of_batches() -> None:
    mean, var = (value for value, _ in due(small(CUMULATIVE, [[[1, 3]], [[10, 14]]])))
    assert mean.tolist() == [7]  # of 2 and 12
    assert var.tolist() == [2.5]  # of 1 and 4
