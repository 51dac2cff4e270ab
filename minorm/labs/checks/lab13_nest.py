"""Lab 13: checks plans against the library's plans, results against NumPy's, and a backend in training."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.kernels.partial import PartialBackend
from minorm.labs import digits_network
from minorm.labs.calling.student import Failure
from minorm.labs.checks.mistakes import lab13_nest as mistakes
from minorm.labs.comparing import close, equal, parts, true
from minorm.labs.lab import Lab
from minorm.normalization import nest
from minorm.tensor.creation import from_numpy, tensor

LAB = Lab(
    13,
    "lab13_nest",
    "Nest and backends",
    "How can one kernel run every norm, on any shape and any order in memory?",
    minutes=60,
    needs=(0, 1),
    packages=("sklearn",),
)
FAR = 1e6
Ints = tuple[int, ...]


def strides_of(shape: Ints, order: Ints, itemsize: int) -> Ints:
    """Return the strides in bytes of an array whose axes lie in memory in this order, without gaps."""
    found, step = [0] * len(shape), itemsize
    for axis in reversed(order):
        found[axis] = step
        step *= shape[axis]
    return tuple(found)


def right_steps(shape: Ints, strides: Ints, itemsize: int) -> list[tuple[int, int, int]]:
    """Return (axis, count, step) of each loop, the widest step first; raise ValueError if the strides leave gaps."""
    axes = sorted((-step // itemsize, axis) for axis, step in enumerate(strides) if shape[axis] != 1)
    turns = [shape[axis] for _, axis in axes]
    if any(-step != prod(turns[place + 1 :]) for place, (step, _) in enumerate(axes)):
        raise ValueError(f"strides {strides} of shape {shape} leave gaps")
    return [(axis, shape[axis], -step) for step, axis in axes]


def right_plan(shape: Ints, strides: Ints, itemsize: int, reduced: Ints, varies: Ints) -> tuple[list[Ints], list[Ints]]:
    """Return the loops that the library plans: (kept loops, reduced loops)."""
    right_steps(shape, strides, itemsize)
    found = nest.plan(tuple(shape), tuple(reduced), 1, tuple(varies), tuple(step // itemsize for step in strides))
    return [tuple(loop) for loop in found.keep], [tuple(loop) for loop in found.reduce]


# (shape, order in memory, reduced, varies)
NORMS: dict[str, tuple[Ints, Ints, Ints, Ints]] = {
    "BatchNorm": ((4, 3, 5, 2), (0, 1, 2, 3), (0, 2, 3), (1,)),
    "LayerNorm": ((2, 3, 6), (0, 1, 2), (2,), (2,)),
    "GroupNorm": ((3, 2, 4, 5), (0, 1, 2, 3), (2, 3), (1, 2)),
    "BatchNorm, channels-last": ((4, 3, 5, 2), (0, 2, 3, 1), (0, 2, 3), (1,)),
    "BatchNorm, spatial=0": ((4, 3, 5, 2), (0, 1, 2, 3), (0,), (1, 2, 3)),
}
ODD: dict[str, tuple[Ints, Ints, Ints, Ints]] = {
    "InstanceNorm with a length of 1": ((3, 4, 1, 5), (0, 1, 2, 3), (2, 3), (1,)),
    "LayerNorm of one sample": ((1, 3, 4), (0, 1, 2), (1, 2), (1, 2)),
    "GroupNorm, one scale a group": ((3, 2, 4, 5), (0, 1, 2, 3), (2, 3), (1,)),
    "BatchNorm of (N, C), transposed": ((5, 3), (1, 0), (0,), (1,)),
    "LayerNorm, the other way round": ((2, 3, 4), (2, 1, 0), (2,), (2,)),
    "LayerNorm without scale": ((2, 3, 4), (0, 1, 2), (1, 2), ()),
    "BatchNorm, spatial=0, channels-last": ((4, 3, 5, 2), (0, 2, 3, 1), (0,), (1, 2, 3)),
}


# 13.1


@LAB.check("13.1", "steps in elements, in the order of memory", visible=True)
def steps(student: Any, rng: np.random.Generator) -> None:
    for itemsize in (4, 8):
        for shape, order in (
            ((2, 3, 4), (0, 1, 2)),
            ((2, 3, 4), (0, 2, 1)),
            ((3, 1, 2, 5), (2, 0, 1, 3)),
            ((1, 1), (0, 1)),
        ):
            strides = strides_of(shape, order, itemsize)
            expected = right_steps(shape, strides, itemsize)
            equal(student.steps(shape, strides, itemsize), expected, f"steps({shape}, {strides}, {itemsize})")


@LAB.check("13.1", "a refusal of gaps, steps of 0 and negative steps")
def refusals(student: Any, rng: np.random.Generator) -> None:
    equal(student.steps((2, 1, 3), (12, -99, 4), 4), [(0, 2, 3), (2, 3, 1)], "steps((2, 1, 3), (12, -99, 4), 4)")
    for shape, strides in (
        ((2, 3), (-12, 4)),
        ((3,), (-4,)),
        ((2, 3), (0, 4)),
        ((4,), (0,)),
        ((2, 3), (24, 4)),
        ((3,), (8,)),
    ):
        what = f"steps({shape}, {strides}, 4)"
        try:
            got = student.steps(shape, strides, 4)
        except Failure as failure:
            if failure.status != "error":
                raise
            true("ValueError" in str(failure), what, "a ValueError", str(failure))
        else:
            true(False, what, "a ValueError", str(got)[:200])


# 13.2


def _plans(student: Any, rng: np.random.Generator, norms: dict[str, Any]) -> None:
    for name, (shape, order, reduced, varies) in norms.items():
        itemsize = int(rng.choice([4, 8]))
        strides = strides_of(shape, order, itemsize)
        what = f"plan({shape}, {strides}, {itemsize}, {reduced}, {varies}), {name}"
        expected = right_plan(shape, strides, itemsize, reduced, varies)
        equal(student.plan(shape, strides, itemsize, reduced, varies), expected, what)


@LAB.check("13.2", "five norms", points=2, visible=True)
def plans(student: Any, rng: np.random.Generator) -> None:
    _plans(student, rng, NORMS)


@LAB.check("13.2", "lengths of 1, other orders, any axes", points=2)
def plans_odd(student: Any, rng: np.random.Generator) -> None:
    _plans(student, rng, ODD)
    for _ in range(30):
        shape = tuple(int(n) for n in rng.integers(1, 4, 4))
        order = tuple(int(axis) for axis in rng.permutation(4))
        some = [tuple(int(axis) for axis in np.flatnonzero(rng.random(4) < 0.5)) for _ in range(2)]
        _plans(student, rng, {"any axes": (shape, order, *some)})


# 13.3


def _runs(student: Any, rng: np.random.Generator, norms: dict[str, Any], offset: float, eps: float) -> None:
    for name, (shape, order, reduced, varies) in norms.items():
        x = rng.standard_normal(shape) + offset
        s, b = rng.standard_normal((2, *[count if axis in varies else 1 for axis, count in enumerate(shape)]))
        mean = x.mean(axis=reduced, keepdims=True)
        var = np.square(x - mean).mean(axis=reduced, keepdims=True)
        flat, scale, bias, means, variances, expected = (
            v.transpose(order).ravel() for v in (x, s, b, mean, var, (x - mean) / np.sqrt(var + eps) * s + b)
        )
        loops = right_plan(shape, strides_of(shape, order, 8), 8, reduced, varies)
        plain = ((x - mean) / np.sqrt(var + eps)).transpose(order).ravel()
        far = f", near {offset:,.0f}" if offset else ""
        for given, wanted, bare in (((scale, bias), expected, ""), ((None, None), plain, ", without scale and bias")):
            what = f"{name}{bare}{far}"
            got = parts(student.run(flat, *loops, *given, eps), 3, f"run of {what}")
            close(got[0], wanted, f"y of {what}", rtol=1e-7, atol=1e-8)
            close(got[1], means, f"mean of {what}", rtol=1e-10)
            close(got[2], variances, f"var of {what}", rtol=1e-7)


@LAB.check("13.3", "five norms over their loops", points=2, visible=True)
def runs(student: Any, rng: np.random.Generator) -> None:
    _runs(student, rng, NORMS, 0, 0.1)


@LAB.check("13.3", "large means, other orders")
def runs_odd(student: Any, rng: np.random.Generator) -> None:
    _runs(student, rng, ODD, FAR, 1e-2)


# 13.4

KERNELS = {
    "BatchNorm": "rows",
    "LayerNorm": "rows with parameters",
    "GroupNorm": "rows",
    "BatchNorm, channels-last": "columns",
    "BatchNorm, spatial=0": "columns",
}
KERNELS_ODD = {
    "LayerNorm of one sample": "rows with parameters",
    "GroupNorm, one scale a group": "rows",
    "BatchNorm of (N, C), transposed": "rows",
    "LayerNorm, the other way round": "columns",
    "LayerNorm without scale": "rows",
}


def _inner(student: Any, kernels: dict[str, str]) -> None:
    for name, kernel in kernels.items():
        shape, order, reduced, varies = (NORMS | ODD)[name]
        keep, reduce = right_plan(shape, strides_of(shape, order, 4), 4, reduced, varies)
        equal(student.inner(keep, reduce), kernel, f"inner({keep}, {reduce}), {name}")


def _lines(student: Any, cases: list[tuple[list[Ints], int]]) -> None:
    for reduce, itemsize in cases:
        grids = np.meshgrid(*[np.arange(count) * step for count, step, _ in reduce], indexing="ij")
        expected = len({int(place) * itemsize // 64 for place in np.ravel(sum(grids))}) if reduce else 1
        equal(student.lines_of_row(reduce, itemsize), expected, f"lines_of_row({reduce}, {itemsize})")


@LAB.check("13.4", "the kernel and the lines of five norms", visible=True)
def inner(student: Any, rng: np.random.Generator) -> None:
    _inner(student, KERNELS)
    _lines(student, [([(768, 1, 0)], 4), ([(32, 64, 0)], 4), ([(4, 300, 0), (50, 1, 0)], 4), ([(6, 4, 0)], 8)])


@LAB.check("13.4", "other norms, rows that share lines")
def inner_odd(student: Any, rng: np.random.Generator) -> None:
    _inner(student, KERNELS_ODD)
    equal(student.inner([(3, 1, 0)], []), "columns", "inner([(3, 1, 0)], [])")
    equal(student.inner([], []), "rows", "inner([], [])")
    _lines(
        student,
        [([(5, 7, 0), (3, 1, 0)], 8), ([(100, 3, 0)], 2), ([], 4), ([(17, 1, 1)], 4), ([(2, 16, 0), (16, 1, 0)], 4)],
    )


# 13.5


def _without_loops(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `forward` so that it gets a nest without loops, and the student has to plan the loops."""
    return lambda found, *others: forward(dataclasses.replace(found, keep=(), reduce=(), code=b""), *others)


