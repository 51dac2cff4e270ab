"""A mistake is named if it explains the numbers, and no other mistake is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.labs.calling.student import Call
from minorm.labs.judge.recognizing import Failed, Recognizer, hinted, same
from minorm.labs.scores import Outcome

X = np.array([1.0, 2.0, 3.0, 6.0])


class Right:
    def mean(self, x: Any) -> Any:
        return x.sum() / self.count(x)

    def count(self, x: Any) -> Any:
        return len(x)

    def doubled(self, x: Any) -> Any:
        return 2 * x


class OneLess(Right):
    """the count is one too small"""

    def count(self, x: Any) -> Any:
        return len(x) - 1


class Three(Right):
    """the mean always divides by 3"""

    def mean(self, x: Any) -> Any:
        return x.sum() / 3


class Squared(Right):
    """x is squared"""

    def doubled(self, x: Any) -> Any:
        return x**2


class Renamed(Right):
    """the function that it calls has another name"""

    def doubled(self, x: Any) -> Any:
        return self.twice(x)  # type: ignore[attr-defined]


MISTAKES = {kind.__name__: kind for kind in (Right, OneLess, Three, Squared, Renamed)}
RECOGNIZER = Recognizer.of(Right, {**MISTAKES, "other": 3})


def called(name: str, x: Any, answer: Any = None, error: str = "") -> Call:
    return Call(name, (x,), {}, answer, error)


def hint(*calls: Call, right: Any = ()) -> str:
    row = Outcome("1", "a check", 1, status="wrong", failures=[Failed(calls, right)])
    return hinted([row], RECOGNIZER)[0].hint


def test_all_mistakes_that_give_these_numbers_are_named() -> None:
    assert hint(called("mean", X, 4.0)) == (
        "this is what you get when the count is one too small, or when the mean always divides by 3"
    )


def test_other_calls_of_the_check_decide() -> None:
    five = np.arange(5.0)
    assert (
        hint(called("mean", five, 2.5), called("mean", X, 4.0))
        == "this is what you get when the count is one too small"
    )


def test_a_function_that_is_right_elsewhere_is_not_accused() -> None:
    right = [called("count", X, 4)]
    assert hint(called("mean", X, 4.0), right=right) == "this is what you get when the mean always divides by 3"


def test_what_a_function_does_not_build_on_says_nothing() -> None:
    right = [called("doubled", X, 2 * X)]
    assert "one too small" in hint(called("mean", X, 4.0), right=right)


@pytest.mark.parametrize("answer", [4.0000001, 3.0, None, "4.0", np.array([4.0]), 4])
def test_other_numbers_are_not_named(answer: Any) -> None:
    assert hint(called("mean", X, answer)) == ""


def test_a_right_answer_is_not_explained() -> None:
    assert hint(called("doubled", np.array([2.0, 0.0]), np.array([4.0, 0.0]))) == ""


def test_a_mistake_may_be_an_error() -> None:
    assert "has another name" in hint(
        called("doubled", X, error="line 3: AttributeError: 'Renamed' object has no attribute")
    )
    assert hint(called("doubled", X, error="line 3: TypeError: no")) == ""


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (-2 * X, "each number is -1 times the right number"),
        (X, "each number is 0.5 times the right number"),
        (2 * X + 0.25, "each number is the right number plus 0.25"),
        (2 * X - 1, "each number is the right number minus 1"),
        (2 * X + np.array([1, 0, 0, 0]), ""),
        ((2 * X).reshape(2, 2), ""),
    ],
)
def test_a_difference_that_one_number_says(answer: Any, said: str) -> None:
    assert hint(called("doubled", X, answer)) == said


def test_float32_on_the_way() -> None:
    x = np.array([0.1, 0.2, 0.7])
    assert "computation is in float32" in hint(called("doubled", x, (2 * x.astype(np.float32)).astype(np.float64)))
    assert "computation is in float32" in hint(called("doubled", x, 2 * x.astype(np.float32)))
    assert hint(called("doubled", x, 2 * x * np.array([1, 1 + 3e-7, 1]))) == ""


def test_the_mistake_that_explains_most_rows_is_named() -> None:
    rows = [
        Outcome("1", title, 1, status="wrong", failures=[Failed([called("mean", x, x.sum() / (len(x) - 1))], ())])
        for title, x in (("four", X), ("five", np.arange(5.0)))
    ]
    assert {row.hint for row in hinted(rows, RECOGNIZER)} == {"this is what you get when the count is one too small"}


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ((1.0, X), [1.0, X], True),
        ((1.0,), (1.0, 2.0), False),
        ({"a": X}, {"a": X}, True),
        ({"a": X}, {"b": X}, False),
        (X, X.astype(np.float32), True),
        (X, X.astype(int), False),
        (np.array([np.nan, 1]), np.array([np.nan, 1]), True),
        (None, None, True),
        (None, 0.0, False),
        ("a", "a", True),
        ([1, [2, 3]], [1, 2, 3], False),
    ],
)
def test_answers_that_are_equal(one: Any, other: Any, equal: bool) -> None:
    assert same(one, other) == equal
