"""Function for users: a subclass works on arrays, like the library's Functions, or on Tensors, as in PyTorch.

    forward(self, x), backward(self, dy)                  on arrays; forward stores values for backward on self
    @staticmethod forward(ctx, x), backward(ctx, dy)      on Tensors; ctx.save_for_backward(x) keeps x

A Function with static methods has PyTorch's form. Its forward runs without a graph. Its backward computes with Tensors:
it runs without a graph too, unless create_graph is True.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.graph import graph
from minorm.graph.context import Context
from minorm.graph.expressions import summed_to
from minorm.graph.grad_mode import mode, no_grad
from minorm.graph.graph import is_tensor
from minorm.support.argument_errors import kind_of
from minorm.support.documented import documented


class Node(graph.Function):
    """One call of a Function in PyTorch's form, which has static methods.

    Each such Function has a separate subclass of Node, which has the Function's name.
    """

    kind: Any  # the Function
    ctx: Context
    forms: tuple[Any, ...]  # shape and type of each output; None for an output that is not a Tensor
    make: Callable[..., Any]  # makes a Tensor from an array
    of_tensors: tuple[bool, ...]  # for each argument of forward, whether it is a Tensor

    def backward(self, *gradients: Any) -> Any:
        given = [None if dy is None else self.make(dy) for dy in gradients]
        with no_grad():
            found = self.gradient(*given)
        passed = {id(dy) for dy in given}  # the user may hold any other Tensor, so a leaf gets a copy
        return tuple([None if dx is None else dx.array if id(dx) in passed else dx._copied(dx.array) for dx in found])

    def gradient(self, *gradients: Any) -> Any:
        rule = _rule(self.kind)
        like = next(dy for dy in gradients if dy is not None)
        given = list(gradients)
        if self.ctx._materialize:
            for i, form in enumerate(self.forms):
                if given[i] is None and form is not None:
                    given[i] = self.make(np.zeros_like(like.array, form[1], shape=(1, *form[0]))[0, ...])
        self.ctx._node = self
        try:
            results = rule(self.ctx, *given)
        finally:
            self.ctx._node = None
        return self._checked(results if isinstance(results, tuple) else (results,))

    def _checked(self, results: tuple[Any, ...]) -> tuple[Any, ...]:
        count, name = len(self.needs), self.kind.__name__
        if len(results) < count or any(dx is not None for dx in results[count:]):
            raise RuntimeError(
                f"{name}.backward: returned {len(results)} gradients; expected {count}, one for each argument of "
                "forward, and None for an argument that is not a Tensor"
            )
        for i, dx in enumerate(results[:count]):
            if dx is not None and not is_tensor(dx):
                raise TypeError(f"{name}.backward: gradient {i} is {kind_of(dx)}; expected a Tensor or None")
            if dx is not None and not self.of_tensors[i]:
                raise RuntimeError(
                    f"{name}.backward: gradient {i} is a Tensor, but argument {i} of forward is not; expected None"
                )
        edges = self.edges or ()
        return tuple([_in_form_of_input(dx, edge) for dx, edge in zip(results[:count], edges, strict=True)])

    def free(self) -> None:
        self.ctx._saved = None
        super().free()


def _rule(kind: Any) -> Callable[..., Any]:
    """Return the static method `backward` of the class `kind`, or `vjp` if the class has no static `backward`."""
    for name in ("backward", "vjp"):
        if isinstance(inspect.getattr_static(kind, name, None), (staticmethod, classmethod)):
            return getattr(kind, name)
    raise NotImplementedError(f"{kind.__name__} has no backward; expected a static backward(ctx, *gradients)")


def _in_form_of_input(dx: Any, edge: Any) -> Any:
    """Return the gradient dx in the type of the input, summed over the axes along which the input was broadcast."""
    if dx is None or edge is None:
        return None
    shape, dtype = edge[2:] if edge[2] is not None else (edge[0].shape, edge[0].dtype)
    ends = zip(reversed(shape), reversed(dx.shape), strict=False)
    if dx.shape != shape and dx.ndim >= len(shape) and all(n in (1, m) for n, m in ends):
        dx = summed_to(dx, shape)
    return dx if dx.dtype == dtype else dx.to(dtype)


@documented({})
class Function(graph.Function):
    """A custom differentiable operation, with `forward` and `backward`; `apply` runs it.

    On arrays: forward(self, *arrays, **options) stores on self the values that backward(self, *gradients) needs. A
    third method, gradient(self, *gradients), written with Tensors, makes the operation differentiable twice.

    As in PyTorch: forward(ctx, ...) and backward(ctx, *gradients) are static methods on Tensors. ctx has
    save_for_backward, saved_tensors, needs_input_grad, mark_non_differentiable, mark_dirty and set_materialize_grads.
    If the class also has setup_context(ctx, inputs, output), forward gets no ctx, and setup_context runs after forward.
    If backward is differentiable, the operation can be differentiated again. `vjp` is another name for backward.
    PyTorch's methods for forward mode and vmap (jvp, generate_vmap_rule) have no effect here.

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

    is_static = False  # True: it has PyTorch's form
    node: type[Node]  # in PyTorch's form: the class of its calls

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        forward, backward = (inspect.getattr_static(cls, name) for name in ("forward", "backward"))
        cls.is_static = isinstance(forward, (staticmethod, classmethod))
        if cls.is_static:
            cls.node = type(cls.__name__, (Node,), {"kind": cls})
        elif isinstance(backward, staticmethod) and forward is not graph.Function.forward:
            raise TypeError(
                f"{cls.__name__}: backward is a static method and forward is not; expected two static methods, "
                "forward(ctx, *tensors) and backward(ctx, *gradients), or two ordinary methods, forward(self, "
                "*arrays) and backward(self, *gradients)"
            )

    @classmethod
    def apply(cls, *inputs: Any, **options: Any) -> Any:
        """Run forward and, if an input requires grad, record the call in the graph."""
        if not cls.is_static:
            return super().apply(*inputs, **options)
        if hasattr(cls, "setup_context"):  # it gets all arguments
            bound = inspect.signature(cls.forward).bind(*inputs, **options)
            bound.apply_defaults()
            inputs, options = bound.args, bound.kwargs
        if options:
            raise TypeError(
                f"{cls.__name__}.apply: got {', '.join(options)} by name; expected all arguments by position"
            )
        return _applied(cls, inputs)

    def differentiate(self, gradients: list[Any]) -> tuple[Any, ...]:
        """Return the gradient of every input.

        If a gradient is an array that forward kept, the gradient is copied, since a leaf must not share this array.
        """
        kept = {id(value) for value in vars(self).values()}
        return tuple([_copied(dx) if id(dx) in kept else dx for dx in super().differentiate(gradients)])

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raise a TypeError that says how to call a Function."""
        name = type(self).__name__
        raise TypeError(f"{name}: an instance was called, as in early versions of PyTorch; expected {name}.apply(...)")


def _copied(array: Any) -> Any:
    return None if array is None else devices.copied(array)


def _applied(kind: Any, arguments: tuple[Any, ...]) -> Any:
    """Run a Function in PyTorch's form, and record the call if an argument requires grad."""
    node = kind.node()
    inputs = tuple([a if is_tensor(a) else None for a in arguments])
    node.needs = tuple([x is not None and mode.recording and x._requires_grad for x in inputs])
    ctx = node.ctx = Context(tuple([x is not None and x._requires_grad for x in inputs]))
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
    node.of_tensors = tuple([x is not None for x in inputs])
    outputs = _joined_all(kind, node, inputs, results)
    node.outputs = len(outputs)
    node.forms = tuple([(y.shape, y.dtype) if is_tensor(y) else None for y in outputs])
    node.make = next(x for x in inputs if x is not None).from_array
    _save(node, inputs, results, outputs)
    ctx._dirty = ctx._constant = ()
    return tuple(outputs) if isinstance(result, tuple) else outputs[0]


