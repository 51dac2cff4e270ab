"""Lab 2: checks that each formula is right in float64, and that in float32 it loses as many digits as expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.kernels.partial import PartialBackend
from minorm.labs.checks.mistakes import lab02_stable_variance as mistakes
from minorm.labs.checks.variants.lab02_stable_variance import V, along, parts_of, piece
from minorm.labs.comparing import at_most, close, equal, numbers, parts, true
from minorm.labs.following import verdicts
from minorm.labs.following.follower import Follower
from minorm.labs.lab import Lab
from minorm.normalization.nest import plan
from minorm.tensor.creation import tensor

LAB = Lab(
    2,
    "lab02_stable_variance",
    "Stable variance",
    "What is the variance of numbers near ten million, in float32?",
    minutes=75,
    needs=(1,),
    variants=V,
)
STEP = 2.0**-23  # of float32 at 1
Method = Callable[[Any], Any]


def _arithmetic(method: Method, name: str, rng: np.random.Generator) -> None:
    """Check the formula in float64, where rounding does not matter, on arrays with one column and with several."""
    for shape in ((50, 7), (9,), (2, 3), (1, 2)) if V.axis == 0 else ((50, 7), (6, 3, 2), (2, 3), (1, 2)):
        x = rng.standard_normal(shape) * 3 + 2
        mine = along(x)
        what = f"{name} of float64 numbers of shape {mine.shape}"
        close(method(mine), x.var(axis=0), what, 1e-9, 1e-12, dtype=np.float64)


def _error(method: Method, name: str, rng: np.random.Generator, offset: float) -> float:
    """Run the student's method on 64 columns of float32 numbers. Return the largest relative error of a variance."""
    x = (rng.standard_normal((int(rng.integers(200, 400)), 64)) + offset).astype(np.float32)
    x = along(x if V.axis == 0 else x.reshape(len(x), 8, 8))
    right = x.astype(np.float64).var(axis=V.axis)
    got = numbers(method(x), f"{name} of float32 numbers of shape {x.shape}", f"numbers of shape {right.shape}")
    close(got.shape, right.shape, f"the shape of {name} of numbers of shape {x.shape}")
    true(got.dtype == np.float32, f"{name} of float32 numbers", "float32", str(got.dtype))
    with np.errstate(all="ignore"):
        return float(np.abs(got / right - 1).max())


def _accuracy(method: Method, name: str, rng: np.random.Generator, losing: float, largest: float) -> None:
    """Check that the relative error is at most 1e-5 + `losing` * STEP * offset, for offsets up to `largest`."""
    for power in range(-1, int(np.log10(largest)) + 1):
        offset = 10.0**power if power >= 0 else 0.0
        bound = 1e-5 + losing * STEP * offset
        error = _error(method, name, rng, offset)
        at_most(error, bound, f"relative error of {name} with a mean of {offset:g} deviations")


def _followed(student: Any, name: str, x: Any, **options: Any) -> tuple[Follower, str]:
    """Follow the function on x.

    Check that it computes in float32 with its own formula, and gives the same answer when it is not followed.
    """
    follow, what = Follower(), f"{name} of float32 numbers of shape {x.shape}"
    answer = follow.call(student, name, follow.array(x, rows=True, axis=V.axis), **options)
    verdicts.no_variance(follow, what)
    verdicts.types(follow, ["float32"], what)
    verdicts.same_answer(answer, student.call(name, (x,), options), what)
    return follow, what


def _data(rng: np.random.Generator, rows: int) -> list[Any]:
    """Draw two arrays: a table of three columns, and a vector, or an array of three axes if V.axis is not 0.

    In both arrays the values lie along axis 0, as the formulas expect. `along` moves the values to the variant's axis.
    """
    shapes = ((rows, 3), (rows,)) if V.axis == 0 else ((rows, 3), (rows, 2, 2))
    return [(rng.standard_normal(shape) * 2 + 5).astype(np.float32) for shape in shapes]


def _sums(x: Any) -> Any:
    """Return the sum of squared distances from the mean, in float64."""
    return len(x) * x.astype(np.float64).var(axis=0)


def _naive_is_naive(student: Any, rng: np.random.Generator) -> None:
    for x in _data(rng, 21):
        follow, what = _followed(student, "naive", along(x))
        square = (x.astype(np.float64) ** 2).sum(axis=0)
        verdicts.formed(follow, [square, square / len(x)], what, "the mean of x^2")


def _two_passes(student: Any, rng: np.random.Generator) -> None:
    for x in _data(rng, 21):
        follow, what = _followed(student, "two_pass", along(x))
        verdicts.formed(follow, [x - x.mean(axis=0, dtype=np.float64)], what, "x - mean for each x", rtol=1e-3)


