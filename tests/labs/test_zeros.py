"""A function that computes nothing earns nothing: zeros, ones, NaN, None, its own input, whatever it is asked."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minorm.kernels.protocol import Statistics
from minorm.labs import catalogue
from minorm.labs.calling import submission
from minorm.labs.calling.followed_array import FollowedArray
from minorm.labs.calling.student import Here
from minorm.labs.lab import SECONDS, Check
from tests.labs.conftest import changed


def filled(value: Any, number: float) -> Any:
    """Copy a nest with this number in place of its numbers; 0 where whole numbers have no NaN."""
    if isinstance(value, (np.ndarray, FollowedArray)):
        return np.full_like(value, number if value.dtype.kind not in "iub" or number == number else 0)
    if isinstance(value, (tuple, list)):
        return type(value)(filled(item, number) for item in value)
    if isinstance(value, dict):
        return {key: filled(item, number) for key, item in value.items()}
    if isinstance(value, Statistics):
        return Statistics(np.full_like(value.block, number))
    if isinstance(value, (bool, int)) and number != number:
        return type(value)(0)
    return type(value)(number) if isinstance(value, (bool, int, float, np.generic)) else value


def instead_of(function: Callable[..., Any], kind: str) -> Callable[..., Any]:
    """Return a function that answers with zeros, ones, NaN, a constant or its input in place of the result."""

    def empty(*args: Any, **options: Any) -> Any:
        if kind == "the input":
            return next(iter(args), None)
        if kind in PLAIN:
            return PLAIN[kind]
        try:
            return filled(function(*args, **options), {"zeros": 0, "ones": 1, "NaN": np.nan}[kind])
        except ValueError:  # what a right function refuses
            return 0

    return empty


PLAIN = {"None": None, "zero": 0, "one": 1, "a NaN": float("nan"), "True": True, "an empty tuple": (), "a text": ""}
RARE = ("True", "an empty tuple", "a text")
KINDS = [*(pytest.param(kind, marks=pytest.mark.slow) if kind in RARE else kind for kind in PLAIN), "the input"]
LIKE = ["zeros", "ones", "NaN"]  # of the shape and type that a right function's answers have
QUICK = [n for n in catalogue.numbers() if n not in (5, 7, 8)]
# These functions do not return numbers, so they stay right: an order of Vars, and the student's own tests.
NO_NUMBERS = ("14.3 the order of a graph", "15.3 the cause of ")


def earned(number: int, kind: str, **replaced: Any) -> list[str]:
    """The checks that a solution passes with such functions, or with the objects that are given, in place of its."""
    lab = catalogue.find(number)
    quick = [item for item in lab.items if isinstance(item, Check) and item.seconds <= SECONDS]
    module, _ = submission.load(changed(number), "mine.py")
    for name, value in list(vars(module).items()):
        if inspect.isfunction(value) and value.__code__.co_filename == "mine.py":
            setattr(module, name, replaced.get(name, instead_of(value, kind)))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = dataclasses.replace(lab, items=quick).run(Here(module, lab.beside), 1)
    return [f"{row.task} {row.title}" for row in rows if row.earned]


@pytest.mark.parametrize("number", [*QUICK, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_answer_at_all_earns_nothing(number: int, kind: str) -> None:
    assert earned(number, kind) == []


@pytest.mark.parametrize("number", QUICK)
@pytest.mark.parametrize("kind", LIKE)
def test_numbers_of_the_right_shape_earn_nothing(number: int, kind: str) -> None:
    assert [row for row in earned(number, kind) if not row.startswith(NO_NUMBERS)] == []


@pytest.mark.parametrize("number", [7, 8])
@pytest.mark.parametrize("kind", PLAIN)
def test_no_text_of_a_kernel_earns_nothing(number: int, kind: str) -> None:
    assert earned(number, kind) == []


KERNELS = {
    7: [("    return total\n", "    return ZERO\n"), ("return lane_sum(", "return ZERO * lane_sum("),
        ("    return mean, m2 / n\n", "    return ZERO, ZERO\n")],
    8: [("= (x[start + i] - mean[blockIdx.x]) * rstd[blockIdx.x];", "= ZERO;"),
        ("    return sum;\n", "    return ZERO;\n"),
        ("var[blockIdx.x] = squares - rest * rest;", "var[blockIdx.x] = ZERO;"),
        ("    return v;\n", "    return ZERO;\n")],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("number", KERNELS)
@pytest.mark.parametrize("constant", ["0", "1"])
def test_a_kernel_of_constants_earns_nothing(judge_changed: Any, number: int, constant: str) -> None:
    changes = [(old, new.replace("ZERO", constant)) for old, new in KERNELS[number]]
    report = judge_changed(number, *changes, patience=3)
    # The answers of 8.3 are the student's own tests, which stay right.
    kernels = [row for row in report.outcomes if row.task != "8.3" and "passes if" not in row.remark]
    assert {row.title for row in kernels if row.earned} <= {"as many threads as asked for"}  # which they do start
