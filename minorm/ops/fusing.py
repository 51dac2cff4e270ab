"""Functions that are applied again and again to arrays alone; what follows each other is one pass, to the same bits.

An `Application` is a Function with its options and the numbers of the registers that it reads and fills. `fused` takes
a list of them, in order, and puts together

- a convolution, the BatchNorm that alone reads its result, the Relu or Clip that alone reads that one's: applied to the
  sums before they are stored (kernels/epilogue.py). The weights stay as they are.
- maps that follow each other on one shape, as Add, Div, Erf, Add, Mul, Mul of a GELU behind a bias
  (kernels/cpu/chain.py).
- views of views: Reshape, Permute, Expand and slices, which move nothing.

This is for the CPU's arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

from minorm.devices import dtypes
from minorm.kernels.reference.chain import LONGEST, MOST_LINKS
from minorm.normalization.normalize import NormalizeWith
from minorm.ops.applications import VIEWS, Application, Chained, Convolved, Viewed, bounds_of, map_of
from minorm.ops.convolution import Convolution

FLOATS = (dtypes.float32, dtypes.float64)


class Values:
    """What is known of the registers of a plan: shapes, types, and how often each is read."""

    def __init__(
        self, applications: Sequence[Application], known: Mapping[int, tuple[Any, Any]], ends: Collection[int]
    ) -> None:
        self.known = known
        self.reads = Counter(register for application in applications for register in application.inputs)
        self.reads.update(ends)

    def shape(self, register: int) -> Any:
        return self.known[register][0]

    def dtype(self, register: int) -> Any:
        return self.known[register][1]


def fused(
    applications: Sequence[Application], known: Mapping[int, tuple[Any, Any]], ends: Collection[int]
) -> list[Application]:
    """The same with fewer passes. known: the shape and type of each register; ends: those that a run is asked for."""
    values = Values(applications, known, ends)
    return _with_views(_with_chains(_with_epilogues(applications, values), values), values)


# Convolutions


def _with_epilogues(applications: Sequence[Application], values: Values) -> list[Application]:
    reader = {register: application for application in applications for register in application.inputs}
    found: dict[int, Application] = {}  # by the id of the last part, in whose place it stands
    absorbed: set[int] = set()
    for application in applications:
        if application.kind is not Convolution or values.dtype(application.outputs[0]) not in FLOATS:
            continue
        parts = [application]
        for fits in (_is_norm, _is_bound):
            register = parts[-1].outputs[0]
            following = reader.get(register) if values.reads[register] == 1 else None
            if following is not None and following.inputs[0] == register and fits(following, values):
                parts.append(following)
        if len(parts) > 1:
            channels, dtype = values.shape(application.inputs[1])[0], values.dtype(application.outputs[0])
            found[id(parts[-1])] = Convolved(parts, channels, dtype)
            absorbed |= {id(part) for part in parts[:-1]}
    return [found.get(id(part), part) for part in applications if id(part) not in absorbed]


def _is_norm(application: Application, values: Values) -> bool:
    """Is it BatchNorm with one number a channel?"""
    if application.kind is not NormalizeWith or any(application.inputs[5:]):
        return False
    call, shape = application.options["call"], values.shape(application.inputs[0])
    return (
        call.compute_dtype is None
        and call.backend is None
        and call.axes == (0, *range(2, len(shape)))
        and all(values.shape(register) == shape[1:2] for register in application.inputs[1:5] if register)
    )


def _is_bound(application: Application, values: Values) -> bool:  # noqa: ARG001  as _is_norm
    return bounds_of(application) is not None


# Maps


def _with_chains(applications: Sequence[Application], values: Values) -> list[Application]:
    result: list[Application] = []
    at = 0
    while at < len(applications):
        parts = _chain_from(applications[at:], values)
        if len(parts) > 1:
            result.append(Chained(parts, values.shape(parts[0].outputs[0])))
        else:
            result.append(applications[at])
        at += max(1, len(parts))
    return result


def _chain_from(applications: Sequence[Application], values: Values) -> list[Application]:
    """The longest chain that begins here: each link reads one before it, and nobody else reads any but the last."""
    parts: list[Application] = []
    longest = 0
    inside: Counter[int] = Counter()
    for application in applications[:MOST_LINKS]:
        made = {part.outputs[0] for part in parts}
        if not _is_link(application, values, parts) or (parts and not made.intersection(application.inputs)):
            break
        parts.append(application)
        inside.update(application.inputs)
        if all(values.reads[part.outputs[0]] == inside[part.outputs[0]] for part in parts[:-1]):
            longest = len(parts)
    return parts[:longest]


def _is_link(application: Application, values: Values, parts: Sequence[Application]) -> bool:
    """Is it a map to the shape and type of those before, of whole operands, numbers, and rows that repeat?"""
    if map_of(application) is None:
        return False
    shape, dtype = values.known[application.outputs[0]]
    if not shape or dtype not in FLOATS or (parts and values.known[parts[0].outputs[0]] != (shape, dtype)):
        return False
    return all(
        values.dtype(register) == dtype and (values.shape(register) == shape or _repeats(values.shape(register), shape))
        for register in application.inputs
    )


def _repeats(shape: tuple[int, ...], along: tuple[int, ...]) -> bool:
    """Is it one number, or one row, that is the same along all axes but the last?"""
    size = prod(shape)
    return size == 1 or (size == shape[-1] == along[-1] <= LONGEST and len(shape) <= len(along))


# Views


def _with_views(applications: Sequence[Application], values: Values) -> list[Application]:
    """With each view after the one that it alone is a view of."""
    parts: dict[int, list[Application]] = {}  # by the register of the last result
    absorbed: set[int] = set()
    for application in applications:
        if application.kind in VIEWS:
            source = application.inputs[0]
            before = parts.get(source, []) if values.reads[source] == 1 else []
            parts[application.outputs[0]] = [*before, application]
            absorbed |= {id(part) for part in before}
    return [
        Viewed(parts[application.outputs[0]]) if application.kind in VIEWS else application
        for application in applications
        if id(application) not in absorbed
    ]
