"""Reverse-mode differentiation: operations leave a graph behind, and `backward` walks it once, last first.

Every operation is a `Function` with `forward` and, directly below it, `backward`. Applying one makes an
instance; the instance is the node of the graph: it knows where its inputs came from, and whatever `forward` kept on
`self`. Each node carries a serial number. Inputs always exist before what is computed from them, so visiting nodes by
falling serial number meets every node after all of its consumers: no recursion and no separate sorting pass.

This module knows no operation and not even the Tensor class: a result is built through an input
(`tensor.from_array(array, creator)`) and gradients are added by one (`tensor.accumulate`), so imports point downward.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minorm import devices, hooks, trace
from minorm.documented import documented
from minorm.grad_mode import enable_grad as enable_grad  # noqa: PLC0414  passed on
from minorm.grad_mode import inference_mode as inference_mode  # noqa: PLC0414  passed on
from minorm.grad_mode import is_grad_enabled as is_grad_enabled  # noqa: PLC0414  passed on
from minorm.grad_mode import mode
from minorm.grad_mode import no_grad as no_grad  # noqa: PLC0414  passed on
from minorm.grad_mode import set_grad_enabled as set_grad_enabled  # noqa: PLC0414  passed on
from minorm.mistakes import named_arguments

_serials = itertools.count()
_ndarray = np.ndarray
_tuple: Any = tuple.__new__  # a NamedTuple's own takes longer


class Function:
    """One differentiable operation on arrays.

    A subclass writes two methods, `backward` directly below `forward`:

        forward(self, *arrays, **options) -> array, or a tuple of arrays
        backward(self, *gradients) -> the gradient of each input: an array, or None; a tuple where there are several

    What backward needs, forward keeps under its own name: `self.x = x`. An array that is an input's or an
    output's own (the object itself, not a view) is watched: changing that tensor in place before backward is an
    error. The first input is always a Tensor; another may be absent, which is None. `self.needs[i]` says whether
    input i wants a gradient, so that backward can skip the others.
    """

    differentiable = True  # False: the result never requires grad (comparisons, argmax)
    view = False  # True: the result is a view: it shares the first input's memory, hence its version counter

    needs: tuple[bool, ...] = ()
    # Where each input's gradient goes: its creator, or the input itself if it is a leaf; which output of that; the
    # array, whose shape and type it has. None for an input without gradient; None for all once freed.
    edges: tuple[Any, ...] | None = None
    serial: int = 0
    outputs: int = 1
    watched: tuple[tuple[Any, int, str], ...] = ()  # (version counter, its value then, what it was)
    retained: dict[int, Any] | None = None  # output index -> weak reference to a tensor that wants its gradient

    def forward(self, *arrays: Any, **options: Any) -> Any:
        """Compute the result from the inputs' arrays."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def backward(self, *gradients: Any) -> Any:
        """Compute the inputs' gradients from the results'."""
        raise NotImplementedError(f"{type(self).__name__} has no backward")

    @classmethod
    def apply(cls, *inputs: Any, **options: Any) -> Any:
        """Run forward on the inputs' arrays and, where a gradient is wanted, join the graph."""
        if trace.state.cast is not None:
            inputs = trace.state.cast(cls, inputs)
        function = cls()
        recording = mode.recording and cls.differentiable
        function.needs = needs = tuple([x is not None and recording and x.requires_grad for x in inputs])
        arrays = [None if x is None else x.array for x in inputs]
        first: Any = arrays[0]
        try:
            if type(first) is _ndarray or devices.is_host(first):
                result = function.forward(*arrays, **options)
            else:  # on a GPU, where a kernel cannot tell a wrong address
                if devices.are_mixed(arrays):
                    raise TypeError("the arrays are not on one device")
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
                output.view_of = _tuple(View, (x, cls, options, x.requires_grad and not mode.recording))
                x.version.enter(output)
        if creator is not None:
            function._connect(inputs, outputs)
        if trace.state.calls is not None:
            arguments = named_arguments(cls.forward, (function, *inputs), options)
            del arguments["self"]
            trace.state.calls.append(trace.Call(cls, arguments, answer))
        return answer

    def _connect(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        kept = set(map(id, self.__dict__.values()))
        edges, watched = [], []
        for x in inputs:
            if x is not None and id(x.array) in kept:
                watched.append((x.version, x.version.count, "input"))
            # Not x itself: a change in place gives it another creator, which what is computed here must not follow.
            edges.append((x.creator or x, x.output_index, x.array) if x is not None and x.requires_grad else None)
        for y in outputs:
            if id(y.array) in kept:
                watched.append((y.version, y.version.count, "output"))  # noqa: PERF401  a comprehension is a call
        self.edges, self.watched = tuple(edges), tuple(watched)
        self.outputs = len(outputs)
        self.serial = next(_serials)

    def retain(self, tensor: Any) -> None:
        """Ask the walk to leave the gradient of this output in `tensor.grad`."""
        if self.retained is None:
            self.retained = {}
        self.retained[tensor.output_index] = weakref.ref(tensor)

    def release(self, tensor: Any) -> bool:
        """Leave that tensor's gradient out again; whether it had asked for it."""
        asked = (self.retained or {}).get(tensor.output_index)
        if self.retained is None or asked is None or asked() is not tensor:
            return False
        del self.retained[tensor.output_index]
        return True

    def differentiate(self, gradients: list[Any]) -> tuple[Any, ...]:
        """The gradient of every input, after checking that nothing backward needs has changed since."""
        for version, count, role in self.watched:
            if version.count != count:
                raise RuntimeError(
                    f"backward of {type(self).__name__}: an {role} it needs was changed in place after the forward "
                    f"pass (version {version.count}, expected {count}); work on a copy, or change it after backward()"
                )
        first = gradients[0] if len(gradients) == 1 else next(g for g in gradients if g is not None)
        if type(first) is _ndarray or devices.is_host(first):
            results = self.backward(*gradients)
        else:
            with first.device:
                results = self.backward(*gradients)
        return results if type(results) is tuple else (results,)

    def free(self) -> None:
        """Let go of everything forward kept."""
        self.__dict__.clear()


def _copied(array: Any) -> Any:
    """A copy on the device of the array; CuPy itself copies to the current one."""
    with devices.on_device_of(array):
        return array.copy()


class View(NamedTuple):
    """How a view came about: `function.apply(parent, **options)`."""

    parent: Any
    function: type[Function]
    options: dict[str, Any]
    detached: bool  # made inside no_grad of a tensor that requires grad: it stays outside the graph


class Version:
    """How often the memory behind a tensor and its views has been changed in place, and which views there are."""

    count = 0
    traced = 0  # how many of the changes an open trace has written down
    views: dict[int, Any] | None = None  # weak references, by a number that no other has
    enough = 16  # views that are entered before those that are gone are looked for

    def enter(self, view: Any) -> None:
        """Know a new view. Threads may meet here: each step is one of the dict's own, and no key comes twice."""
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
        """The views that are still there, in the order in which they were made."""
        found = [reference() for reference in list((self.views or {}).values())]
        return [view for view in found if view is not None and view.version is self]

    def __reduce__(self) -> Any:
        return Version, ()  # a copy has memory of its own


class _Sum:
    """A gradient being collected from several consumers; adds in place once the array is its own."""

    __slots__ = ("array", "owned")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.owned = False

    def add(self, array: Any, accumulate: Callable[[Any, Any, bool], Any]) -> None:
        self.array = accumulate(self.array, array, self.owned)
        self.owned = True


# Threads may add to one gradient at the same time, and none may be lost between reading it and writing the sum. One
# lock, taken once a walk, costs a tenth of a microsecond; a lock for each tensor cost more. The handler of a signal may
# walk a graph of its own meanwhile, hence RLock. A fork waits for it: held by a thread that the child does not have, it
# would stay so there.
_adding = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_adding.acquire, after_in_parent=_adding.release, after_in_child=_adding.release)


