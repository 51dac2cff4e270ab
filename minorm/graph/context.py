"""Function as users write it: on arrays, as the library's own are, or in PyTorch's form, told apart by the signature.

    forward(self, x), backward(self, dy)                  on arrays; what backward needs is kept on self
    @staticmethod forward(ctx, x), backward(ctx, dy)      on Tensors; ctx.save_for_backward(x) keeps it

In PyTorch's form forward runs without a graph. Its `backward` is written with Tensors, so it serves both walks: without
a graph for backward(), recorded for create_graph=True.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.graph import graph
from minorm.graph.grad_mode import mode, no_grad
from minorm.graph.graph import is_tensor
from minorm.support.argument_errors import kind_of
from minorm.support.documented import documented


@documented({}, needs="whether each argument of forward wants a gradient")
class Context:
    """What forward leaves for backward: `ctx`. Attributes of any other name may be set on it as well.

    needs_input_grad  whether each argument of forward wants a gradient
    """

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self._to_save: tuple[Any, ...] = ()
        self._saved: list[tuple[Any, int | None]] = []  # a Tensor, or the elements of output i and i
        self._dirty: tuple[Any, ...] = ()
        self._constant: tuple[Any, ...] = ()
        self._materialize = True
        self._node: Any = None  # while backward runs

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep inputs, outputs or other Tensors for backward, where they are `ctx.saved_tensors`; None stays None.

        Changing one in place before backward is an error.
        """
        for i, tensor in enumerate(tensors):
            if tensor is not None and not is_tensor(tensor):
                raise TypeError(
                    f"save_for_backward: argument {i} is {kind_of(tensor)}; expected Tensors; "
                    "keep others as attributes: ctx.name = value"
                )
        self._to_save = tensors

    def mark_non_differentiable(self, *outputs: Any) -> None:
        """Say that these outputs do not require grad."""
        self._constant = outputs

    def mark_dirty(self, *inputs: Any) -> None:
        """Say that forward has changed these inputs in place; it returns them, too."""
        self._dirty = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """False gives backward None for an output without a gradient, where it would get zeros otherwise."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What save_for_backward was given, as Tensors of the graph."""
        return tuple([tensor if i is None else self._output(tensor, i) for tensor, i in self._saved])

    def _output(self, tensor: Any, i: int) -> Any:
        return tensor if self._node is None else self._node.output(tensor.array, tensor, i)


class Node(graph.Function):
    """One call of a Function in PyTorch's form; a subclass of the same name for each."""

    kind: Any  # the Function
    ctx: Context
    forms: tuple[Any, ...]  # shape and type of each output; None for what is no Tensor
    make: Callable[..., Any]  # a Tensor of an array

    def backward(self, *gradients: Any) -> Any:
        given = [None if dy is None else self.make(dy) for dy in gradients]
        with no_grad():
            return tuple([None if dx is None else dx.array for dx in self.gradient(*given)])

    def gradient(self, *gradients: Any) -> Any:
        if not isinstance(inspect.getattr_static(self.kind, "backward"), staticmethod):
            raise NotImplementedError(
                f"{self.kind.__name__} has no backward; expected a static backward(ctx, *gradients)"
            )
        like = next(dy for dy in gradients if dy is not None)
        given = list(gradients)
        if self.ctx._materialize:
            for i, form in enumerate(self.forms):
                if given[i] is None and form is not None:
                    given[i] = self.make(np.zeros_like(like.array, form[1], shape=(1, *form[0]))[0, ...])
        self.ctx._node = self
        try:
            results = self.kind.backward(self.ctx, *given)
        finally:
            self.ctx._node = None
        return self._checked(results if isinstance(results, tuple) else (results,))

    def _checked(self, results: tuple[Any, ...]) -> tuple[Any, ...]:
        count, name = len(self.needs), self.kind.__name__
        if len(results) < count or any(dx is not None for dx in results[count:]):
            raise RuntimeError(
                f"{name}.backward: returned {len(results)} gradients; expected {count}, one for each argument of "
                "forward, None for one that is no Tensor"
            )
        for i, dx in enumerate(results[:count]):
            if dx is not None and not is_tensor(dx):
                raise TypeError(f"{name}.backward: gradient {i} is {kind_of(dx)}; expected a Tensor or None")
        return results[:count]


@documented({})
class Function(graph.Function):
    """A custom differentiable operation, with `forward` and `backward`; `apply` runs it.

    On arrays: forward(self, *arrays, **options) keeps what backward(self, *gradients) needs on self. A third method,
    gradient(self, *gradients), written with Tensors, makes it differentiable twice.

    As in PyTorch: forward(ctx, ...) and backward(ctx, *gradients) are static methods on Tensors; ctx has
    save_for_backward, saved_tensors, needs_input_grad, mark_non_differentiable, mark_dirty, set_materialize_grads. Or
    forward(...) without ctx, and setup_context(ctx, inputs, output) after it. It is differentiable as often as its
    backward is.

    Example:
        >>> class Cube(mn.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x * x
        ...
        ...     @staticmethod
        ...     def backward(ctx, dy):
        ...         (x,) = ctx.saved_tensors
        ...         return dy * 3 * x * x
        >>> x = mn.tensor(2.0, requires_grad=True)
        >>> (slope,) = mn.autograd.grad(Cube.apply(x), x, create_graph=True)
        >>> slope.item(), mn.autograd.grad(slope, x)[0].item()
        (12.0, 12.0)
    """

    is_static = False  # whether it has PyTorch's form
    node: type[Node]  # then: its calls

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        methods = {name: inspect.getattr_static(cls, name, None) for name in ("forward", "backward")}
        cls.is_static = isinstance(methods["forward"], staticmethod)
        if cls.is_static:
            cls.node = type(cls.__name__, (Node,), {"kind": cls})
        elif isinstance(methods["backward"], staticmethod):
            raise TypeError(
                f"{cls.__name__}: backward is a static method and forward is not; expected forward(ctx, *tensors) "
                "and backward(ctx, *gradients), or neither, forward(self, *arrays) and backward(self, *gradients)"
            )

    @classmethod
    def apply(cls, *inputs: Any, **options: Any) -> Any:
        """Run forward and, where a gradient is wanted, join the graph."""
        if not cls.is_static:
            return super().apply(*inputs, **options)
        if options:
            raise TypeError(
                f"{cls.__name__}.apply: got {', '.join(options)} by name; expected all arguments by position"
            )
        return _applied(cls, inputs)


