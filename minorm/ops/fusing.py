"""Fuses Functions that run repeatedly on arrays into fewer passes, with bit-identical results.

An `Application` is a Function with its options and the numbers of the registers that it reads and fills. `fused` takes
a list of Applications, in the order in which they run, and combines

- a convolution, a BatchNorm of its result, and a Relu or Clip of the BatchNorm's result, if nothing else reads these
  results. BatchNorm and Relu are applied to the sums before these are stored (kernels/epilogue.py), or, for 16-bit
  floats, in one pass after the convolution. The weights do not change.
- a product with a matrix, the addition of a row to its result, and a Relu of the sum, but not for 16-bit floats.
- maps that follow each other on one shape, such as the Add, Div, Erf, Add, Mul, Mul of a GELU after a bias
  (kernels/cpu/chain.py).
- the preparation of weights and scales for a product or sum of bytes, which runs once, and again if these change.
- views of views: Reshape, Permute, Expand and slices, which move no data.

This module works on arrays on the CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Any

from minorm.devices import dtypes
from minorm.kernels.reference.chain import LONGEST, MOST_LINKS
from minorm.normalization.normalize import NormalizeWith
from minorm.ops import activation, elementwise
from minorm.ops.applications import VIEWS, Affine, Application, Chained, Convolved, Prepared, Viewed, bounds_of, map_of
from minorm.ops.convolution import Convolution
from minorm.ops.matmul import MatMul
from minorm.ops.quantization import IntegerConvolution, IntegerMatMul, QuantizedAdd, ToIntegers

ON_BYTES = (IntegerConvolution, IntegerMatMul, QuantizedAdd)
FUSED_PRODUCTS = (dtypes.float32, dtypes.float64)  # 16-bit floats are rounded between the product and its bias


class Values:
    """Facts about the registers of a plan: their shapes and types, which registers change from run to run, and how
    often each register is read.
    """

    def __init__(
        self,
        applications: Sequence[Application],
        known: Mapping[int, tuple[Any, Any]],
        ends: Collection[int],
        inputs: Collection[int],
    ) -> None:
        self.known = known
        self.moving = {*inputs, *(register for application in applications for register in application.outputs)}
        self.reads = Counter(register for application in applications for register in application.inputs)
        self.reads.update(ends)

    def shape(self, register: int) -> Any:
        return self.known[register][0]

    def dtype(self, register: int) -> Any:
        return self.known[register][1]


def fused(
    applications: Sequence[Application],
    known: Mapping[int, tuple[Any, Any]],
    ends: Collection[int],
    inputs: Collection[int] = (),
) -> list[Application]:
    """Return applications that compute the same results in fewer passes.

    known     the shape and type of each register
    ends      the registers that a run returns
    inputs    the registers that the caller of a run fills; all other given registers belong to the graph
    """
    values = Values(applications, known, ends, inputs)
    for fuse in (_with_prepared_weights, _with_epilogues, _with_biases, _with_chains, _with_views):
        applications = fuse(applications, values)
    return list(applications)


# Followers

Fits = Callable[[Application, Values], bool]


def _with_followers(
    applications: Sequence[Application],
    values: Values,
    begins: Fits,
    follow: Sequence[Fits],
    make: Callable[[Sequence[Application]], Application | None],
) -> list[Application]:
    """Combine each application that fits `begins` with the applications after it that fit `follow`, in this order. No
    other application may read the results in between.

    make    returns the combined application, which runs in the position of the last part, or None to combine nothing
    """
    reader = {register: application for application in applications for register in application.inputs}
    found: dict[int, Application] = {}  # by the id of the last part, which it replaces
    absorbed: set[int] = set()
    for application in applications:
        if not begins(application, values):
            continue
        parts = [application]
        for fits in follow:
            register = parts[-1].outputs[0]
            following = reader.get(register) if values.reads[register] == 1 else None
            if following is not None and register in _read(following) and fits(following, values):
                parts.append(following)
        together = make(parts) if len(parts) > 1 else None
        if together is not None:
            found[id(parts[-1])] = together
            absorbed |= {id(part) for part in parts[:-1]}
    return [found.get(id(part), part) for part in applications if id(part) not in absorbed]


def _read(application: Application) -> tuple[int, ...]:
    """Return the registers in which the application may read the result of the application that it follows.

    For a sum these are the registers of both arguments; otherwise it is only the register of the first argument.
    """
    return application.inputs if application.kind is elementwise.Add else application.inputs[:1]


# Integers


def _with_prepared_weights(applications: Sequence[Application], values: Values) -> list[Application]:
    """Prepare the constant arguments of Functions on bytes. These arguments belong to the graph, so once is enough."""
    weights = Counter(register for part in applications if part.kind in ON_BYTES for register in _held(part))
    moving, result = set(values.moving), []
    for part in applications:
        rounds = part.kind is ToIntegers and weights[part.outputs[0]] == values.reads[part.outputs[0]]
        if (rounds or part.kind in ON_BYTES) and moving.isdisjoint(_held(part)):
            part = Prepared(part)
            moving.difference_update(part.outputs if rounds else ())  # the same array in each run
        result.append(part)
    return result


def _held(application: Application) -> tuple[int, ...]:
    """Return the registers of the arguments that a Function on bytes can prepare, which are all but the first ones."""
    return application.inputs[application.kind.moving :]  # type: ignore[attr-defined]


# Convolutions


def _with_epilogues(applications: Sequence[Application], values: Values) -> list[Application]:
    def together(parts: Sequence[Application]) -> Application | None:
        convolution = parts[0]
        channels, dtype = values.shape(convolution.inputs[1])[0], values.dtype(convolution.outputs[0])
        return Convolved(parts, channels, dtypes.compute_type(dtype))

    return _with_followers(applications, values, _is_convolution, (_is_norm, _is_bound), together)


def _is_convolution(application: Application, values: Values) -> bool:
    return application.kind is Convolution and dtypes.is_float(values.dtype(application.outputs[0]))


def _is_norm(application: Application, values: Values) -> bool:
    """Return True if the application is a BatchNorm with one number per channel."""
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


# Products


def _with_biases(applications: Sequence[Application], values: Values) -> list[Application]:
    def together(parts: Sequence[Application]) -> Application | None:
        product, add = parts[:2]
        fits = add.kind is elementwise.Add and values.shape(product.outputs[0]) == values.shape(add.outputs[0])
        return Affine(parts) if fits else None

    return _with_followers(applications, values, _is_product, (_is_bias, _is_relu), together)


def _is_product(application: Application, values: Values) -> bool:
    """Return True if the application multiplies rows by one matrix."""
    if application.kind is not MatMul or values.dtype(application.outputs[0]) not in FUSED_PRODUCTS:
        return False
    a, b = (values.shape(register) for register in application.inputs)
    return len(a) > 1 and len(b) == 2 and b[1] > 1


def _is_bias(application: Application, values: Values) -> bool:
    """Return True if the application adds the same row to all rows."""
    shape, dtype = values.known[application.outputs[0]]
    others = [register for register in application.inputs if values.shape(register) != shape]
    return (
        application.kind is elementwise.Add
        and len(others) == 1
        and values.dtype(others[0]) == dtype
        and _is_row(values.shape(others[0]), shape)
    )


def _is_relu(application: Application, values: Values) -> bool:  # noqa: ARG001  as the others
    return application.kind is activation.Relu


# Maps


def _with_chains(applications: Sequence[Application], values: Values) -> list[Application]:
    result: list[Application] = []
    at = 0
    while at < len(applications):
        parts = _chain_from(applications[at:], values)
        if len(parts) > 1 or any(_is_broadcast_of_halves(part, values) for part in parts):
            result.append(Chained(parts, values.shape(parts[0].outputs[0])))
        else:
            result.append(applications[at])
        at += max(1, len(parts))
    return result


def _chain_from(applications: Sequence[Application], values: Values) -> list[Application]:
    """Return the longest chain that begins with the first application. Each link reads the result of an earlier link.
    Only the result of the last link may be read outside the chain.
    """
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
    """Return True if the application is a map that keeps the shape and type of `parts`. Each operand must have this
    shape, or be one number, or be a row that repeats.
    """
    if map_of(application) is None:
        return False
    shape, dtype = values.known[application.outputs[0]]
    if not shape or not dtypes.is_float(dtype) or (parts and values.known[parts[0].outputs[0]] != (shape, dtype)):
        return False
    return all(
        values.dtype(register) == dtype and (values.shape(register) == shape or _repeats(values.shape(register), shape))
        for register in application.inputs
    )


def _is_broadcast_of_halves(application: Application, values: Values) -> bool:
    """Return True if the application is a map of 16-bit floats for which NumPy would have to broadcast an operand. In
    one pass of a chain, such a map is many times as fast.
    """
    shape, dtype = values.known[application.outputs[0]]
    return dtype in dtypes.HALVES and any(values.shape(register) != shape for register in application.inputs)


def _repeats(shape: tuple[int, ...], along: tuple[int, ...]) -> bool:
    """Return True if an array of this shape is one number, or one row that repeats along all other axes of `along`."""
    return prod(shape) == 1 or (_is_row(shape, along) and along[-1] <= LONGEST)


def _is_row(shape: tuple[int, ...], along: tuple[int, ...]) -> bool:
    return 0 < len(shape) <= len(along) and prod(shape) == shape[-1] == along[-1]


# Views


def _with_views(applications: Sequence[Application], values: Values) -> list[Application]:
    """Join each view with the views before it, if nothing else reads the views in between."""
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
