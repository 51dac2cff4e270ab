"""Each verdict on a function that it must accept and on one that it must refuse, in words that name what was seen."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minorm.labs.beside import Beside
from minorm.labs.calling.student import Here
from minorm.labs.comparing import Wrong
from minorm.labs.following import verdicts
from minorm.labs.following.follower import Follower

X = (np.random.default_rng(1).standard_normal((12, 2)) + 3).astype(np.float32)
HALF = X.astype(np.float16)
Verdict = Callable[[Follower], None]
ONE_PASS: Verdict = lambda follow: verdicts.one_pass(follow, 12, 2, "f")  # noqa: E731
PIECES: Verdict = lambda follow: verdicts.blocks_apart(follow, [4, 8, 12], "f", "pieces")  # noqa: E731
ROUNDED: Verdict = lambda follow: verdicts.rounded_once(follow, "float32", "float16", "f")  # noqa: E731
WORK: Verdict = lambda follow: verdicts.work(follow, X.size, "f")  # noqa: E731


def followed(function: Callable[[Any], Any], x: Any, axis: int = 0) -> Follower:
    follow = Follower()
    follow.call(Here(SimpleNamespace(f=function), Beside("")), "f", follow.array(x, rows=True, axis=axis))
    return follow


def running_sum(x: Any) -> Any:
    total = x[0] * 0
    for v in x:
        total = total + v
    return total


def from_a_list(x: Any) -> Any:
    kept = [v + 0 for v in x]
    return sum(v - kept[0] for v in kept)


def from_a_copy(x: Any) -> Any:
    kept = np.zeros_like(x)
    for i, v in enumerate(x):
        kept[i] = v
    return kept.sum(axis=0)


def columns(x: Any) -> Any:
    return np.array([sum(x[i, j] for i in range(12)) for j in range(2)])


@pytest.mark.parametrize(
    ("function", "x", "verdict", "words"),
    [
        (running_sum, X, ONE_PASS, ""),
        (columns, X, ONE_PASS, ""),
        (lambda x: x.sum(axis=0), X, ONE_PASS, ".sum read values 0 to 11 of x at once"),
        (lambda x: running_sum(x) + x[3], X, ONE_PASS, "read value 3 after value 11"),
        (lambda x: running_sum(x[::-1]), X, ONE_PASS, "read value 10 after value 11"),
        (from_a_list, X, ONE_PASS, "numbers are kept for 2 columns"),
        (from_a_copy, X, ONE_PASS, "numbers are kept for 2 columns"),
        (lambda x: np.stack(list(x)).sum(0), X, ONE_PASS, "np.stack read values 0 to 11"),
        (lambda x: x[0:4].mean(0) + x[4:8].mean(0) - x[:3].max(0), X, PIECES, ""),
        (lambda x: x[0:4].mean(0) + x[3:8].mean(0), X, PIECES, ".mean read values 3 to 7 of x at once"),
        (lambda x: (x.astype(np.float32) * 2).astype(np.float16), HALF, ROUNDED, ""),
        (lambda x: np.add.reduce(x, axis=0, dtype=np.float32), HALF, ROUNDED, ""),
        (lambda x: x * 2, HALF, ROUNDED, "a result of * in float16"),
        (lambda x: (x.astype(np.float64) * 2).astype(np.float32), HALF, ROUNDED, "a result of .astype in float64"),
        (lambda x: (x.astype(np.float32) * 2).astype(np.float16).astype(np.float32) + 1, HALF, ROUNDED, "rounded"),
        (
            lambda x: np.mean(x, axis=0, dtype=np.float64, out=np.zeros(2, np.float32)), HALF, ROUNDED,
            "of np.mean in float64",
        ),
        (lambda x: np.exp(x) + 1, X, WORK, ""),
        (lambda x: sum(np.exp(x) * i for i in range(400)), X, WORK, "looks like finite differences"),
        (lambda x: x.sum(0), X, lambda f: verdicts.no_variance(f, "f"), ""),
        (np.std, X, lambda f: verdicts.no_variance(f, "f"), "np.std() was called; write the update yourself"),
        (lambda x: np.square(x) > 2, X, lambda f: verdicts.types(f, ["float32"], "f"), ""),
        (lambda x: x * np.float64(2), X, lambda f: verdicts.types(f, ["float32"], "f"), "a result of * in float64"),
        (lambda x: x - x[0], X, lambda f: verdicts.formed(f, [X - X[0]], "f", "x - x[0]"), ""),
        (lambda x: x - x[1], X, lambda f: verdicts.formed(f, [X - X[0]], "f", "x - x[0]"), "no operation"),
        (lambda x: (x - x[0]).sum() * 0 + x[0], X, lambda f: verdicts.formed(f, [X - X[0]], "f", "it"), ""),
    ],
)  # fmt: skip
def test_verdicts(function: Callable[[Any], Any], x: Any, verdict: Verdict, words: str) -> None:
    follow = followed(function, x)
    if not words:
        verdict(follow)
        return
    with pytest.raises(Wrong) as raised:
        verdict(follow)
    assert words in raised.value.got


@pytest.mark.parametrize(
    ("function", "verdict", "words"),
    [
        (lambda x: running_sum(x.T), ONE_PASS, ""),
        (lambda x: running_sum(np.moveaxis(x, 1, 0)), ONE_PASS, ""),
        (lambda x: running_sum(np.array(x.T)), ONE_PASS, ""),
        (lambda x: running_sum(x.T.copy()), ONE_PASS, ""),
        (lambda x: running_sum(np.ascontiguousarray(x).T), ONE_PASS, ""),
        (lambda x: sum(x.copy()[:, i] for i in range(12)), ONE_PASS, ""),
        (lambda x: np.array([running_sum(row) for row in x]), ONE_PASS, ""),
        (lambda x: x.sum(axis=-1), ONE_PASS, ".sum read values 0 to 11 of x at once"),
        (lambda x: x[0] + x[1], ONE_PASS, "+ read values 0 to 11 of x at once"),
        (lambda x: x.copy().ravel()[3:6].sum(), ONE_PASS, ".sum read values 3 to 5 of x at once"),
        (lambda x: running_sum(np.flip(x.T, 0)), ONE_PASS, "read value 10 after value 11"),
        (lambda x: running_sum(np.flip(x.T, 0).copy()), ONE_PASS, "read value 10 after value 11"),
        (lambda x: sum(part.mean(1) for part in np.array_split(x, 3, axis=1)), PIECES, ""),
        (lambda x: x[:, 3:8].mean(1), PIECES, ".mean read values 3 to 7 of x at once"),
    ],
)  # fmt: skip
def test_values_along_the_last_axis(function: Callable[[Any], Any], verdict: Verdict, words: str) -> None:
    follow = followed(function, np.ascontiguousarray(X.T), axis=-1)
    if not words:
        verdict(follow)
        return
    with pytest.raises(Wrong) as raised:
        verdict(follow)
    assert words in raised.value.got