def _one_after_the_other(student: Any, rng: np.random.Generator) -> None:
    for x in _data(rng, 21):
        follow, what = _followed(student, "welford", along(x))
        verdicts.one_pass(follow, len(x), x[0].size, what)
        counts = np.arange(2, len(x) + 1)
        running = np.array([np.ravel(_sums(x[:count])) for count in counts])
        words = "M after each value: the sum over the values so far"
        verdicts.formed(follow, [running, running / counts[:, None]], what, words, rtol=1e-3)


def _merges_pieces(student: Any, rng: np.random.Generator) -> None:
    for x, pieces in zip(_data(rng, 23), (4, 5), strict=True):
        follow, what = _followed(student, "chan", along(x), pieces=pieces)
        cut = np.array_split(x, pieces)
        ends = np.cumsum([len(part) for part in cut])
        verdicts.blocks_apart(follow, ends.tolist(), what, "pieces by themselves, and then their n, mean and M")
        each, merged = np.array([_sums(part) for part in cut]), np.array([_sums(x[:end]) for end in ends])
        counts = [np.reshape(n, (-1, *[1] * (x.ndim - 1))) for n in ([len(part) for part in cut], ends)]
        verdicts.formed(follow, [each, each / counts[0]], what, "M of each piece", rtol=1e-3)
        words = "M of the first two pieces together, of the first three, ..."
        verdicts.formed(follow, [merged, merged / counts[1]], what, words, rtol=1e-3)


def _merges_states(student: Any, rng: np.random.Generator) -> None:
    """Follow `combine` on random means and sums in float32.

    There are no values behind them, so `combine` must use its arguments.
    """
    follow, what = Follower(), "combine of two states in float32"
    states = [(n, *rng.uniform(1, 2, (2, 3)).astype(np.float32)) for n in (7, 12)]
    held = [piece(n, follow.array(mean), follow.array(M)) for n, mean, M in states]
    answer = follow.call(student, "combine", *held)
    verdicts.no_variance(follow, what)
    verdicts.types(follow, ["float32"], what)
    verdicts.same_answer(answer, student.call("combine", tuple(piece(*state) for state in states), {}), what)


def _around_k(student: Any, rng: np.random.Generator) -> None:
    for x in _data(rng, 21):
        follow, what = _followed(student, "shifted", along(x))
        wide = x.astype(np.float64)
        verdicts.formed(follow, [wide - wide[: V.first].mean(axis=0)], what, "x - k for each x", rtol=1e-3)


@LAB.check("2.1", "naive: the formula", visible=True)
def naive_formula(student: Any, rng: np.random.Generator) -> None:
    _arithmetic(student.naive, "naive", rng)
    _naive_is_naive(student, rng)


@LAB.check("2.1", "naive: good near 0, no digit right at 10,000", visible=True)
def naive_fails(student: Any, rng: np.random.Generator) -> None:
    at_most(_error(student.naive, "naive", rng, 0.0), 1e-5, "relative error of naive with a mean of 0")
    error = _error(student.naive, "naive", rng, 1e4)
    expected = "at least 1: mean(x^2) - mean(x)^2 in float32 has no digit left there"
    true(error >= 1, "relative error of naive with a mean of 10,000 deviations", expected, f"{error:.1e}")
    _naive_is_naive(student, rng)


@LAB.check("2.2", "two passes: the formula", visible=True)
def two_pass_formula(student: Any, rng: np.random.Generator) -> None:
    _arithmetic(student.two_pass, "two_pass", rng)
    _two_passes(student, rng)


@LAB.check("2.2", "two passes: error bound up to 100,000")
def two_pass_error(student: Any, rng: np.random.Generator) -> None:
    _accuracy(student.two_pass, "two_pass", rng, 4, 1e5)
    _two_passes(student, rng)


@LAB.check("2.3", "Welford: the formula", visible=True)
def welford_formula(student: Any, rng: np.random.Generator) -> None:
    _arithmetic(student.welford, "welford", rng)
    _one_after_the_other(student, rng)


@LAB.check("2.3", "Welford: error bound up to 100,000", points=2)
def welford_error(student: Any, rng: np.random.Generator) -> None:
    _accuracy(student.welford, "welford", rng, 4, 1e5)
    _one_after_the_other(student, rng)


@LAB.check("2.4", "Chan: two pieces as one", points=2, visible=True)
def combine(student: Any, rng: np.random.Generator) -> None:
    for n1, n2 in ((5, 8), (1, 1), (30, 1)):
        x = rng.standard_normal((n1 + n2, 3)) + rng.uniform(-2, 2)
        both = [piece(len(p), p.mean(axis=0), len(p) * p.var(axis=0)) for p in (x[:n1], x[n1:])]
        found = parts_of(parts(student.combine(*both), 3, f"combine of {n1} and {n2} values"))
        n, mean, M = found["n"], found["mean"], found["M"]
        equal(n, n1 + n2, f"n of {n1} and {n2} values together")
        close(mean, x.mean(axis=0), f"the mean of {n1} and {n2} values together")
        close(M, (n1 + n2) * x.var(axis=0), f"M of {n1} and {n2} values together")
    _merges_states(student, rng)


