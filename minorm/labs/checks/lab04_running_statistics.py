"""Lab 4: compares running statistics with weighted sums over all batches, and runs students' tests on planted bugs."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.checks.mistakes import lab04_running_statistics as mistakes
from minorm.labs.checks.variants import lab04_running_statistics as varied
from minorm.labs.checks.variants import layouts
from minorm.labs.checks.variants.lab04_running_statistics import V, laid
from minorm.labs.comparing import close, equal, numbers, parts, true
from minorm.labs.lab import Lab

LAB = Lab(
    4,
    "lab04_running_statistics",
    "Running statistics",
    "Why do two frameworks disagree about the running variance, although both see the same batches?",
    minutes=75,
    needs=(1,),
    variants=V,
)
SHAPES = ((4, 3), (5, 3, 4), (2, 3, 3, 2))


def _rows(x: Any) -> Any:
    """Reshape x to (C, m)."""
    return np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)


def _mean_var(x: Any, fewer: int = 0) -> tuple[Any, Any]:
    rows = _rows(x)
    mean = rows.sum(axis=1) / rows.shape[1]
    return mean, ((rows - mean[:, None]) ** 2).sum(axis=1) / (rows.shape[1] - fewer)


@LAB.check("4.1", "mean, var and m of a batch", visible=True)
def batch_statistics(student: Any, rng: np.random.Generator) -> None:
    for shape in SHAPES:
        x = rng.standard_normal(shape) * 2 + 1
        mine = laid(x)
        shape = mine.shape
        mean, var, m = parts(student.batch_statistics(mine), 3, f"batch_statistics, x of shape {shape}")
        close(mean, _mean_var(x)[0], f"the mean, x of shape {shape}")
        close(var, _mean_var(x)[1], f"the variance, x of shape {shape}")
        equal(m, _rows(x).shape[1], f"m, x of shape {shape}")


@LAB.check("4.1", "one step", points=2, visible=True)
def update(student: Any, rng: np.random.Generator) -> None:
    for shape, momentum in ((SHAPES[0], 0.9), (SHAPES[1], 0.25), (SHAPES[2], 1.0)):
        x, old_mean, old_var = rng.standard_normal(shape), rng.standard_normal(3), rng.uniform(1, 2, 3)
        mine = laid(x)
        new = parts(student.update(old_mean, old_var, mine, momentum), 2, "update")
        for name, got, old, batch in zip(("mean", "var"), new, (old_mean, old_var), _mean_var(x), strict=True):
            what = f"running {name} after x of shape {mine.shape}, momentum={momentum:g}"
            close(got, old * momentum + batch * (1 - momentum), what)
    new = parts(student.update(old_mean, old_var, laid(x)), 2, "update")
    right = old_mean * V.momentum + _mean_var(x)[0] * (1 - V.momentum)
    close(new[0], right, "running mean of update(mean, var, x) without a momentum")


@LAB.check("4.1", "old values are not changed")
def arguments(student: Any, rng: np.random.Generator) -> None:
    values = {"mean": rng.standard_normal(3), "var": rng.uniform(1, 2, 3), "x": rng.standard_normal((4, 3))}
    right = (values["mean"] + _mean_var(values["x"])[0]) / 2
    values["x"] = laid(values["x"])
    new = parts(student.update(*values.values(), 0.5), 2, "update")
    close(new[0], right, "the running mean of update(mean, var, x, 0.5)")
    after = parts(student.drive("kept", **values), 3, "the arguments of update afterwards")
    for (name, before), now in zip(values.items(), after, strict=True):
        close(now, before, f"{name} after a call of update(mean, var, x)")


@LAB.check("4.2", "m - 1", visible=True)
def unbiased(student: Any, rng: np.random.Generator) -> None:
    close(student.unbiased(np.array([1.0, 3.0]), 2), np.array([2.0, 6.0]), "unbiased([1, 3], 2)")
    for shape in SHAPES:
        x = rng.standard_normal(shape)
        m = _rows(x).shape[1]
        close(student.unbiased(_mean_var(x)[1], m), _mean_var(x, 1)[1], f"unbiased(var, {m})")


@LAB.check("4.3", "the average of all batches", points=2, visible=True)
def cumulative(student: Any, rng: np.random.Generator) -> None:
    values = rng.standard_normal(6)
    running = 17.0
    for seen, value in enumerate(values):
        momentum = float(numbers(student.cumulative_momentum(seen), f"cumulative_momentum({seen})", "a number"))
        running = running * momentum + value * (1 - momentum)
        close(running, values[: seen + 1].mean(), f"the running value after {seen + 1} batches")


def _share(convention: str, momentum: float | None, seen: int) -> float:
    """Return the share of the new batch in the running value."""
    if convention == "paper":
        return 1 / (seen + 1)
    if momentum is None:
        momentum = {"onnx": 0.9, "keras": 0.99, "pytorch": 0.1}[convention]
    return momentum if convention == "pytorch" else 1 - momentum


def _trajectory(batches: list[Any], convention: str, momentum: float | None) -> list[tuple[Any, Any]]:
    """Return the running mean and variance after each batch.

    Each is computed as one weighted sum over all batches so far.
    """
    points = []
    fewer = 1 if convention in ("pytorch", "paper") else 0
    for count in range(1, len(batches) + 1):
        shares = [_share(convention, momentum, seen) for seen in range(count)]
        weights = [share * np.prod([1 - later for later in shares[i + 1 :]]) for i, share in enumerate(shares)]
        statistics = [_mean_var(x, fewer) for x in batches[:count]]
        mean = sum(w * s[0] for w, s in zip(weights, statistics, strict=True))
        var = sum(w * s[1] for w, s in zip(weights, statistics, strict=True))
        var = var + V.first_var * np.prod([1 - s for s in shares])
        points.append((mean, var))
    return points


def _follow(student: Any, rng: np.random.Generator, convention: str, momentum: float | None) -> None:
    batches = [rng.standard_normal(shape) * 2 + 3 for shape in ((6, 2), (2, 2), (3, 2, 4))]
    of = f'"{convention}"' + ("" if momentum is None else f", momentum={momentum:g}")
    got = student.trajectory([laid(x) for x in batches], convention, momentum)
    expected = _trajectory(batches, convention, momentum)
    true(
        isinstance(got, list) and len(got) == 3, f"trajectory(3 batches, {of})", "a list of 3 pairs", type(got).__name__
    )
    for number, (point, right) in enumerate(zip(got, expected, strict=True), 1):
        mean, var = parts(point, 2, f"a point of trajectory(batches, {of})")
        close(mean, right[0], f"running mean after batch {number}, {of}")
        close(var, right[1], f"running var after batch {number}, {of}")


@LAB.check("4.4", "ONNX", points=2, visible=True)
def onnx(student: Any, rng: np.random.Generator) -> None:
    _follow(student, rng, "onnx", None)
    _follow(student, rng, "onnx", 0.7)


@LAB.check("4.4", "PyTorch", points=2, visible=True)
def pytorch(student: Any, rng: np.random.Generator) -> None:
    _follow(student, rng, "pytorch", None)
    _follow(student, rng, "pytorch", 0.3)


@LAB.check("4.4", "Keras")
def keras(student: Any, rng: np.random.Generator) -> None:
    _follow(student, rng, "keras", None)
    _follow(student, rng, "keras", 0.8)


@LAB.check("4.4", "the paper")
def paper(student: Any, rng: np.random.Generator) -> None:
    _follow(student, rng, "paper", None)


@LAB.check("4.5", "momentum", visible=True)
def onnx_momentum(student: Any, rng: np.random.Generator) -> None:
    for momentum in (0.1, 0.25, 1.0, 0.0):
        close(student.onnx_momentum(momentum), 1 - momentum, f"onnx_momentum({momentum:g})")


@LAB.check("4.5", "running variance", points=2, visible=True)
def onnx_running_var(student: Any, rng: np.random.Generator) -> None:
    for momentum, count, shape in ((0.1, 1, (2, 3)), (0.1, 5, (4, 3)), (0.3, 3, (2, 3, 3))):
        batches = [rng.standard_normal(shape) for _ in range(count)]
        theirs = _trajectory(batches, "pytorch", momentum)[-1][1]
        right = _trajectory(batches, "onnx", 1 - momentum)[-1][1]
        m = _rows(batches[0]).shape[1]
        got = student.onnx_running_var(theirs, momentum, count, m)
        close(got, right, f"onnx_running_var(..., {momentum:g}, batches={count}, m={m})")


def _implementation(
    fewer: int = 0,
    inverted: bool = False,
    eps_outside: bool = False,
    subtract: bool = True,
    axes: str = "all but C",
    accumulate: Any = np.float64,
    blended: bool = False,
    evaluate_with_batch: bool = False,
    eps_kept: bool = False,
    power: float = 1.0,
    var_moves: bool = True,
    evaluate_with_eps: bool = True,
) -> dict[str, Any]:
    """Make the functions of a BatchNorm without scale and bias, with one planted bug, for x in the variant's layout."""

    def statistics(x: Any) -> tuple[Any, Any]:
        """Return mean and var, summed in the accumulation type.

        With axes="N", which is a bug, the variances are taken over the batch axis alone and then averaged.
        """
        rows = _rows(x).astype(accumulate)
        m = rows.shape[1]
        mean = rows.sum(axis=1, dtype=accumulate).astype(np.float64) / m
        if axes == "N":
            return mean, x.var(axis=0).reshape(x.shape[1], -1).mean(axis=1)
        distances = ((_rows(x) - mean[:, None]) ** 2).astype(accumulate)
        return mean, distances.sum(axis=1, dtype=accumulate).astype(np.float64) / max(m - fewer, 1)

    def normalized(x: Any, mean: Any, var: Any, eps: float) -> Any:
        along = (-1, *[1] * (x.ndim - 2))
        rstd = 1 / (np.sqrt(var) + eps) if eps_outside else (var + eps) ** -0.5
        return (x - np.reshape(mean, along) * subtract) * np.reshape(rstd, along)

    def array(x: Any) -> Any:
        return layouts.plain(np.asarray(x, np.float64), V.layout)

    def train(x: Any, mean: Any, var: Any, momentum: float | None = None, eps: float = 1e-5) -> tuple[Any, Any, Any]:
        x, momentum = array(x), V.momentum if momentum is None else momentum
        of_mean, of_var = statistics(x)
        keep = 1 - momentum if inverted else momentum
        new_mean = mean * keep + of_mean * (1 - keep)
        blended_in = of_var + (eps if eps_kept else 0)
        new_var = (var**power * keep + blended_in**power * (1 - keep)) ** (1 / power) if var_moves else var
        m = _rows(x).shape[1]
        inside = of_var * max(m - fewer, 1) / m  # y divides by m in any case
        if blended:
            of_mean, inside = new_mean, new_var
        return laid(normalized(x, of_mean, inside, eps)), new_mean, new_var

    def evaluate(x: Any, mean: Any, var: Any, eps: float = 1e-5) -> Any:
        x = array(x)
        if evaluate_with_batch:
            mean, var = statistics(x)
        return laid(normalized(x, np.asarray(mean), np.asarray(var), eps if evaluate_with_eps else 0.0))

    return {"train": train, "evaluate": evaluate}