def _layer(layer: str, x: Any, s: Any, b: Any, backend: Any) -> Any:
    array, scale, bias = from_numpy(x), tensor(s), tensor(b)  # with the order in memory that x has
    if layer == "layer_norm":
        return F.layer_norm(array, x.shape[2:], tensor(x[0, 0] + 1), tensor(x[0, 0]), backend=backend).array
    if layer == "group_norm":
        return F.group_norm(array, 2, scale, bias, backend=backend).array
    if layer.startswith("instance_norm"):
        return F.instance_norm(array, backend=backend).array
    return F.batch_norm(array, None, None, scale, bias, True, backend=backend).array


def _in_layers(student: Any, rng: np.random.Generator, layers: tuple[str, ...]) -> None:
    for layer in layers:
        x, s, b = rng.standard_normal((3, 4, 2, 5)), *rng.standard_normal((2, 4))
        if layer.endswith("channels-last"):
            x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
        backend = PartialBackend(forward=_without_loops(student.forward))
        expected = _layer(layer, x, s, b, None)
        close(
            _layer(layer, x, s, b, backend),
            expected,
            f"y of {layer} with your forward, x of shape {x.shape}",
            rtol=1e-8,
        )


@LAB.check("13.5", "your forward in BatchNorm", visible=True)
def in_batch_norm(student: Any, rng: np.random.Generator) -> None:
    _in_layers(student, rng, ("batch_norm", "batch_norm, channels-last"))