@documented(
    {},
    root="the Tensor that is differentiated",
    gradient="weights of its elements, an array of its shape and type",
    retain_graph="True keeps the graph for another walk, False frees it on the way",
)
def backward(root: Any, gradient: Any, retain_graph: bool = False) -> None:
    """leaf.grad += d(root)/d(leaf), weighted by the array `gradient`, for every leaf that requires it.

    Threads may walk graphs that meet in their leaves at the same time. Every gradient is added; the order is theirs, so
    a sum of more than two may differ in its last bits. One graph is for one thread: it is freed on the way.

    Example:
        >>> x = mn.tensor([1.0, 2.0], requires_grad=True)
        >>> mn.autograd.backward(x * x, mn.ones(2).numpy())
        >>> x.grad
        tensor([2., 4.])
    """
    given: set[int] = {id(gradient)}
    found = _walk([(root, gradient)], retain_graph)
    with _adding:
        for leaf, array in found:
            if id(array) in given or isinstance(array.base, type(array)):
                array = _copied(array)  # no two leaves may share memory: grad is the user's to change
            given.add(id(array))
            total = array if leaf.grad is None else leaf.accumulate(leaf.grad.array, array, False)
            leaf.grad = leaf.from_array(total)


def _walk(seeds: Sequence[tuple[Any, Any]], retain_graph: bool) -> list[tuple[Any, Any]]:
    """Visit creators by falling serial number, from (tensor, gradient) on; returns the leaves and their gradients."""
    root = seeds[0][0]
    leaves: dict[int, tuple[Any, _Sum]] = {}  # by the leaf's id
    pending: dict[int, dict[int, _Sum]] = {}  # by the creator's serial number and the index of its output
    heap: list[tuple[int, Function]] = []

    def send(source: Any, index: int, array: Any) -> None:
        """Add a gradient to what waits for a leaf, or for output `index` of a creator."""
        if not isinstance(source, Function):
            if id(source) in leaves:
                leaves[id(source)][1].add(array, root.accumulate)
            else:
                leaves[id(source)] = source, _Sum(array)
            return
        if source.edges is None:
            raise RuntimeError(
                f"backward: the graph of {type(source).__name__} was freed by an earlier backward(); "
                "call backward(retain_graph=True) the first time to walk it twice"
            )
        sums = pending.get(source.serial)
        if sums is None:
            sums = pending[source.serial] = {}
            heapq.heappush(heap, (-source.serial, source))
        if index in sums:
            sums[index].add(array, root.accumulate)
        else:
            sums[index] = _Sum(array)

    def visit(function: Function) -> None:
        sums = pending.pop(function.serial)
        gradients = [sums[i].array if i in sums else None for i in range(function.outputs)]
        if hooks.registered:
            gradients = [None if g is None else hooks.run(function, i, g, root) for i, g in enumerate(gradients)]
        if function.retained is not None:
            _retain(function.retained, gradients)
        edges, needs = function.edges, function.needs
        assert edges is not None
        found = []
        for edge, needed, array in zip(edges, needs, function.differentiate(gradients), strict=True):
            if needed and array is not None:
                source, index, given = edge
                if not isinstance(source, Function):
                    given = source.array
                if array.shape != given.shape or array.dtype != given.dtype:
                    raise RuntimeError(
                        f"backward of {type(function).__name__}: gradient is {array.dtype}{array.shape}, "
                        f"its input is {given.dtype}{given.shape}"
                    )
                found.append((source, index, array))
        if not retain_graph:
            function.free()
        for source, index, array in found:
            send(source, index, array)

    for tensor, gradient in seeds:
        send(tensor.creator or tensor, tensor.output_index, gradient)
    while heap:
        visit(heapq.heappop(heap)[1])  # a call of its own, which holds nothing when it is done
    return [(leaf, hooks.run(leaf, 0, total.array, leaf)) for leaf, total in leaves.values()]


