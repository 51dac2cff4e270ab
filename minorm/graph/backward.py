"""Reverse-mode differentiation: operations leave a graph behind, and `backward` walks it once, last first.

Each node of the graph (graph.py) carries a serial number. Inputs always exist before what is computed from them, so
visiting nodes by falling serial number meets every node after all of its consumers: no recursion and no separate
sorting pass.

This module knows no operation and not even the Tensor class: gradients are added by a Tensor that is there
(`tensor.accumulate`), so imports point downward.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import capture
from minorm.graph import hooks, recorded
from minorm.graph.graph import Function
from minorm.graph.recorded import adding
from minorm.support.documented import documented


@documented(
    {},
    root="the Tensor that is differentiated",
    gradient="weights of its elements, an array of its shape and type",
    retain_graph="True keeps the graph for another walk, False frees it on the way",
    create_graph="True leaves gradients that are in the graph, and can be differentiated; the graph is kept, too",
)
def backward(root: Any, gradient: Any, retain_graph: bool = False, create_graph: bool = False) -> None:
    """leaf.grad += d(root)/d(leaf), weighted by the array `gradient`, for every leaf that requires it.

    Threads may walk graphs that meet in their leaves at the same time. Every gradient is added; the order is theirs, so
    a sum of more than two may differ in its last bits. One graph is for one thread: it is freed on the way.

    Example:
        >>> x = mn.tensor([1.0, 2.0], requires_grad=True)
        >>> mn.autograd.backward(x * x, mn.ones(2).numpy())
        >>> x.grad
        tensor([2., 4.])
    """
    if create_graph:
        recorded.add_to_leaves([(root, root.from_array(gradient))], True)
        return
    given: set[int] = {id(gradient)}
    found = walk([(root, gradient)], retain_graph)
    watch = capture.watch()
    if watch is not None:
        watch.gradients += [(leaf, leaf.grad) for leaf, _ in found]
    with adding:
        for leaf, array in found:
            if id(array) in given or (array.base is not None and isinstance(array.base, type(array))):
                array = leaf._copied(array)  # no two leaves may share memory: grad is the user's to change
            given.add(id(array))
            if leaf.grad is None:
                leaf.grad = leaf.from_array(array)
            else:
                _add(leaf, array)


def _add(leaf: Any, array: Any) -> None:
    """leaf.grad += array, in the memory that is there: it may be a part of a buffer that holds all gradients."""
    grad = leaf.grad
    writable = getattr(grad.array.flags, "writeable", True) and 0 not in grad.array.strides
    if writable or not grad.array.size:
        leaf.accumulate(grad.array, array, True)
        grad.version.count += 1
    else:  # an expanded one, whose elements share memory
        leaf.grad = leaf.from_array(leaf.accumulate(grad.array, array, False))


def walk(seeds: Sequence[tuple[Any, Any]], retain_graph: bool) -> list[tuple[Any, Any]]:
    """Visit creators by falling serial number, from (tensor, gradient) on; returns the leaves and their gradients."""
    root = seeds[0][0]
    leaves: list[Any] = []
    heap: list[tuple[int, Function]] = []
    pending: dict[int, list[Any]] = {}  # by the id of a creator, one for each of its outputs, or of a leaf
    sums: set[tuple[int, int]] = set()  # which of them were added up here: their arrays may be changed

    def send(source: Any, index: int, array: Any, fresh: bool) -> None:
        """Add a gradient to what waits for a leaf, or for output `index` of a creator."""
        gradients = pending.get(id(source))
        if gradients is None:
            if isinstance(source, Function):
                if source.edges is None:
                    raise source.freed()
                heapq.heappush(heap, (-source.serial, source))
                gradients = [None] * source.outputs
            else:
                leaves.append(source)
                gradients = [None]
            pending[id(source)] = gradients
        total = gradients[index]
        if total is not None:
            place = id(source), index
            if fresh and place not in sums:
                total, array = array, total  # the sum is the same, and the memory is there
            array = root.accumulate(total, array, fresh or place in sums)
            sums.add(place)
        gradients[index] = array

    def take(edge: Any) -> Any:
        """Take out what waits at the end of an edge, for a function that will send the sum."""
        gradients = None if edge is None else pending.get(id(edge[0]))
        if gradients is None or gradients[edge[1]] is None:
            return None
        total, gradients[edge[1]] = gradients[edge[1]], None
        sums.add((id(edge[0]), edge[1]))
        return total

    def visit(function: Function) -> None:
        gradients = pending.pop(id(function))
        if hooks.registered:
            gradients = [None if g is None else _hooked(function, i, g, root) for i, g in enumerate(gradients)]
        if function.retained is not None:
            _retain(function.retained, gradients)
        edges = function.edges
        assert edges is not None
        if function.accumulates:
            function.total = take(edges[0])
        found = []
        for i, (edge, array) in enumerate(zip(edges, function.differentiate(gradients), strict=True)):
            if edge is not None and array is not None:
                source, index, shape, dtype = edge
                if shape is None:  # a leaf, which may have been converted since
                    shape, dtype = source.array.shape, source.array.dtype
                if array.shape != shape or (array.dtype is not dtype and array.dtype != dtype):
                    raise RuntimeError(
                        f"backward of {type(function).__name__}: gradient is {array.dtype}{array.shape}, "
                        f"its input is {dtype}{shape}"
                    )
                found.append((source, index, array, i in function.fresh))
        if retain_graph:
            function.total = None
        else:
            function.free()
        for gradient in found:
            send(*gradient)

    for tensor, gradient in seeds:
        if tensor.creator is None:
            send(tensor, 0, gradient, False)
        else:
            send(tensor.creator, tensor.output_index, gradient, False)
    while heap:
        visit(heapq.heappop(heap)[1])  # a function, so that no local variable keeps an array alive
    found = [(leaf, pending[id(leaf)][0]) for leaf in leaves]
    return [(leaf, _hooked(leaf, 0, array, leaf)) for leaf, array in found] if hooks.registered else found


def _hooked(source: Any, index: int, array: Any, like: Any) -> Any:
    answer = hooks.run(source, index, array, like)
    return array if answer is None else like._copied(answer)


def _retain(retained: dict[int, Any], gradients: list[Any]) -> None:
    """Add the gradients of a function's outputs to `grad` of those that asked for it."""
    for index, reference in retained.items():
        tensor, array = reference(), gradients[index]
        if tensor is not None and array is not None:
            with adding:
                array = (
                    tensor._copied(array) if tensor.grad is None else tensor.accumulate(tensor.grad.array, array, False)
                )
                tensor.grad = tensor.from_array(array)