def _joined_all(kind: Any, node: Node, inputs: tuple[Any, ...], results: tuple[Any, ...]) -> list[Any]:
    """Return the results of forward as Tensors of the graph.

    If forward returns the same Tensor twice, both results become one output, with the index of the later result.
    """
    constant, dirty = {*map(id, node.ctx._constant)}, {*map(id, node.ctx._dirty)}
    if not dirty <= {*map(id, results)}:
        raise RuntimeError(f"{kind.__name__}.apply: mark_dirty was given an input that forward does not return")
    places = {id(y): i for i, y in enumerate(results) if is_tensor(y)}
    joined = {}
    for y in results:
        key = id(y)
        if not is_tensor(y) or key in joined:
            continue
        if key in constant:
            joined[key] = y.detach() if y.requires_grad else y
        elif not dtypes.is_float(y.dtype):
            joined[key] = y
        elif key in dirty:
            output = y.from_array(y._copied(y.array), node, places[key])
            joined[key] = y._go_on_as(f"{kind.__name__}.apply", output)
        else:
            joined[key] = _joined(node, inputs, y, places[key])
    return [joined.get(id(y), y) for y in results]


def _joined(node: Node, inputs: tuple[Any, ...], y: Any, i: int) -> Any:
    """Return output i as a new Tensor of the graph, which shares its array with y, the result of forward.

    If the output shares memory with an input, the output refuses recorded changes in place, because the graph cannot
    record such a change for the input.
    """
    output = y.from_array(y.array, node, i)
    output.version = y.version
    shared = next((x for x in inputs if x is not None and x.version is y.version), None)
    if shared is not None:
        output.view_of = graph.View(shared, graph.Kept, {"array": y.array}, True)
    return output


def _save(node: Node, inputs: tuple[Any, ...], results: tuple[Any, ...], outputs: list[Any]) -> None:
    """Keep the Tensors that forward saved, and their versions.

    The versions show whether a saved Tensor is changed in place later. An output is kept detached, since the output
    itself would keep the graph alive.
    """
    ctx, watched = node.ctx, []
    places = {id(x): i for i, x in enumerate(inputs) if x is not None}
    made = {id(y): i for i, y in enumerate(results) if is_tensor(y)} | {id(y): i for i, y in enumerate(outputs)}
    saved: list[tuple[Any, int | None]] = []
    for tensor in ctx._to_save:
        i = made.get(id(tensor)) if id(tensor) not in places or tensor.creator is node else None
        if tensor is None:
            saved.append((None, None))
        elif i is None:
            saved.append((tensor, None))
            watched.append((tensor.version, tensor.version.count, places.get(id(tensor), len(inputs))))
        else:
            saved.append((tensor.detach(), i if outputs[i].creator is node else None))
            watched.append((tensor.version, tensor.version.count, ~i))
    node.watched, ctx._to_save, ctx._saved = watched, (), saved