def _retain(retained: dict[int, Any], gradients: list[Any]) -> None:
    """Add the gradients of a function's outputs to `grad` of those that asked for it."""
    for index, reference in retained.items():
        tensor, array = reference(), gradients[index]
        if tensor is not None and array is not None:
            with _adding:
                array = _copied(array) if tensor.grad is None else tensor.accumulate(tensor.grad.array, array, False)
                tensor.grad = tensor.from_array(array)


def refuse_graph(operation: str, create_graph: bool) -> None:
    """NotImplementedError for create_graph=True."""
    if create_graph:
        raise NotImplementedError(
            f"{operation}: create_graph=True asks for gradients of gradients; expected False, as backward passes are "
            "not recorded here"
        )


@documented(
    {},
    outputs="what is differentiated, a Tensor or several",
    inputs="for what, a Tensor or several, which require grad",
    grad_outputs="weights of the outputs' elements, one Tensor for each; None for outputs of one element",
    retain_graph="True keeps the graph for another walk; None and False free it on the way",
    create_graph="True, gradients of gradients, is a NotImplementedError",
    only_inputs="taken, without effect: no other gradient is computed",
    allow_unused="True gives None for an input that the outputs do not depend on; None and False raise",
)
def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,  # noqa: ARG001
    allow_unused: bool | None = None,
) -> tuple[Any, ...]:
    """d(outputs)/d(input) for each input, as a tuple, leaving every `.grad` as it was.

    RuntimeError for an input that does not require grad, and for one that the outputs do not depend on.

    Example:
        >>> x = mn.tensor([1.0, 2.0], requires_grad=True)
        >>> mn.autograd.grad((x * x).sum(), x)
        (tensor([2., 4.]),)
    """
    refuse_graph("autograd.grad", create_graph)
    ends, starts = (tuple(v) if isinstance(v, (tuple, list)) else (v,) for v in (outputs, inputs))
    given = grad_outputs if isinstance(grad_outputs, (tuple, list)) else (grad_outputs,) * len(ends)
    for i, x in enumerate(starts):
        if not x.requires_grad:
            raise RuntimeError(f"autograd.grad: input {i} does not require grad; expected inputs that do")
    seeds = [(y, _weights(i, y, weight)) for i, (y, weight) in enumerate(zip(ends, given, strict=True))]
    found: dict[int, Any] = {}
    with contextlib.ExitStack() as stack:
        for x in starts:  # the walk leaves leaves to us, and other results to a hook
            if x.creator is not None:
                take = functools.partial(found.__setitem__, id(x))
                stack.enter_context(hooks.register(x, take))
        for leaf, array in _walk(seeds, bool(retain_graph)):
            found[id(leaf)] = leaf.from_array(array)
    missing = [i for i, x in enumerate(starts) if id(x) not in found]
    if missing and not allow_unused:
        raise RuntimeError(
            f"autograd.grad: the outputs do not depend on input {missing[0]}; expected that they do; "
            "allow_unused=True gives None for it"
        )
    return tuple([x.from_array(_copied(found[id(x)].array)) if id(x) in found else None for x in starts])