@LAB.check("13.5", "in Layer-, Group- and InstanceNorm")
def in_other_norms(student: Any, rng: np.random.Generator) -> None:
    _in_layers(student, rng, ("layer_norm", "group_norm", "group_norm, channels-last", "instance_norm"))


@functools.cache
def _library(seed: int) -> Any:
    return digits_network.losses(None, 8, seed)


@LAB.check("13.5", "the digits network trains as with the library", seconds=60)
def trains(student: Any, rng: np.random.Generator) -> None:
    seed = int(rng.integers(1000))
    got = digits_network.losses(PartialBackend(forward=_without_loops(student.forward)), 8, seed)
    close(got, _library(seed), "the losses of 8 steps with your forward", rtol=1e-6)


def _planner(function: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {"plan": function}


LAB.mutants(
    "13.6",
    _planner(right_plan),
    {
        "merged where scale is broadcast": _planner(mistakes.MergedAcrossBroadcast().plan),
        "steps in bytes": _planner(mistakes.StepsInBytes().plan),
        "kept and reduced swapped": _planner(mistakes.Swapped().plan),
        "axes of length 1 kept": _planner(mistakes.OnesKept().plan),
        "nothing merged": _planner(mistakes.NothingMerged().plan),
        "negative steps taken as positive ones": _planner(mistakes.SignDropped().plan),
    },
    visible=True,
)
LAB.provide("13.1", steps=right_steps)
LAB.provide("13.2", plan=right_plan)
LAB.provide("13.3", run=mistakes.Right().run)
LAB.recognizer = mistakes.RECOGNIZER