@LAB.check("2.4", "Chan: the formula", visible=True)
def chan_formula(student: Any, rng: np.random.Generator) -> None:
    _arithmetic(student.chan, "chan", rng)
    _arithmetic(lambda x: student.chan(x, 1), "chan with pieces=1", rng)
    _arithmetic(lambda x: student.chan(x, 3), "chan with pieces=3", rng)
    _merges_pieces(student, rng)


@LAB.check("2.4", "Chan: error bound up to 100,000")
def chan_error(student: Any, rng: np.random.Generator) -> None:
    _accuracy(student.chan, "chan", rng, 4, 1e5)
    _merges_pieces(student, rng)


@LAB.check("2.5", "shifted: k, d and var", points=2, visible=True)
def shifted_formula(student: Any, rng: np.random.Generator) -> None:
    for shape in ((50, 7), (9,), (5, 3)) if V.axis == 0 else ((50, 7), (9, 2, 3), (7, 3)):
        x = rng.standard_normal(shape) * 3 + 2
        mine = along(x)
        shape = mine.shape
        k, d, var = parts(student.shifted(mine), 3, f"shifted of numbers of shape {shape}")
        close(k, x[: V.first].mean(axis=0), f"k of numbers of shape {shape}")
        close(np.asarray(k) + np.asarray(d), x.mean(axis=0), f"k + d of numbers of shape {shape}")
        close(var, x.var(axis=0), f"var of numbers of shape {shape}")
    _around_k(student, rng)


@LAB.check("2.5", "shifted: seven digits wherever the data lies", points=3)
def shifted_error(student: Any, rng: np.random.Generator) -> None:
    _accuracy(lambda x: parts(student.shifted(x), 3, "shifted")[2], "shifted", rng, 0, 1e2)
    for offset in (1e3, 1e4, 1e5, 1e6, 1e7):
        error = _error(lambda x: parts(student.shifted(x), 3, "shifted")[2], "shifted", rng, offset)
        at_most(error, 5e-5, f"relative error of shifted with a mean of {offset:g} deviations")
    _around_k(student, rng)


def _run(x: Any, function: str, backend: Any) -> Any:
    """Run a normalization of minorm with this backend, and return y."""
    if function == "rms_norm":
        return F.rms_norm(tensor(x), x.shape[2:], eps=1e-5, backend=backend).array
    if function == "layer_norm":
        return F.layer_norm(tensor(x), x.shape[2:], backend=backend).array
    return F.batch_norm(tensor(x), None, None, training=True, backend=backend).array


def _layer(student: Any, rng: np.random.Generator, function: str, offset: float) -> None:
    x = (rng.standard_normal((8, 5, 6, 6)) + offset).astype(np.float32)
    axes = (0, 2, 3) if function == "batch_norm" else (2, 3)
    wide = x.astype(np.float64)
    mean = 0 if function == "rms_norm" else wide.mean(axes, keepdims=True)
    right = (wide - mean) / np.sqrt(((wide - mean) ** 2).mean(axes, keepdims=True) + 1e-5)
    what = f"y of {function} with your moments, mean {offset:g}"
    close(
        _run(x, function, PartialBackend(moments=student.moments)), right, what, rtol=2e-6, atol=5e-6, dtype=np.float32
    )


def _moments(student: Any, rng: np.random.Generator) -> None:
    """Check that the student's `moments` subtracts the shift k in the type of x.

    float64 is allowed for sums only. The answers alone do not show whether k was subtracted, because in float64 they
    are right without it.
    """
    x = (rng.standard_normal((3, 4, 5, 6)) + 7).astype(np.float32)
    for axes in ((0, 2, 3), (2, 3)):
        nest, follow, what = plan(x.shape, axes), Follower(plain=16), f"moments over the axes {axes}"
        answer = follow.call(student, "moments", nest, follow.array(x, rows=True), True)
        verdicts.no_variance(follow, what)
        verdicts.not_centered_in(follow, "float64", nest.rows, what, "x - k in float32, the type of x")
        verdicts.same_answer(answer, student.call("moments", (nest, x, True), {}), what)


@LAB.check("2.6", "BatchNorm with your moments", points=2, visible=True)
def batch_norm(student: Any, rng: np.random.Generator) -> None:
    for offset in (0.0, 1e4, 1e7):
        _layer(student, rng, "batch_norm", offset)
    _moments(student, rng)


@LAB.check("2.6", "LayerNorm and RMSNorm with your moments")
def other_norms(student: Any, rng: np.random.Generator) -> None:
    _layer(student, rng, "layer_norm", 1e6)
    _layer(student, rng, "rms_norm", 3.0)
    _moments(student, rng)


LAB.recognizer = mistakes.RECOGNIZER
