"""atan2, logaddexp, xlogy, logit and the inverse of erf, written in the operators that there are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo

NUMBERS = (-np.inf, -1.5, -0.0, 0.0, 0.5, 2.0, 1e30, np.inf, np.nan)
PAIRS = np.array([*product(NUMBERS, NUMBERS)])
SHARES = np.array([[-1.5, -1.0, -1 + 1e-7, -0.86, -0.5, -0.0, 1e-30], [0.3, 0.84, 0.9999, 1 - 1e-7, 1.0, 2.0, np.nan]])
CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "atan2": (lambda x: x[:, 0].atan2(x[:, 1]), PAIRS),
    "logaddexp": (lambda x: x[:, 0].logaddexp(x[:, 1]), PAIRS),
    "xlogy": (lambda x: x[:, 0].xlogy(x[:, 1]), PAIRS),
    "logit": (lambda x: x.logit(), SHARES),
    "logit between bounds": (lambda x: x.logit(eps=0.125), SHARES),
    "erfinv": (lambda x: x.erfinv(), SHARES),
}


@pytest.mark.parametrize("opset", [9, 13, 20])
@pytest.mark.parametrize("name", CASES)
def test_written_with_the_ends_of_the_numbers(proved: Any, name: str, opset: int) -> None:
    function, numbers = CASES[name]
    proved(function, mn.tensor(numbers.astype(np.float32)), opset=opset, tolerance=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_written_in_other_float_types(proved: Any, name: str) -> None:
    function, numbers = CASES[name]
    with np.errstate(over="ignore"):
        half = numbers.astype(np.float16)
    proved(function, mn.tensor(half), opset=20, tolerance=1e-3)
    proved(function, mn.tensor(numbers), opset=20, tolerance=1e-12, must_run=False)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"logit"}))  # which needs no Where
def test_written_from_opset_9_on(name: str) -> None:
    function, numbers = CASES[name]
    with pytest.raises(mo.ExportError, match=r"opset 9|opset is 8"):
        mo.export(function, mn.tensor(numbers.astype(np.float32)), None, opset_version=8)
