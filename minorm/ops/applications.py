"""Applications, which run Functions repeatedly on arrays. An Application runs one Function, or several in one pass.

`fusing.py` finds Functions that can run in one pass: a convolution and the Functions after it, chains of maps, views of
views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import numpy as np

from minorm.graph.graph import Function
from minorm.kernels.epilogue import epilogue
from minorm.kernels.protocol import Statistics
from minorm.kernels.reference.chain import Link
from minorm.kernels.select import as_array, backend
from minorm.normalization.normalize import NormalizeWith
from minorm.ops import activation, elementwise, special
from minorm.ops.convolution import Convolution
from minorm.ops.indexing import GetItem, viewing
from minorm.ops.matmul import MatMul
from minorm.ops.shape import Expand, Permute, Reshape

SMALL = 4096  # up to this size, arrays are compared as copied bytes


class Application:
    """One Function, with the numbers of the registers that the Function reads and fills.

    `dropped` are registers that no later Function reads. They are emptied after the Function has run.
    """

    __slots__ = ("dropped", "inputs", "kind", "needs", "options", "outputs")

    def __init__(
        self, kind: type[Function], inputs: tuple[int, ...], options: dict[str, Any], outputs: tuple[int, ...]
    ) -> None:
        self.kind, self.inputs, self.options, self.outputs = kind, inputs, options, outputs
        self.needs = (False,) * len(inputs)
        self.dropped: tuple[int, ...] = ()

    def compute(self, *arrays: Any) -> Any:
        """Return the result, or a tuple of several results."""
        function = self.kind()
        function.needs = self.needs
        return function.forward(*arrays, **self.options)

    def run(self, registers: list[Any]) -> None:
        """Fill the output registers from the input registers. Then empty the registers that no later Function reads."""
        result = self.compute(*[registers[i] for i in self.inputs])
        if type(result) is np.ndarray:
            registers[self.outputs[0]] = result
        else:
            for register, array in zip(self.outputs, result if type(result) is tuple else (result,), strict=True):
                registers[register] = array if type(array) is np.ndarray else as_array(array)
        for register in self.dropped:
            registers[register] = None

    def __repr__(self) -> str:
        return self.kind.__name__


class Convolved(Application):
    """A convolution, whose epilogue computes the Functions that follow the convolution."""

    __slots__ = ("bounds", "channels", "dtype", "equation", "known", "name")

    def __init__(self, parts: Sequence[Application], channels: int, dtype: Any) -> None:
        convolution, *_, last = parts
        norms = [part for part in parts if part.kind is NormalizeWith]
        statistics = norms[0].inputs[1:5] if norms else ()
        super().__init__(Convolution, convolution.inputs + statistics, convolution.options, last.outputs)
        self.equation = norms[0].options["call"].equation if norms else None
        self.bounds = bounds_of(last) or (None, None)
        self.channels, self.dtype = channels, dtype
        self.known: tuple[Any, Any] = (None, None)
        self.name = " + ".join(map(repr, parts))

    def compute(self, x: Any, w: Any, b: Any, *statistics: Any) -> Any:
        o = self.options
        table = self._table(statistics)
        return backend(x).conv.forward(x, w, b, o["stride"], o["padding"], o["dilation"], o["groups"], table)

    def _table(self, given: Sequence[Any]) -> Any:
        """Return the epilogue for the arrays mean, var, scale and bias. It is kept until one of these changes."""
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


class Affine(Application):
    """A matrix product, then the addition of a bias, and then a relu if there is one."""

    __slots__ = ("name", "relu")

    def __init__(self, parts: Sequence[Application]) -> None:
        product, add, *_ = parts
        [bias] = [register for register in add.inputs if register != product.outputs[0]]
        super().__init__(MatMul, (*product.inputs, bias), {}, parts[-1].outputs)
        self.relu = len(parts) > 2
        self.name = " + ".join(map(repr, parts))

    def compute(self, a: Any, b: Any, bias: Any) -> Any:
        return backend(a).matmul.affine(a, b, bias.reshape(-1), self.relu)

    def __repr__(self) -> str:
        return self.name


class Prepared(Application):
    """A Function on bytes. Its first `moving` arguments change in each run. All other arguments are prepared once, and
    again if they change.
    """

    __slots__ = ("known", "moving")

    def __init__(self, application: Application) -> None:
        super().__init__(application.kind, application.inputs, application.options, application.outputs)
        self.moving: int = application.kind.moving  # type: ignore[attr-defined]  # the number of arguments that change
        # The other arguments (copies of arrays that can change), and the function prepared from them.
        self.known: tuple[list[Any] | None, Any] = (None, None)

    def compute(self, *arrays: Any) -> Any:
        others = arrays[self.moving :]
        before, function = self.known
        if before is None or not all(map(_are_equal, before, others)):
            before = [x if x is None or not x.flags.writeable else x.copy() for x in others]
            function = self.kind.prepared(*arrays, **self.options)  # type: ignore[attr-defined]
            self.known = before, function
        return function(*arrays[: self.moving])


def _are_equal(a: Any, b: Any) -> bool:
    """Return True if two arrays are equal and have the same type and shape, or if both are None."""
    if a is b:  # the arrays that are kept cannot change
        return True
    if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(a.tobytes() == b.tobytes() if a.size <= SMALL else np.array_equal(a, b))


class Chained(Application):
    """A chain of maps that run one after the other."""

    __slots__ = ("links", "name", "shape")

    def __init__(self, parts: Sequence[Application], shape: tuple[int, ...]) -> None:
        made = {part.outputs[0] for part in parts}
        inputs = tuple(dict.fromkeys(r for part in parts for r in part.inputs if r not in made))
        super().__init__(Function, inputs, {}, parts[-1].outputs)
        source = {register: i for i, register in enumerate((*inputs, *(part.outputs[0] for part in parts)))}
        links = []
        for part in parts:
            operation, option = map_of(part) or ("", None)
            b = source[part.inputs[1]] if len(part.inputs) > 1 else None
            links.append(Link(operation, source[part.inputs[0]], b, option))
        self.links, self.shape = tuple(links), shape
        self.name = " + ".join(map(repr, parts))

    def compute(self, *arrays: Any) -> Any:
        return backend(arrays[0]).chain.chain(self.links, arrays, self.shape)

    def __repr__(self) -> str:
        return self.name


class Viewed(Application):
    """A chain of views. Each view is a view of the one before."""

    __slots__ = ("name", "steps")

    def __init__(self, parts: Sequence[Application]) -> None:
        super().__init__(Function, parts[0].inputs, {}, parts[-1].outputs)
        self.steps = [VIEWS[part.kind](part.options) for part in parts]
        self.name = " + ".join(map(repr, parts))

    def run(self, registers: list[Any]) -> None:
        array = registers[self.inputs[0]]
        for step, how in self.steps:
            array = step(array, how)
        registers[self.outputs[0]] = array
        for register in self.dropped:
            registers[register] = None

    def __repr__(self) -> str:
        return self.name


def bounds_of(application: Application) -> tuple[float | None, float | None] | None:
    """Return the lower and the upper bound of an activation that only clips. For other Functions, return None."""
    if application.kind is activation.Relu:
        return 0.0, None
    if application.kind is activation.Relu6:
        return 0.0, 6.0
    if application.kind is elementwise.Clip:
        low, high = application.options["low"], application.options["high"]
        return (low, high) if low is not None and high is not None and low <= high else None
    return None


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


def map_of(application: Application) -> tuple[str, float | None] | None:
    """Return the map that a Function computes, and the map's option. If the Function is not a map, return None."""
    rule = MAPS.get(application.kind)
    return None if rule is None else rule(application.options)


VIEWS: dict[type[Function], Callable[[dict[str, Any]], tuple[Callable[..., Any], Any]]] = {
    Reshape: lambda options: (np.ndarray.reshape, options["shape"]),
    Permute: lambda options: (np.ndarray.transpose, options["order"]),
    Expand: lambda options: (np.broadcast_to, options["shape"]),
    GetItem: lambda options: (getitem, viewing(options["index"])),
}
