"""Lab 0: checks the axes that each norm reduces, their masks, and loops over rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.calling.student import Failure
from minorm.labs.checks.mistakes import lab00_axes as mistakes
from minorm.labs.checks.variants.lab00_axes import V, placed, stepped
from minorm.labs.comparing import close, equal, true
from minorm.labs.lab import Lab
from minorm.normalization import nest

LAB = Lab(
    0,
    "lab00_axes",
    "Axes",
    "Which elements share one mean and one variance?",
    minutes=60,
    variants=V,
)
KEEPS = {"batch": (1,), "instance": (0, 1), "layer": (0,), "group": (0, 1)}


def _axes(kind: str, ndim: int) -> tuple[int, ...]:
    return tuple(i for i in range(ndim + (kind == "group")) if i not in KEEPS[kind])


@LAB.check("0.1", "axes of images", visible=True)
def axes_of_images(student: Any, rng: np.random.Generator) -> None:
    for kind in KEEPS:
        equal(student.reduced_axes(kind, 4), _axes(kind, 4), f'reduced_axes("{kind}", 4)')


@LAB.check("0.1", "axes of other ranks")
def axes_of_ranks(student: Any, rng: np.random.Generator) -> None:
    for kind in KEEPS:
        for ndim in (2, 3, 5, 6):
            equal(student.reduced_axes(kind, ndim), _axes(kind, ndim), f'reduced_axes("{kind}", {ndim})')


def _to_mask(axes: tuple[int, ...]) -> int:
    return sum(2**axis for axis in axes) << V.first_bit


def _to_axes(mask: int) -> tuple[int, ...]:
    return tuple(i for i, bit in enumerate(reversed(f"{mask >> V.first_bit:b}")) if bit == "1")


@LAB.check("0.2", "a mask of axes", visible=True)
def mask_of_axes(student: Any, rng: np.random.Generator) -> None:
    for axes in ((0, 2, 3), (1,), (), tuple(sorted(rng.choice(20, 5, replace=False).tolist()))):
        equal(student.to_mask(axes), _to_mask(axes), f"to_mask({axes})")


@LAB.check("0.2", "the axes of a mask", visible=True)
def axes_of_mask(student: Any, rng: np.random.Generator) -> None:
    for mask in (0b1101, 0, int(rng.integers(1, 1 << 30))):
        asked = mask << V.first_bit
        equal(student.to_axes(asked), _to_axes(asked), f"to_axes({asked:#b})")


@LAB.check("0.3", "groups of neighbours", visible=True)
def groups(student: Any, rng: np.random.Generator) -> None:
    for shape, count in (((2, 6, 4, 5), 3), ((3, 8), 2), ((2, 4, 3), 4), ((1, 6, 2, 2, 2), 1)):
        x = rng.standard_normal(shape)
        expected = np.stack(np.split(placed(x, count), count, axis=1), axis=1)
        equal(student.split_groups(x, count), expected, f"split_groups(x, {count}) of x with shape {shape}")


@LAB.check("0.3", "a wrong number of groups is refused")
def refuses_groups(student: Any, rng: np.random.Generator) -> None:
    for count in (4, 7):
        what = f"split_groups(x, {count}) of x with 6 channels"
        try:
            got = student.split_groups(np.zeros((2, 6, 3)), count)
        except Failure as failure:
            if failure.status != "error":
                raise
            said = "ValueError" in str(failure) and "cannot reshape array" not in str(failure)
            true(said, what, "your own ValueError that names both numbers", str(failure))
        else:
            true(False, what, "a ValueError", f"an array of shape {np.shape(got)}")


@LAB.check("0.4", "the row of an element", points=2, visible=True)
def row_of_element(student: Any, rng: np.random.Generator) -> None:
    for shape, axes in (((2, 3, 4), (0, 2)), ((2, 3, 4), (2,)), ((3, 2, 2, 3), (1, 2, 3)), ((4, 5), (0, 1))):
        index = tuple(int(rng.integers(n)) for n in shape)
        indices = np.indices(shape)
        expected = np.all([indices[i] == index[i] for i in range(len(shape)) if i not in axes], axis=0)
        expected = np.broadcast_to(expected, shape)
        equal(student.same_row(shape, axes, index), expected, f"same_row({shape}, {axes}, {index})")


def _loops(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    plan = nest.plan(shape, axes)
    keep, reduce = ([(loop.count, loop.data) for loop in loops] for loops in (plan.keep, plan.reduce))
    return stepped(keep), stepped(reduce)


@LAB.check("0.5", "the loops of the four norms", points=2, visible=True)
def loops_of_norms(student: Any, rng: np.random.Generator) -> None:
    for shape, axes in (
        ((2, 3, 4, 5), (0, 2, 3)),
        ((2, 3, 4, 5), (2, 3)),
        ((2, 3, 4, 5), (1, 2, 3)),
        ((2, 3, 2, 4, 5), (2, 3, 4)),
    ):
        equal(student.loops(shape, axes), _loops(shape, axes), f"loops({shape}, {axes})")


@LAB.check("0.5", "lengths of 1, no axes, all axes")
def loops_of_ones(student: Any, rng: np.random.Generator) -> None:
    for shape, axes in (
        ((2, 1, 4), (0, 2)),
        ((1, 3, 1, 1), (0, 2, 3)),
        ((5,), (0,)),
        ((3, 4), ()),
        ((2, 3, 4), (0, 1, 2)),
    ):
        equal(student.loops(shape, axes), _loops(shape, axes), f"loops({shape}, {axes})")


@LAB.check("0.5", "every set of axes of rank 5", points=2)
def loops_of_masks(student: Any, rng: np.random.Generator) -> None:
    shape = tuple(int(n) for n in rng.integers(1, 5, 5))
    for mask in range(32):
        axes = tuple(i for i in range(5) if mask >> i & 1)
        equal(student.loops(shape, axes), _loops(shape, axes), f"loops({shape}, {axes})")


@LAB.check("0.6", "positions of loops", visible=True)
def where_loops_go(student: Any, rng: np.random.Generator) -> None:
    for some in ([(3, 20)], [(2, 60), (4, 1)], [], [(2, 50), (3, 7), (2, 1)], [(3, 1), (2, 10)]):
        grids = np.meshgrid(*[np.arange(count) * step for count, step in some], indexing="ij")
        expected = tuple(int(p) for p in np.ravel(sum(grids))) if some else (0,)
        equal(student.positions(some), expected, f"positions({some})")


@LAB.check("0.6", "means by loops, every mask", points=2, visible=True)
def means(student: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 2, 1, 4))
    for mask in range(1, 16):
        axes = tuple(i for i in range(4) if mask >> i & 1)
        keep, reduce = _loops(x.shape, axes)
        expected = x.mean(axis=axes).ravel()
        close(student.means_by_loops(x.ravel(), keep, reduce), expected, f"means_by_loops over {axes} of {x.shape}")


@LAB.check("0.6", "your loops, your means", points=2)
def own_loops(student: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal(tuple(int(n) for n in rng.integers(2, 5, 4)))
    for mask in range(1, 16):
        axes = student.to_axes(mask << V.first_bit)
        keep, reduce = student.loops(x.shape, axes)
        got = student.means_by_loops(x.ravel(), keep, reduce)
        expected = x.mean(axis=tuple(i for i in range(4) if mask >> i & 1)).ravel()
        close(got, expected, f"means_by_loops(x.ravel(), *loops(x.shape, {tuple(axes)})), x.shape is {x.shape}")


LAB.provide("0.2", to_mask=_to_mask, to_axes=_to_axes)
LAB.provide("0.5", loops=_loops)
LAB.recognizer = mistakes.RECOGNIZER
