"""Functions that are applied again and again to arrays alone; what follows each other is one pass, to the same bits.

An `Application` is a Function with its options and the numbers of the registers that it reads and fills. `fused` takes
a list of them, in order, and puts together

- a convolution, the BatchNorm that alone reads its result, the Relu or Clip that alone reads that one's: applied to the
  sums before they are stored (kernels/epilogue.py). The weights stay as they are.
- maps that follow each other on one shape, as Add, Div, Erf, Add, Mul, Mul of a GELU behind a bias
  (kernels/cpu/chain.py).

This is for the CPU's arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.graph.graph import Function
from minorm.kernels.epilogue import epilogue
from minorm.kernels.protocol import Statistics
from minorm.kernels.reference.chain import LONGEST, MOST_LINKS, Link
from minorm.kernels.select import as_array, backend
from minorm.normalization.normalize import NormalizeWith
from minorm.ops import activation, elementwise, special
from minorm.ops.convolution import Convolution

FLOATS = (dtypes.float32, dtypes.float64)


class Application:
    """One Function that a run applies: which registers it reads, which it fills, and which nobody reads after it."""

    __slots__ = ("dropped", "inputs", "kind", "needs", "options", "outputs")

    def __init__(
        self, kind: type[Function], inputs: tuple[int, ...], options: dict[str, Any], outputs: tuple[int, ...]
    ) -> None:
        self.kind, self.inputs, self.options, self.outputs = kind, inputs, options, outputs
        self.needs = (False,) * len(inputs)
        self.dropped: tuple[int, ...] = ()

    def compute(self, *arrays: Any) -> Any:
        """The result, or a tuple of several."""
        function = self.kind()
        function.needs = self.needs
        return function.forward(*arrays, **self.options)

    def run(self, registers: list[Any]) -> None:
        """Fill the outputs' registers from the inputs', and empty those that nobody reads after it."""
        result = self.compute(*[registers[i] for i in self.inputs])
        for register, array in zip(self.outputs, result if type(result) is tuple else (result,), strict=True):
            registers[register] = array if type(array) is np.ndarray else as_array(array)
        for register in self.dropped:
            registers[register] = None

    def __repr__(self) -> str:
        return self.kind.__name__


class Convolved(Application):
    """A convolution with what follows it as its epilogue."""

    __slots__ = ("bounds", "channels", "dtype", "equation", "known", "name")

    def __init__(self, parts: Sequence[Application], channels: int, dtype: Any) -> None:
        convolution, *_, last = parts
        norms = [part for part in parts if part.kind is NormalizeWith]
        statistics = norms[0].inputs[1:5] if norms else ()
        super().__init__(Convolution, convolution.inputs + statistics, convolution.options, last.outputs)
        self.equation = norms[0].options["call"].equation if norms else None
        self.bounds = _bounds(last) or (None, None)
        self.channels, self.dtype = channels, dtype
        self.known: tuple[Any, Any] = (None, None)
        self.name = " + ".join(map(repr, parts))

    def compute(self, x: Any, w: Any, b: Any, *statistics: Any) -> Any:
        o = self.options
        table = self._table(statistics)
        return backend(x).conv.forward(x, w, b, o["stride"], o["padding"], o["dilation"], o["groups"], table)

    def _table(self, given: Sequence[Any]) -> Any:
        """The epilogue of these arrays: mean, var, scale, bias. It is kept until one of them has other bytes."""
        key = tuple([None if x is None else x.tobytes() for x in given])
        before, table = self.known
        if key != before:
            stats = s = b = None
            if self.equation is not None:
                mean, var, s, b = given
                stats = Statistics.given(mean, var, self.equation, self.dtype)
            table = epilogue(self.channels, self.dtype, stats, s, b, *self.bounds)
            self.known = key, table
        return table

    def __repr__(self) -> str:
        return self.name


class Chained(Application):
    """Maps, one after the other."""

    __slots__ = ("links", "name", "shape")

    def __init__(self, parts: Sequence[Application], shape: tuple[int, ...]) -> None:
        made = {part.outputs[0] for part in parts}
        inputs = tuple(dict.fromkeys(r for part in parts for r in part.inputs if r not in made))
        super().__init__(Function, inputs, {}, parts[-1].outputs)
        source = {register: i for i, register in enumerate((*inputs, *(part.outputs[0] for part in parts)))}
        links = []
        for part in parts:
            operation, option = _map_of(part) or ("", None)
            b = source[part.inputs[1]] if len(part.inputs) > 1 else None
            links.append(Link(operation, source[part.inputs[0]], b, option))
        self.links, self.shape = tuple(links), shape
        self.name = " + ".join(map(repr, parts))

    def compute(self, *arrays: Any) -> Any:
        return backend(arrays[0]).chain.chain(self.links, arrays, self.shape)

    def __repr__(self) -> str:
        return self.name


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
    return _with_chains(_with_epilogues(applications, values), values)


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
    return _bounds(application) is not None


def _bounds(application: Application) -> tuple[float | None, float | None] | None:
    """What an activation cuts off below and above; None where it does anything else."""
    if application.kind is activation.Relu:
        return 0.0, None
    if application.kind is activation.Relu6:
        return 0.0, 6.0
    if application.kind is elementwise.Clip:
        low, high = application.options["low"], application.options["high"]
        return (low, high) if low is not None and high is not None and low <= high else None
    return None


# Maps

MAPS: dict[type[Function], Callable[[dict[str, Any]], tuple[str, float | None]]] = {
    elementwise.Add: lambda _: ("add", None),
    elementwise.Sub: lambda _: ("sub", None),
    elementwise.Mul: lambda _: ("mul", None),
    elementwise.Div: lambda _: ("div", None),
    elementwise.Exp: lambda _: ("exp", None),
    special.Erf: lambda _: ("erf", None),
    activation.Relu: lambda _: ("relu", None),
    activation.Relu6: lambda _: ("relu6", None),
    activation.LeakyRelu: lambda options: ("leaky_relu", options["slope"]),
    activation.Sigmoid: lambda _: ("sigmoid", None),
    activation.Tanh: lambda _: ("tanh", None),
    activation.Silu: lambda _: ("silu", None),
    activation.Hardswish: lambda _: ("hardswish", None),
    activation.Gelu: lambda options: ("gelu" if options["approximate"] == "none" else "gelu_tanh", None),
}


def _map_of(application: Application) -> tuple[str, float | None] | None:
    """The map that it is, and its option."""
    rule = MAPS.get(application.kind)
    return None if rule is None else rule(application.options)


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
    if _map_of(application) is None:
        return False
    shape, dtype = values.known[application.outputs[0]]
    if not shape or dtype not in FLOATS or (parts and values.known[parts[0].outputs[0]] != (shape, dtype)):
        return False
    return all(
        values.dtype(register) == dtype
        and (values.shape(register) in (shape, (), shape[-1:]) or prod(values.shape(register)) == 1)
        and (values.shape(register) != shape[-1:] or shape[-1] <= LONGEST)
        for register in application.inputs
    )
