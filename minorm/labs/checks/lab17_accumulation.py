"""Lab 17: checks gradients against complex steps on the whole batch, merged statistics, and the student's tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.labs.checks.complex_step import slopes
from minorm.labs.checks.mistakes import lab17_accumulation as mistakes
from minorm.labs.comparing import close, equal, numbers, parts, true
from minorm.labs.lab import Lab

LAB = Lab(
    17,
    "lab17_accumulation",
    "BatchNorm under accumulation",
    "Do micro-batches with accumulated gradients give what the full batch gives, if there is a BatchNorm?",
    minutes=75,
    needs=(1, 2, 4),
)
FAR = 1e6
NAMES = ("w", "s", "b")


def _named(got: Any, names: tuple[str, ...], what: str) -> dict[str, Any]:
    """Return `got` if it is a dict with these names; otherwise raise Wrong."""
    expected = f"a dict with {', '.join(map(repr, names))}"
    true(isinstance(got, dict), what, expected, type(got).__name__)
    true(set(got) == set(names), what, expected, f"{', '.join(map(repr, got))}")
    return dict(got)


def _loss(x: Any, t: Any, values: Sequence[Any], eps: float, axis: int) -> Any:
    """Return the mean loss of a batch; w, s and b may be complex."""
    w, s, b = values
    h = x @ w
    c = h - h.mean(axis=axis, keepdims=True)
    y = c / np.sqrt((c * c).mean(axis=axis, keepdims=True) + eps) * s + b
    return ((y - t) ** 2).sum() / (2 * len(x))


def _derivatives(x: Any, t: Any, parameters: Sequence[Any], eps: float, axis: int = 0) -> dict[str, Any]:
    """Return the gradients of the loss with respect to w, s and b."""
    return dict(zip(NAMES, slopes(lambda *values: _loss(x, t, values, eps, axis), *parameters), strict=True))


def _problem(rng: np.random.Generator, n: int, d: int, c: int, offset: float = 0.0) -> tuple[Any, ...]:
    """Draw x, t, w, s and b."""
    x = rng.standard_normal((n, d)) + rng.standard_normal(d) + offset
    return x, rng.standard_normal((n, c)), rng.standard_normal((d, c)), rng.uniform(0.5, 2, c), rng.standard_normal(c)


def _cut(array: Any, sizes: list[int]) -> list[Any]:
    return np.split(array, np.cumsum(sizes)[:-1])


def _merged_gradients(student: Any, rng: np.random.Generator, sizes: list[int], axis: int) -> None:
    x, t, *values = _problem(rng, sum(sizes), 3, 2)
    pieces = zip(_cut(x, sizes), _cut(t, sizes), strict=True)
    gradients = [_derivatives(*piece, values, 1e-3, axis) for piece in pieces]
    what = f"merge_gradients, sizes {sizes}"
    got = _named(student.merge_gradients(gradients, sizes), NAMES, what)
    for name in NAMES:
        expected = np.tensordot(sizes, [g[name] for g in gradients], 1) / sum(sizes)
        close(got[name], expected, f"{name} of {what}")
    if axis == 1:  # LayerNorm: this is the gradient of the whole batch
        for name, right in _derivatives(x, t, values, 1e-3, axis).items():
            close(got[name], right, f"{name} of {what}, against the whole batch")


@LAB.check("17.1", "the gradients of equal and ragged micro-batches", visible=True)
def merged_gradients(student: Any, rng: np.random.Generator) -> None:
    _merged_gradients(student, rng, [4, 4, 1], 1)
    _merged_gradients(student, rng, [3, 3], 0)


@LAB.check("17.1", "other sizes, and other names")
def other_gradients(student: Any, rng: np.random.Generator) -> None:
    _merged_gradients(student, rng, [5, 2, 1, 7], 1)
    _merged_gradients(student, rng, [6], 0)
    arrays = rng.standard_normal((2, 2, 1, 3))
    got = student.merge_gradients([{"first.weight": a, "bias": a[0, 0]} for a in arrays], [1, 3])
    got = _named(got, ("first.weight", "bias"), "merge_gradients of two names")
    close(got["first.weight"], (arrays[0] + 3 * arrays[1]) / 4, "first.weight of merge_gradients, sizes [1, 3]")
    close(got["bias"], (arrays[0] + 3 * arrays[1])[0, 0] / 4, "bias of merge_gradients, sizes [1, 3]")


def _updates(student: Any, momentum: float, k: int) -> None:
    """Compare the student's shares with those that k updates show: one of the values is 1 and all others are 0."""
    weights = []
    for place in range(k + 1):
        running = float(place == 0)
        for i in range(k):
            running += momentum * (float(i + 1 == place) - running)
        weights.append(running)
    of = f"({momentum:g}, {k})"
    close(student.compounded(momentum, k), 1 - weights[0], f"compounded{of}")
    close(student.shares(momentum, k), np.array(weights[1:]), f"shares{of}")
    small = float(numbers(student.per_update(momentum, k), f"per_update{of}", "a number"))
    running = 1.0
    for _ in range(k):
        running -= small * running
    close(running, 1 - momentum, f"what is left of the old value after {k} updates with per_update{of}")