def _applied(kind: Any, arguments: tuple[Any, ...]) -> Any:
    """Run a Function of PyTorch's form."""
    node = kind.node()
    inputs = tuple([a if is_tensor(a) else None for a in arguments])
    node.needs = tuple([x is not None and mode.recording and x._requires_grad for x in inputs])
    ctx = node.ctx = Context(node.needs)
    with no_grad():
        if hasattr(kind, "setup_context"):
            result = kind.forward(*arguments)
            kind.setup_context(ctx, arguments, result)
        else:
            result = kind.forward(ctx, *arguments)
    if True not in node.needs:
        return result
    results = result if isinstance(result, tuple) else (result,)
    node._connect(inputs, ())
    constant, dirty = {*map(id, ctx._constant)}, {*map(id, ctx._dirty)}
    outputs = [
        _joined(kind, node, y, i, id(y) in dirty) if is_tensor(y) and id(y) not in constant else y
        for i, y in enumerate(results)
    ]
    node.outputs = len(outputs)
    node.forms = tuple([(y.shape, y.dtype) if is_tensor(y) else None for y in outputs])
    node.make = next(x for x in inputs if x is not None).from_array
    _save(node, inputs, results, outputs)
    ctx._dirty = ctx._constant = ()
    return tuple(outputs) if isinstance(result, tuple) else outputs[0]


def _joined(kind: Any, node: Node, y: Any, i: int, dirty: bool) -> Any:
    """Output i as a Tensor of the graph: the input itself, where it was changed in place."""
    if not dtypes.is_float(y.dtype):
        return y
    if not dirty:
        output = y.from_array(y.array, node, i)
        output.version = y.version
        return output
    if y.requires_grad and y.creator is None:
        raise RuntimeError(f"{kind.__name__}.apply: changes a leaf that requires grad in place; expected x.clone()")
    y._requires_grad, y.creator, y.output_index = True, node, i
    return y


def _save(node: Node, inputs: tuple[Any, ...], results: tuple[Any, ...], outputs: list[Any]) -> None:
    """Keep what was saved, an output apart from the graph, which it would hold; and watch for changes in place."""
    ctx, watched = node.ctx, []
    places = {id(x): i for i, x in enumerate(inputs) if x is not None}
    made = {id(y): i for i, y in enumerate(results) if is_tensor(y)} | {id(y): i for i, y in enumerate(outputs)}
    for tensor in ctx._to_save:
        i = made.get(id(tensor)) if id(tensor) not in places or tensor.creator is node else None
        if tensor is None:
            ctx._saved.append((None, None))
        elif i is None:
            ctx._saved.append((tensor, None))
            watched.append((tensor.version, tensor.version.count, places.get(id(tensor), len(inputs))))
        else:
            ctx._saved.append((tensor.detach(), i if outputs[i].creator is node else None))
            watched.append((tensor.version, tensor.version.count, ~i))
    node.watched, ctx._to_save = watched, ()


class _Once(graph.Function):
    """The first input, a gradient that depends on the others and must not be differentiated."""

    def forward(self, gradient: Any, *_: Any, name: str) -> Any:
        self.name = name
        return gradient

    def backward(self, *_: Any) -> Any:
        raise RuntimeError(
            f"{self.name}: its backward is marked once_differentiable, and its gradient was to be differentiated; "
            "expected create_graph=False"
        )

    gradient = backward


@documented({}, backward="a static backward(ctx, *gradients)")
def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward whose result is not to be differentiated: it runs without a graph, and the attempt raises.

    It stands below @staticmethod.

    Example:
        >>> class Double(mn.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x * 2
        ...
        ...     @staticmethod
        ...     @mn.autograd.once_differentiable
        ...     def backward(ctx, dy):
        ...         return dy * 2
    """

    @functools.wraps(backward)
    def run(ctx: Any, *gradients: Any) -> Any:
        with no_grad():
            results = backward(ctx, *gradients)
        if not mode.recording:
            return results
        several = results if isinstance(results, tuple) else (results,)
        asks = [dy for dy in gradients if dy is not None and dy.requires_grad]
        asks += [x for x in ctx.saved_tensors if x is not None and x.requires_grad]
        if not asks:
            return results
        name = backward.__qualname__.removesuffix(".backward")
        marked = [dx if dx is None else _Once.apply(dx, *asks, name=name) for dx in several]
        return tuple(marked) if isinstance(results, tuple) else marked[0]

    return run
