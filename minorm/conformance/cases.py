"""Make the grid of cases that runtimes may get wrong, for every normalization in every version.

The list is the same in every process, so an index in the list is enough to name a case to another process.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from minorm.conformance.batch_norm_cases import batch_norm_cases
from minorm.conformance.case import Case, draw
from minorm.conformance.framework_cases import framework_cases
from minorm.devices.dtypes import bfloat16, float16, float32, float64

OFFSETS = (1e2, 3e3, 1e4, 1e6)


@functools.cache
def all_cases() -> tuple[Case, ...]:
    """Return all cases, operator by operator and old versions first; the cases for frameworks only are at the end."""
    return (
        *batch_norm_cases(),
        *(case for opset in (1, 6, 22) for case in instance_norm(opset)),
        *(case for opset in (18, 21) for case in group_norm(opset)),
        *layer_norm(),
        *rms_norm(),
        *(case for opset in (9, 13) for case in mean_variance_norm(opset)),
        *(case for opset in (1, 22) for case in lp_norm(opset)),
        *(case for opset in (1, 13) for case in lrn(opset)),
        *framework_cases(),
    )


def floats(bfloat16_too: bool) -> list[Any]:
    """Return float64 and float16, the types that each operator takes beside float32, and bfloat16 if asked for."""
    return [float64, float16, *[bfloat16] * bfloat16_too]


def instance_norm(opset: int) -> Iterator[Case]:
    """Yield the cases of InstanceNormalization in the version of `opset`.

    Version 1 takes only images, version 6 takes any rank, and version 22 also takes bfloat16.
    """
    extra: dict[str, Any] = {"consumed_inputs": [0, 0, 0]} if opset == 1 else {}

    def case(name: str, x: Any, offset: float = 0.0, **more: Any) -> Case:
        parameters = (draw(x.shape[1:2], x.dtype, seed=p) for p in "sb")
        return Case("InstanceNormalization", opset, name, (x, *parameters), {**extra, **more}, offset=offset)

    yield case("float32", draw((3, 4, 5, 6)))
    for dtype in floats(opset >= 22):
        yield case(str(dtype), draw((3, 4, 5, 6), dtype))
    for offset in OFFSETS:
        yield case(f"offset {offset:.0e}", draw((3, 4, 8, 8), offset=offset), offset)
    yield case("float16, offset 1e+02", draw((3, 4, 8, 8), float16, offset=100), 100)
    yield case("N = 1", draw((1, 4, 5, 6)))
    yield case("one position", draw((3, 4, 1, 1)))
    yield case("equal values", np.full((2, 3, 4, 5), 12345.678, np.float32))
    yield case("empty batch", draw((0, 4, 5, 6)))
    yield case("epsilon 1", draw((3, 4, 5, 6)), epsilon=1.0)
    yield case("epsilon 0", draw((3, 4, 5, 6)), epsilon=0.0)
    yield case("epsilon 1e-12, values 1e-4", draw((3, 4, 5, 6)) * np.float32(1e-4), epsilon=1e-12)
    yield case("values 1e20", draw((3, 4, 5, 6)) * np.float32(1e20))
    if opset > 1:
        yield case("rank 3", draw((3, 4, 7)))
        yield case("rank 5", draw((2, 3, 4, 3, 2)))


def group_norm(opset: int) -> Iterator[Case]:
    """Yield the cases of GroupNormalization in the version of `opset`.

    In version 18, scale and bias are per group. In version 21, they are per channel, and the node has a stash type.
    """

    def case(name: str, x: Any, groups: int = 2, offset: float = 0.0, **more: Any) -> Case:
        numbers = groups if opset < 21 else x.shape[1]
        parameters = (draw((numbers,), x.dtype, seed=p) for p in "sb")
        given = {"num_groups": groups, **more}
        return Case("GroupNormalization", opset, name, (x, *parameters), given, offset=offset)

    yield case("float32", draw((3, 6, 4, 5)))
    for dtype in floats(True):
        yield case(str(dtype), draw((3, 6, 4, 5), dtype))
    for offset in OFFSETS:
        yield case(f"offset {offset:.0e}", draw((3, 6, 8, 8), offset=offset), offset=offset)
    yield case("float16, offset 1e+02", draw((3, 6, 8, 8), float16, offset=100), offset=100)
    yield case("one group", draw((3, 6, 4, 5)), 1)
    yield case("a group a channel", draw((3, 6, 4, 5)), 6)
    yield case("N = 1", draw((1, 6, 4, 5)))
    yield case("one position, a group a channel", draw((3, 6, 1, 1)), 6)
    yield case("equal values", np.full((2, 6, 4, 5), 12345.678, np.float32))
    yield case("empty batch", draw((0, 6, 4, 5)))
    yield case("epsilon 1", draw((3, 6, 4, 5)), epsilon=1.0)
    yield case("epsilon 0", draw((3, 6, 4, 5)), epsilon=0.0)
    yield case("epsilon 1e-12, values 1e-4", draw((3, 6, 4, 5)) * np.float32(1e-4), epsilon=1e-12)
    yield case("values 1e20", draw((3, 6, 4, 5)) * np.float32(1e20))
    yield case("rank 3", draw((3, 6, 7)))
    yield case("rank 5", draw((2, 6, 4, 3, 2)))
    if opset >= 21:
        yield case("float64, stash float64", draw((3, 6, 4, 5), float64), stash_type=11)
        yield case("float32, stash float64", draw((3, 6, 4, 5)), stash_type=11)


def layer_norm() -> Iterator[Case]:
    """Yield cases of LayerNormalization 17, the only version.

    Scale and bias broadcast; mean and 1 / std are outputs.
    """

    def case(name: str, x: Any, axis: int = -1, offset: float = 0.0, shape: Any = None, **more: Any) -> Case:
        shape = x.shape[axis:] if shape is None else shape
        parameters = [draw(shape, x.dtype, seed=p) for p in "sb"][: more.pop("parameters", 2)]
        outputs = more.pop("outputs", ("y",))
        given = {"axis": axis, **more}
        return Case("LayerNormalization", 17, name, (x, *parameters), given, outputs, offset=offset)

    yield case("float32", draw((3, 4, 24)))
    for dtype in floats(True):
        yield case(str(dtype), draw((3, 4, 24), dtype))
    for offset in OFFSETS:
        yield case(f"offset {offset:.0e}", draw((3, 4, 64), offset=offset), offset=offset)
    yield case("float16, offset 1e+02", draw((3, 4, 64), float16, offset=100), offset=100)
    yield case("no bias", draw((3, 4, 24)), parameters=1)
    yield case("axis 1", draw((3, 4, 5, 6)), 1)
    yield case("axis 0", draw((3, 4, 5)), 0)
    yield case("axis -2", draw((3, 4, 5)), -2)
    yield case("scale broadcasts", draw((3, 4, 5)), 1, shape=(1, 5))
    yield case("scale of each row", draw((3, 4, 5)), -1, shape=(4, 5))
    yield case("mean and 1 / std", draw((3, 4, 24)), outputs=("y", "mean", "inverse"))
    yield case("mean and 1 / std, float16", draw((3, 4, 24), float16), outputs=("y", "mean", "inverse"))
    for offset in OFFSETS:
        x = draw((3, 4, 64), offset=offset)
        yield case(f"mean and 1 / std, offset {offset:.0e}", x, offset=offset, outputs=("y", "mean", "inverse"))
    yield case("float64, stash float64", draw((3, 4, 24), float64), stash_type=11)
    yield case("one element", draw((3, 4, 1)))
    yield case("equal values", np.full((2, 3, 24), 12345.678, np.float32))
    yield case("empty batch", draw((0, 4, 24)))
    yield case("epsilon 1", draw((3, 4, 24)), epsilon=1.0)
    yield case("epsilon 0", draw((3, 4, 24)), epsilon=0.0)
    yield case("epsilon 1e-12, values 1e-4", draw((3, 4, 24)) * np.float32(1e-4), epsilon=1e-12)
    yield case("values 1e20", draw((3, 4, 24)) * np.float32(1e20))


def rms_norm() -> Iterator[Case]:
    """Yield cases of RMSNormalization 23, the only version. It has no mean and no bias; y has the type of scale."""

    def case(name: str, x: Any, axis: int = -1, dtype: Any = None, shape: Any = None, **more: Any) -> Case:
        scale = draw(x.shape[axis:] if shape is None else shape, x.dtype if dtype is None else dtype, seed="s")
        return Case("RMSNormalization", 23, name, (x, scale), {"axis": axis, **more})

    yield case("float32", draw((3, 4, 24)))
    for dtype in floats(True):
        yield case(str(dtype), draw((3, 4, 24), dtype))
    yield case("float16 with scale of float32", draw((3, 4, 24), float16), dtype=float32)
    yield case("float16, values 300", draw((3, 4, 24), float16) * np.float16(300))
    yield case("axis 1", draw((3, 4, 5, 6)), 1)
    yield case("axis 0", draw((3, 4, 5)), 0)
    yield case("scale broadcasts", draw((3, 4, 5)), 1, shape=(1, 5))
    yield case("float64, stash float64", draw((3, 4, 24), float64), stash_type=11)
    yield case("offset 1e+06", draw((3, 4, 24), offset=1e6))
    yield case("one element", draw((3, 4, 1)))
    yield case("zeros", np.zeros((3, 4, 24), np.float32))
    yield case("empty batch", draw((0, 4, 24)))
    yield case("epsilon 1", draw((3, 4, 24)), epsilon=1.0)
    yield case("epsilon 0", draw((3, 4, 24)), epsilon=0.0)
    yield case("epsilon 1e-12, values 1e-4", draw((3, 4, 24)) * np.float32(1e-4), epsilon=1e-12)
    yield case("values 1e20", draw((3, 4, 24)) * np.float32(1e20))


def mean_variance_norm(opset: int) -> Iterator[Case]:
    """Yield the cases of MeanVarianceNormalization in the version of `opset`.

    Version 13 also takes bfloat16. Any axes are allowed, and constant data give 0.
    """

    def case(name: str, x: Any, offset: float = 0.0, **more: Any) -> Case:
        return Case("MeanVarianceNormalization", opset, name, (x,), more, offset=offset)

    yield case("float32", draw((3, 4, 5, 6)))
    for dtype in floats(opset >= 13):
        yield case(str(dtype), draw((3, 4, 5, 6), dtype))
    for offset in OFFSETS:
        yield case(f"offset {offset:.0e}", draw((3, 4, 8, 8), offset=offset), offset)
    yield case("float16, offset 1e+02", draw((3, 4, 8, 8), float16, offset=100), 100)
    yield case("axes 2 and 3", draw((3, 4, 5, 6)), axes=[2, 3])
    yield case("axes 1, 2 and 3", draw((3, 4, 5, 6)), axes=[1, 2, 3])
    yield case("axis 1 of 2", draw((3, 8)), axes=[1])
    yield case("axis -1 of 3", draw((3, 4, 8)), axes=[-1])
    yield case("N = 1", draw((1, 4, 5, 6)))
    yield case("equal values", np.full((2, 3, 4, 5), 12345.678, np.float32))
    yield case("one element", draw((1, 4, 1, 1)))
    yield case("empty batch", draw((0, 4, 5, 6)), axes=[2, 3])
    yield case("values 1e-8", draw((3, 4, 5, 6)) * np.float32(1e-8))
    yield case("values 1e20", draw((3, 4, 5, 6)) * np.float32(1e20))


def lp_norm(opset: int) -> Iterator[Case]:
    """Yield the cases of LpNormalization in the version of `opset`, with p = 1 and p = 2.

    Version 22 also takes bfloat16.
    """

    def case(name: str, x: Any, **more: Any) -> Case:
        return Case("LpNormalization", opset, name, (x,), more)

    for p in (1, 2):
        yield case(f"p = {p}", draw((3, 4, 5)), p=p)
        yield case(f"p = {p}, axis 1", draw((3, 4, 5)), p=p, axis=1)
        yield case(f"p = {p}, negative values", -np.abs(draw((3, 4, 5))), p=p)
        yield case(f"p = {p}, zeros", np.concatenate([np.zeros((1, 5), np.float32), draw((2, 5))]), p=p)
        for dtype in floats(opset >= 22):
            yield case(f"p = {p}, {dtype}", draw((3, 4, 5), dtype), p=p)
        yield case(f"p = {p}, values 1e20", draw((3, 4, 5)) * np.float32(1e20), p=p)
        yield case(f"p = {p}, values 1e-25", draw((3, 4, 5)) * np.float32(1e-25), p=p)
    yield case("defaults", draw((3, 4, 5)))
    yield case("float16, values 300", draw((3, 4, 5), float16) * np.float16(300), p=2)
    yield case("one axis", draw((6,)), axis=0)
    yield case("empty batch", draw((0, 4, 5)))


def lrn(opset: int) -> Iterator[Case]:
    """Yield the cases of LRN in the version of `opset`.

    Version 13 also takes bfloat16. N and C differ and alpha is large, so that a wrong window changes the result.
    """

    def case(name: str, x: Any, size: int, **more: Any) -> Case:
        given = {"alpha": 0.5, "beta": 0.75, "bias": 1.0, **more}
        return Case("LRN", opset, name, (x,), {"size": size, **given})

    for size in (1, 2, 3, 4, 5):
        yield case(f"size {size}", draw((2, 7, 3, 4)), size)
    yield case("more samples than channels", draw((7, 3, 2, 2)), 3)
    yield case("window wider than C", draw((2, 3, 4, 5)), 9)
    yield Case("LRN", opset, "defaults", (draw((2, 7, 3, 4)),), {"size": 3})
    for dtype in floats(opset >= 13):
        yield case(str(dtype), draw((2, 7, 3, 4), dtype), 3)
    yield case("bias 2, beta 0.5", draw((2, 7, 3, 4)), 3, bias=2.0, beta=0.5)
    yield case("values 1e10", draw((2, 7, 3, 4)) * np.float32(1e10), 3)
    yield case("N = 1", draw((1, 7, 3, 4)), 3)
    yield case("rank 3", draw((2, 7, 3)), 3)
    yield case("empty batch", draw((0, 7, 3, 4)), 3)
