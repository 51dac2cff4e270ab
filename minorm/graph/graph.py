"""The graph of operations. Its nodes are Functions, and an edge leads from a node to the node that made one of its
inputs.

Every operation is a `Function` with `forward` and, directly below it, `backward`. `apply` makes an instance of the
Function, and this instance is the node. The node has the edges to the nodes of its inputs, and keeps the attributes
that `forward` set on `self`. backward.py walks the graph backwards.

This module imports no operation and not even the Tensor class. To make a result, it calls the method `from_array(array,
creator)` of an input. So the operations can import this module.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minorm import devices
from minorm.graph import trace
from minorm.graph.grad_mode import mode
from minorm.support.argument_errors import named_arguments

_serials = itertools.count()
_ndarray = np.ndarray
_tuple: Any = tuple.__new__  # faster than the constructor of a NamedTuple


def serial() -> int:
    """Return the next serial number, which is larger than the serial numbers of all existing Functions."""
    return next(_serials)


def is_tensor(value: Any) -> bool:
    """Is the value a Tensor? This module cannot import the class, so it looks for attributes."""
    return hasattr(value, "from_array") and hasattr(value, "creator")


class Function:
    """One differentiable operation on arrays.

    A subclass writes two methods, `backward` directly below `forward`:

        forward(self, *arrays, **options) -> array, or a tuple of arrays
        backward(self, *gradients) -> the gradient of the input, an array or None; a tuple if there are several inputs

    Forward keeps each value that backward needs under a name: `self.x = x`. If such a value is the array of an input or
    an output (the object itself, not a view), that input or output must not be changed in place before backward; a
    change raises an error. The first input is always a Tensor; other inputs may be None. `self.needs[i]` is True if
    input i needs a gradient, so that backward can skip the other gradients.

    For gradients of gradients, a third method does the same computation as backward, but with Tensors:

        gradient(self, *gradients) -> the results of backward, as Tensors that recorded operations compute

    In this method, `self.input(i, self.x, dy)` returns an input as a Tensor of the graph, and `self.output(self.y, dy)`
    returns an output.
    """

    differentiable = True  # False: the result never requires grad (comparisons, argmax)
    view = False  # True: the result is a view, which shares memory and version counter with the first input
    # If a value is used twice, its gradient is a sum. These two settings let the walk save a pass over memory:
    accumulates = False  # True: backward adds `self.total`, unless None, to the gradient of the first input
    fresh: tuple[int, ...] = ()  # inputs whose gradients are new arrays, which the walk may change

    needs: tuple[bool, ...] = ()
    # For each input, where its gradient goes: (creator, index of the creator's output, shape, type), or (the input
    # itself, 0, None, None) for a leaf, or None for an input without gradient. `edges` is None once the node is freed.
    # Edges hold no arrays, so an array that no backward needs is freed after the forward pass.
    edges: tuple[Any, ...] | None = None
    serial: int = 0
    outputs: int = 1
    watched: Sequence[tuple[Any, int, int]] = ()  # (version counter, its value then, input i or output ~i)
    total: Any = None  # the sum of the gradients that other consumers of the first input have sent
    pending: Any = None  # after a checkpoint dropped the state: (Recomputation, place)
    _hooks: Any = None  # output index -> hooks; see hooks.py
    retained: dict[int, Any] | None = None  # output index -> weak reference to a tensor that wants its gradient

    def forward(self, *arrays: Any, **options: Any) -> Any:
        """Compute the result from the inputs' arrays."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def backward(self, *gradients: Any) -> Any:
        """Compute the gradients of the inputs from the gradients of the results."""
        raise NotImplementedError(f"{type(self).__name__} has no backward")

    def gradient(self, *gradients: Any) -> Any:
        """Do the same computation as backward, but with Tensors, so that the result can be differentiated again."""
        raise NotImplementedError(
            f"create_graph=True: {type(self).__name__} has no gradient of its gradient; expected a Function whose "
            "method gradient(self, *gradients) does the work of backward with Tensors, or create_graph=False"
        )

    @classmethod
    def apply(cls, *inputs: Any, **options: Any) -> Any:
        """Run forward on the inputs' arrays and, if an input requires grad, record the call in the graph."""
        if trace.state.cast is not None:
            inputs = trace.state.cast(cls, inputs)
        function = cls()
        recording = mode.recording and cls.differentiable
        arrays: list[Any] = []
        needs: list[bool] = []
        for x in inputs:  # a loop, since each comprehension would be a call
            arrays.append(None if x is None else x.array)
            needs.append(recording and x is not None and x._requires_grad)
        function.needs = tuple(needs)
        first: Any = arrays[0]
        try:
            if type(first) is _ndarray or devices.is_host(first):
                result = function.forward(*arrays, **options)
            else:  # on a GPU, where a kernel would not notice a wrong address
                if devices.are_mixed(arrays):
                    raise TypeError("the arrays are not on one device")
                if devices.is_current(first):
                    result = function.forward(*arrays, **options)
                else:
                    with first.device:
                        result = function.forward(*arrays, **options)
        except devices.REFUSALS:
            devices.check_devices(cls.__name__, cls.forward, (function, *inputs), options)
            raise
        creator = function if True in needs else None
        from_array = inputs[0].from_array
        if type(result) is tuple:
            answer = outputs = tuple([from_array(a, creator, i) for i, a in enumerate(result)])
        else:
            answer = from_array(result, creator, 0)
            outputs = (answer,)
        if function.view:
            x = inputs[0]
            for output in outputs:
                output.version = x.version
                output.view_of = _tuple(View, (x, cls, options, x._requires_grad and not mode.recording))
                x.version.enter(output)
        if creator is not None:
            function._connect(inputs, outputs)
        if trace.state.calls is not None:
            arguments = named_arguments(cls.forward, (function, *inputs), options)
            del arguments["self"]
            trace.state.calls.append(trace.Call(cls, arguments, answer))
            if (interceptor := trace.state.interceptor) is not None:
                with trace.intercepted(None):
                    return interceptor.applied(cls, arguments, answer)
        return answer

    def _connect(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        kept = {*map(id, self.__dict__.values())}
        edges: list[Any] = []
        watched = []
        for x in inputs:
            if x is None:
                edges.append(None)
                continue
            array, creator = x.array, x.creator
            if id(array) in kept:
                watched.append((x.version, x.version.count, len(edges)))
            if not x._requires_grad:
                edges.append(None)
            elif creator is None:
                edges.append((x, 0, None, None))
            else:  # not x itself: a change in place replaces x's creator, and must not affect this result
                edges.append((creator, x.output_index, array.shape, array.dtype))
        for y in outputs:
            if id(y.array) in kept:
                watched.append((y.version, y.version.count, ~y.output_index))  # noqa: PERF401  a comprehension is a call
        self.edges, self.watched, self.outputs = tuple(edges), watched, len(outputs)
        self.serial = next(_serials)

    def retain(self, tensor: Any) -> None:
        """Let the backward walk store the gradient of this output, `tensor`, in `tensor.grad`."""
        if self.retained is None:
            self.retained = {}
        self.retained[tensor.output_index] = weakref.ref(tensor)

    def release(self, tensor: Any) -> bool:
        """Undo `retain` for this tensor; return True if the tensor retained its gradient before."""
        asked = (self.retained or {}).get(tensor.output_index)
        if self.retained is None or asked is None or asked() is not tensor:
            return False
        del self.retained[tensor.output_index]
        return True

    def check_unchanged(self) -> None:
        """Raise RuntimeError if an array that backward needs has changed since the forward pass."""
        for version, count, place in self.watched:
            if version.count != count:
                raise RuntimeError(
                    f"backward of {type(self).__name__}: an {'output' if place < 0 else 'input'} it needs was changed "
                    f"in place after the forward pass (version {version.count}, expected {count}); work on a copy, or "
                    "change it after backward()"
                )

    def differentiate(self, gradients: list[Any]) -> tuple[Any, ...]:
        """Return the gradient of every input; first check that the arrays that backward needs are unchanged."""
        for version, count, _ in self.watched:
            if version.count != count:
                self.check_unchanged()
        first = gradients[0] if len(gradients) == 1 else next(g for g in gradients if g is not None)
        if type(first) is _ndarray or devices.is_host(first) or devices.is_current(first):
            results = self.backward(*gradients)
        else:
            with first.device:
                results = self.backward(*gradients)
        return results if type(results) is tuple else (results,)

    def restore(self) -> None:
        """If a checkpoint dropped the values that forward kept, compute these values again.

        If checkpoints are nested, the outermost checkpoint runs first.
        """
        while self.pending is not None:
            self.pending[0].restore()

    def freed(self) -> RuntimeError:
        """Return the error for a walk that reaches this node after `free`."""
        return RuntimeError(
            f"backward: the graph of {type(self).__name__} was freed by an earlier backward(); "
            "to use the graph twice, call backward(retain_graph=True) the first time"
        )

    def free(self) -> None:
        """Release everything that forward kept."""
        self.__dict__.clear()

    # For `gradient`: kept arrays as Tensors of the graph

    def input(self, i: int, array: Any, like: Any) -> Any:
        """Return input i as a Tensor of the graph, with the elements of `array`, which forward kept.

        The Tensor is made again from the array and the edge, because the Function itself holds only arrays. `like` may
        be any Tensor: the method `like.from_array` makes new Tensors.
        """
        edge = None if self.edges is None else self.edges[i]
        if edge is None:
            return like.from_array(array)
        source, index, shape, dtype = edge
        if shape is None:  # a leaf
            return source if source.array is array else Kept.apply(source, array=array)
        tensor = like.from_array(array if array.dtype == dtype else array.astype(dtype), source, index)
        self._watch(tensor, i)
        return tensor if array.dtype == dtype else Kept.apply(tensor, array=array)

    def output(self, array: Any, like: Any, i: int = 0) -> Any:
        """Return output i as a Tensor of the graph, with the elements of `array`, which forward kept.

        `like` may be any Tensor: the method `like.from_array` makes the result.
        """
        tensor = like.from_array(array, self, i)
        self._watch(tensor, ~i)
        return tensor

    def _watch(self, tensor: Any, place: int) -> None:
        """Give a Tensor from `input` or `output` the version counter of the original Tensor."""
        for version, _, watched in self.watched:
            if watched == place:
                tensor.version = version


class Kept(Function):
    """Returns a Tensor of the graph with the elements in `array`, which the forward pass kept.

    The kept elements may differ from the present elements of x: in their order, in their type, or because x was changed
    later.
    """

    def forward(self, x: Any, *, array: Any) -> Any:
        self.shape, self.dtype = x.shape, x.dtype
        return array

    def backward(self, dy: Any) -> Any:
        return dy.astype(self.dtype, copy=False)

    def gradient(self, dy: Any) -> Any:
        return dy.to(self.dtype)


class View(NamedTuple):
    """The call that made a view: `function.apply(parent, **options)`."""

    parent: Any
    function: type[Function]
    options: dict[str, Any]
    detached: bool  # True: made inside no_grad of a tensor that requires grad, so outside the graph


class Version:
    """Counts changes in place of memory that a tensor and its views share, and has references to the views."""

    count = 0
    traced = 0  # the number of changes that an open trace has recorded
    views: dict[int, Any] | None = None  # weak references, by a unique number
    enough = 16  # the number of entries at which dead views are removed

    def enter(self, view: Any) -> None:
        """Register a new view.

        Several threads may call this method at the same time: each step changes the dict `views` atomically, and its
        keys are unique.
        """
        views = self.views
        if views is None:
            views = self.__dict__.setdefault("views", {})
        views[next(_serials)] = weakref.ref(view)
        if len(views) > self.enough:
            for key, reference in list(views.items()):
                if reference() is None:
                    views.pop(key, None)
            self.enough = max(16, 2 * len(views))

    def living(self) -> list[Any]:
        """Return the views that still exist, in the order in which they were made."""
        found = [reference() for reference in list((self.views or {}).values())]
        return [view for view in found if view is not None and view.version is self]

    def __reduce__(self) -> Any:
        return Version, ()  # a copy has separate memory