@LAB.check("17.2", "the momentum of k updates", visible=True)
def updates(student: Any, rng: np.random.Generator) -> None:
    for k in (1, 2, 8):
        _updates(student, 0.1, k)


@LAB.check("17.2", "other momentums")
def other_updates(student: Any, rng: np.random.Generator) -> None:
    for momentum, k in ((0.9, 3), (float(rng.uniform(0.2, 0.8)), 16), (0.01, 5)):
        _updates(student, momentum, k)


def _statistics_of(h: Any) -> tuple[int, Any, Any]:
    mean = h.sum(axis=0) / len(h)
    return len(h), mean, ((h - mean) ** 2).sum(axis=0) / len(h)


def _same_statistics(got: Any, right: tuple[int, Any, Any], what: str, rtol: float = 1e-9) -> None:
    n, mean, var = parts(got, 3, what)
    equal(n, right[0], f"n of {what}")
    close(mean, right[1], f"the mean of {what}", rtol=rtol)
    close(var, right[2], f"the variance of {what}", rtol=rtol)


@LAB.check("17.3", "two micro-batches together", points=2, visible=True)
def merged(student: Any, rng: np.random.Generator) -> None:
    for sizes in ([4, 4], [5, 2], [1, 3]):
        h = rng.standard_normal((sum(sizes), 3)) * 2 + 1
        one, other = _cut(h, sizes)
        _same_statistics(student.statistics(one), _statistics_of(one), f"statistics of {sizes[0]} samples")
        _same_statistics(
            student.merged(_statistics_of(one), _statistics_of(other)), _statistics_of(h), f"merged, sizes {sizes}"
        )


@LAB.check("17.3", "one after the other, far from 0")
def folded(student: Any, rng: np.random.Generator) -> None:
    sizes = [3, 7, 1, 5]
    h = rng.standard_normal((sum(sizes), 4)) + np.repeat([0.0, 3.0, -5.0, 1.0], sizes)[:, None]
    pieces = _cut(h + FAR, sizes)
    total = student.statistics(pieces[0])
    for piece in pieces[1:]:
        total = student.merged(total, student.statistics(piece))
    n, mean, var = _statistics_of((h + FAR) - FAR)
    _same_statistics(total, (n, mean + FAR, var), f"micro-batches of {sizes} near {FAR:g}, merged", rtol=1e-7)


@LAB.check("17.3", "one update of the running statistics", visible=True)
def running(student: Any, rng: np.random.Generator) -> None:
    for n, momentum in ((2, 0.1), (7, 0.4), (30, 1.0)):
        old_mean, old_var, h = rng.standard_normal(3), rng.uniform(1, 2, 3), rng.standard_normal((n, 3)) + 2
        got = parts(student.running_update(old_mean, old_var, _statistics_of(h), momentum), 2, "running_update")
        of = f"after a batch of {n}, momentum={momentum:g}"
        close(got[0], old_mean + momentum * (h.mean(axis=0) - old_mean), f"the running mean {of}")
        close(got[1], old_var + momentum * (h.var(axis=0, ddof=1) - old_var), f"the running variance {of}")


def _two_passes(
    student: Any, rng: np.random.Generator, sizes: list[int], shape: tuple[int, int], offset: float
) -> None:
    """Check two passes: second_pass gets one micro-batch a call, and `gradients` runs in a fresh process."""
    x, t, w, s, b = _problem(rng, sum(sizes), *shape, offset)
    eps, total = 0.2, _statistics_of(x @ w)
    names = ("db", "ds", "xdy", "xsum", "xxhat")
    sums: dict[str, Any] = {}
    what = f"second_pass, sizes {sizes}, eps={eps:g}"
    rstd = (total[2] + eps) ** -0.5
    for xi, ti in zip(_cut(x, sizes), _cut(t, sizes), strict=True):
        got = _named(student.second_pass(xi, ti, w, s, b, total, eps), names, what)
        xhat = (xi @ w - total[1]) * rstd
        dy = (xhat * s + b - ti) / total[0]
        of_dy = dy.sum(0), np.einsum("nc,nc->c", dy, xhat), np.einsum("nd,nc->dc", xi, dy)
        right = (*of_dy, xi.sum(0), np.einsum("nd,nc->dc", xi, xhat))
        for name, expected in zip(names, right, strict=True):
            close(got[name], expected, f"{name} of {what}", rtol=1e-7, atol=1e-9)
            sums[name] = sums.get(name, 0) + got[name]
    student.fresh()
    what = f"gradients, sizes {sizes}, eps={eps:g}"
    found = _named(student.gradients(sums, s, total, eps), NAMES, what)
    for name, expected in _derivatives(x, t, (w, s, b), eps).items():
        close(found[name], expected, f"{name} of {what}", rtol=1e-7, atol=1e-9)