@documented(
    {},
    outputs="what is differentiated, a Tensor or several",
    inputs="for what, a Tensor or several, which require grad",
    grad_outputs="weights of the outputs' elements, one Tensor for each; None for outputs of one element",
    retain_graph="True keeps the graph for another walk, False frees it on the way; None is create_graph",
    create_graph="True gives gradients that are in the graph, and can be differentiated",
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
        >>> (slope,) = mn.autograd.grad((x**3).sum(), x, create_graph=True)
        >>> mn.autograd.grad(slope.sum(), x)
        (tensor([ 6., 12.]),)
    """
    ends, starts = (tuple(v) if isinstance(v, (tuple, list)) else (v,) for v in (outputs, inputs))
    given = grad_outputs if isinstance(grad_outputs, (tuple, list)) else (grad_outputs,) * len(ends)
    for i, x in enumerate(starts):
        if not x.requires_grad:
            raise RuntimeError(f"autograd.grad: input {i} does not require grad; expected inputs that do")
    weights = [_weights(i, y, weight) for i, (y, weight) in enumerate(zip(ends, given, strict=True))]
    if create_graph:
        recorded_seeds = [
            (y, y.from_array(w) if given[i] is None else given[i])
            for i, (y, w) in enumerate(zip(ends, weights, strict=True))
        ]
        results = recorded.gradients_of(starts, recorded_seeds, retain_graph is not False)
        _check_used([i for i, dx in enumerate(results) if dx is None], allow_unused)
        return tuple(results)
    seeds = list(zip(ends, weights, strict=True))
    found: dict[int, Any] = {}
    with contextlib.ExitStack() as stack:
        for x in starts:  # the walk leaves leaves to us, and other results to a hook
            if x.creator is not None:
                take = functools.partial(found.__setitem__, id(x))
                stack.enter_context(hooks.register(x, take))
        for leaf, array in walk(seeds, bool(retain_graph)):
            found[id(leaf)] = leaf.from_array(array)
    _check_used([i for i, x in enumerate(starts) if id(x) not in found], allow_unused)
    return tuple([x.from_array(x._copied(found[id(x)].array)) if id(x) in found else None for x in starts])


def _check_used(missing: list[int], allow_unused: bool | None) -> None:
    if missing and not allow_unused:
        raise RuntimeError(
            f"autograd.grad: the outputs do not depend on input {missing[0]}; expected that they do; "
            "allow_unused=True gives None for it"
        )


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


@documented({}, data="a Tensor", requires_grad="True: backward() should leave a gradient in it")
def Variable(data: Any, requires_grad: bool = False) -> Any:
    """The Tensor without its graph: what older programs wrap around each batch.

    Example:
        >>> mn.autograd.Variable(mn.ones(2), requires_grad=True).requires_grad
        True
    """
    return data.detach().requires_grad_(requires_grad)
