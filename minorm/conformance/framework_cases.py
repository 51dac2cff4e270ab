"""Make the cases that frameworks can compute, but no ONNX file can express: gradients, masks, averages over batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from minorm.conformance import batch_norm_cases
from minorm.conformance.case import CUMULATIVE, GRADIENTS, MASKED, Case, draw
from minorm.devices.dtypes import bfloat16, float16, float32, float64

OFFSETS = (1e2, 1e4, 1e6)
PREFIXES = ("gradients, ", "mask, ", "momentum None, ")  # prefixes of the names
TYPES = (float64, float16, bfloat16)
Forms = Iterator[tuple[str, Any, dict[str, Any]]]


def framework_cases() -> Iterator[Case]:
    """Yield every case, in the newest version of its operator."""
    for trains in (False, True):
        for name, x, more in _batch_forms(trains):
            mode = "training" if trains else "inference"
            yield _gradients(batch_norm_cases.build(15, f"{mode}, {name}", x, trains, **more))
    for name, x, more in _forms((3, 4, 5, 6), (3, 4, 1, 1), "one position"):
        yield _per_channel("InstanceNormalization", 22, name, x, more)
    for name, x, more in _forms((3, 6, 4, 5), (3, 6, 1, 1), "one position, a group a channel"):
        groups = {"num_groups": 6 if "a group a channel" in name else 2}
        yield _per_channel("GroupNormalization", 21, name, x, {**groups, **more})
    for name, x, more in _forms((3, 4, 24), (3, 4, 1), "one element"):
        yield _last_axes("LayerNormalization", 17, name, x, 2, more)
    yield _last_axes("LayerNormalization", 17, "axis 1", draw((3, 4, 5, 6)), 2, {"axis": 1})
    yield _last_axes("LayerNormalization", 17, "no bias", draw((3, 4, 24)), 1, {})
    for name, x, more in _forms((3, 4, 24), (3, 4, 1), "one element"):
        yield _last_axes("RMSNormalization", 23, name, x, 1, more)
    yield _last_axes("RMSNormalization", 23, "zeros", np.zeros((3, 4, 24), np.float32), 1, {})
    for p in (1, 2):
        yield _gradients(Case("LpNormalization", 22, f"p = {p}", (draw((3, 4, 5)),), {"p": p}))
    for size in (2, 3):
        attributes = {"size": size, "alpha": 0.5}
        yield _gradients(Case("LRN", 13, f"size {size}", (draw((2, 7, 3, 4)),), attributes))
    yield _gradients(Case("MeanVarianceNormalization", 13, "float32", (draw((3, 4, 5, 6)),)))
    yield from _masked()
    yield _cumulative("float32", draw((5, 3, 4, 6)))
    yield _cumulative("float64", draw((5, 3, 4, 6), float64))
    yield _cumulative("offset 1e+04", draw((5, 3, 8, 8), offset=1e4), 1e4)


def _gradients(case: Case) -> Case:
    y = draw(case.inputs[0].shape, case.inputs[0].dtype, seed="gradient")
    return dataclasses.replace(case, name=f"gradients, {case.name}", kind=GRADIENTS, beside=y, fetched=1)


def _forms(shape: tuple[int, ...], one: tuple[int, ...], one_name: str) -> Forms:
    """Yield (name, data, attributes) for the cases that all operators have.

    With the shape `one`, the statistics come from a single value; `one_name` is the name of this case.
    """
    yield "float32", draw(shape), {}
    for dtype in TYPES:
        yield str(dtype), draw(shape, dtype), {}
    for offset in OFFSETS:
        yield f"offset {offset:.0e}", draw(shape, offset=offset), {"offset": offset}
    yield one_name, draw(one), {}
    yield "equal values", np.full(shape, 12345.678, np.float32), {}
    yield "empty batch", draw((0, *shape[1:])), {}
    yield "epsilon 1", draw(shape), {"epsilon": 1.0}
    yield "epsilon 1e-12, values 1e-4", draw(shape) * np.float32(1e-4), {"epsilon": 1e-12}
    yield "values 1e20", draw(shape) * np.float32(1e20), {}


def _batch_forms(trains: bool) -> Forms:
    if trains:
        yield from _forms((4, 3, 5, 2), (1, 3, 1, 1), "one value a channel")
        yield "rank 2", draw((8, 3)), {}
        yield "N = 1", draw((1, 3, 5, 2)), {}
        return
    yield "float32", draw((4, 3, 5, 2)), {}
    for dtype in TYPES:
        yield str(dtype), draw((4, 3, 5, 2), dtype), {}
    yield "offset 1e+06", draw((4, 3, 5, 2), offset=1e6), {"offset": 1e6}
    yield "empty batch", draw((0, 3, 5, 2)), {}


def _per_channel(operator: str, opset: int, name: str, x: Any, more: dict[str, Any]) -> Case:
    parameters = (draw(x.shape[1:2], x.dtype, seed=p) for p in "sb")
    offset = more.pop("offset", 0.0)
    return _gradients(Case(operator, opset, name, (x, *parameters), more, offset=offset))


def _last_axes(operator: str, opset: int, name: str, x: Any, parameters: int, more: dict[str, Any]) -> Case:
    shape, offset = x.shape[more.get("axis", -1) :], more.pop("offset", 0.0)
    given = (draw(shape, x.dtype, seed=p) for p in "sb"[:parameters])
    return _gradients(Case(operator, opset, name, (x, *given), more, offset=offset))


def _masked() -> Iterator[Case]:
    """Yield cases with masks that exclude positions of some samples, as for sentences of different lengths."""
    for name, dtype, offset in (("float32", float32, 0.0), ("float64", float64, 0.0), ("offset 1e+04", float32, 1e4)):
        case = batch_norm_cases.build(
            15, name, draw((4, 3, 6), dtype, offset=offset), True, offset=offset, momentum=0.5
        )
        mask = np.arange(6) < np.array([[6], [3], [1], [4]])  # the length of each sample
        yield dataclasses.replace(case, name=f"mask, {name}", kind=MASKED, beside=mask)


def _cumulative(name: str, x: Any, offset: float = 0.0) -> Case:
    case = batch_norm_cases.build(15, name, x, True, offset=offset)
    return dataclasses.replace(case, name=f"momentum None, {name}", kind=CUMULATIVE)