@LAB.check("17.4", "two passes against the whole batch", points=2, visible=True)
def two_passes(student: Any, rng: np.random.Generator) -> None:
    _two_passes(student, rng, [4, 4, 2], (3, 2), 0.0)


@LAB.check("17.4", "other sizes, and samples far from 0", points=2)
def other_passes(student: Any, rng: np.random.Generator) -> None:
    _two_passes(student, rng, [1, 5, 3, 1], (2, 4), 0.0)
    _two_passes(student, rng, [6, 2], (4, 3), 100.0)
    _two_passes(student, rng, [7], (1, 1), 0.0)


def _ghosts(student: Any, rng: np.random.Generator, n: int, size: int) -> None:
    x = rng.standard_normal((n, 3)) * 2 + np.arange(n)[:, None]
    pieces = [x[i : i + size] for i in range(0, n, size)]
    what = f"{n} samples in ghosts of {size}"
    expected = np.concatenate([(p - p.mean(0)) / np.sqrt(p.var(0) + 0.5) for p in pieces])
    close(student.ghost_norm(x, size, 0.5), expected, f"ghost_norm, {what}, eps=0.5")
    within = sum(len(p) * p.var(0) for p in pieces) / n
    got = parts(student.within_and_between(x, size), 2, "within_and_between")
    close(got[0], within, f"within, {what}")
    close(got[1], x.var(0) - within, f"between, {what}", rtol=1e-7, atol=1e-9)


@LAB.check("17.5", "ghosts of one size", visible=True)
def ghosts(student: Any, rng: np.random.Generator) -> None:
    _ghosts(student, rng, 12, 4)


@LAB.check("17.5", "a ragged last one, and one alone")
def ragged_ghosts(student: Any, rng: np.random.Generator) -> None:
    _ghosts(student, rng, 11, 4)
    _ghosts(student, rng, 7, 2)
    _ghosts(student, rng, 5, 8)


def _implementation(
    weights: str = "sizes", between: bool = True, var_weights: str = "sizes", once: bool = True, biased: bool = False
) -> dict[str, Any]:
    """Make the functions that task 17.6 tests, with a planted bug."""

    def weights_of(sizes: Any, kind: str) -> Any:
        n = np.asarray(sizes, float)
        return {"sizes": n / n.sum(), "equal": np.ones(len(n)) / len(n), "last full": np.full(len(n), n[0] / n.sum())}[
            kind
        ]

    def gradient(gradients: Any, sizes: Any) -> Any:
        return np.tensordot(weights_of(sizes, weights), np.asarray(gradients, float), 1)

    def statistics(means: Any, variances: Any, sizes: Any) -> tuple[Any, Any]:
        means, share = np.asarray(means, float), weights_of(sizes, "sizes")
        mean = np.tensordot(share, means, 1)
        var = np.tensordot(weights_of(sizes, var_weights), np.asarray(variances, float), 1)
        return mean, var + between * np.tensordot(share, (means - mean) ** 2, 1)

    def running(
        running_mean: Any, running_var: Any, means: Any, variances: Any, sizes: Any, momentum: float = 0.1
    ) -> tuple[Any, Any]:
        mean, var = statistics(means, variances, sizes)
        n = sum(sizes)
        updates = 1 if once else len(sizes)
        for _ in range(updates):
            running_mean = (1 - momentum) * np.asarray(running_mean) + momentum * mean
            running_var = (1 - momentum) * np.asarray(running_var) + momentum * var * (1 if biased else n / (n - 1))
        return running_mean, running_var

    return {"gradient": gradient, "statistics": statistics, "running": running}


LAB.mutants(
    "17.6",
    _implementation(),
    {
        "gradients averaged without weights": _implementation(weights="equal"),
        "the last micro-batch counts as a full one": _implementation(weights="last full"),
        "the variance of the means left out": _implementation(between=False),
        "variances averaged without weights": _implementation(var_weights="equal"),
        "momentum applied k times": _implementation(once=False),
        "a biased running variance": _implementation(biased=True),
    },
    visible=True,
)
LAB.recognizer = mistakes.RECOGNIZER