BUGS = {
    varied.FEWER: _implementation(fewer=1),
    varied.INVERTED: _implementation(inverted=True),
    varied.OUTSIDE: _implementation(eps_outside=True),
    varied.NOT_SUBTRACTED: _implementation(subtract=False),
    varied.BATCH_ALONE: _implementation(axes="N"),
    varied.HALF: _implementation(accumulate=np.float16),
    varied.BLENDED: _implementation(blended=True),
    varied.FROM_BATCH: _implementation(evaluate_with_batch=True),
    varied.WITH_EPS: _implementation(eps_kept=True),
    varied.DEVIATIONS: _implementation(power=0.5),
    varied.STAYS: _implementation(var_moves=False),
    varied.NO_EPS: _implementation(evaluate_with_eps=False),
}
LAB.mutants("4.6", _implementation(), lambda: {name: BUGS[name] for name in V.bugs}, visible=True)


def _batch_statistics(x: Any) -> tuple[Any, Any, int]:
    x = layouts.plain(x, V.layout)
    return (*_mean_var(x), _rows(x).shape[1])


LAB.provide("4.1", batch_statistics=_batch_statistics)
LAB.provide("4.2", unbiased=lambda var, m: var * m / (m - 1))
LAB.provide("4.3", cumulative_momentum=lambda seen: 1 - 1 / (seen + 1))
LAB.recognizer = mistakes.RECOGNIZER