def _weights(i: int, output: Any, weight: Any) -> Any:
    if not output.requires_grad:
        raise RuntimeError(f"autograd.grad: output {i} does not require grad; expected a result of what does")
    if weight is None:
        if output.array.size != 1:
            raise RuntimeError(
                f"autograd.grad: output {i} has shape {output.shape}; expected one element, or grad_outputs"
            )
        with devices.on_device_of(output.array):
            return np.ones_like(output.array)
    if weight.shape != output.shape or weight.dtype != output.dtype:
        raise ValueError(
            f"autograd.grad: grad_outputs[{i}] is {weight.dtype} of shape {weight.shape}; expected {output.dtype} of "
            f"shape {output.shape}"
        )
    return weight.array


def grad_of(function: Callable[..., Any], *inputs: Any, gradient: Any = None) -> tuple[Any, ...]:
    """The gradients of `function(*inputs)` for each input, leaving every `.grad` as it was."""
    before = [x.grad for x in inputs]
    for x in inputs:
        x.grad = None
    try:
        function(*inputs).backward(gradient)
        return tuple(x.grad for x in inputs)
    finally:
        for x, grad in zip(inputs, before, strict=True):
            x.grad = grad


@documented({}, data="a Tensor", requires_grad="True: backward() should leave a gradient in it")
def Variable(data: Any, requires_grad: bool = False) -> Any:
    """The Tensor without its graph: what older programs wrap around each batch.

    Example:
        >>> mn.autograd.Variable(mn.ones(2), requires_grad=True).requires_grad
        True
    """
    return data.detach().requires_grad_(requires_grad)
