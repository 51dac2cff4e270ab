"""Reverse-mode differentiation: `walk` visits the graph of operations once, from the last to the first.

Each node of the graph (graph.py) has a serial number, which is larger than the numbers of all older nodes. A node is
always made after the nodes of its inputs. So a walk by falling serial number reaches every node after all of its
consumers, and needs neither recursion nor a separate sorting pass.

This module imports no operation and not even the Tensor class; the Tensors in the graph add gradients
(`tensor.accumulate`). So the operations can import this module.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from minorm.devices import capture
from minorm.graph import hooks
from minorm.graph.graph import Function
from minorm.graph.recorded import adding
from minorm.graph.wanted import Place, Wanted, place_of


def add_to_leaves(seeds: Sequence[tuple[Any, Any]], retain_graph: bool, inputs: Sequence[Any] | None = None) -> None:
    """Walk back from `seeds`, and add the gradients to leaf.grad.

    seeds   pairs (tensor, array): an output and its gradient
    inputs  the Tensors that get gradients; None for all leaves
    """
    given = {id(array) for _, array in seeds}
    wanted = None if inputs is None else Wanted(inputs, [y for y, _ in seeds])
    found = walk(seeds, retain_graph, wanted)
    watch = capture.watch()
    if watch is not None:
        watch.gradients += [(leaf, leaf.grad) for leaf, _ in found]
    with adding:
        for leaf, array in found:
            if id(array) in given or (array.base is not None and isinstance(array.base, type(array))):
                array = leaf._copied(array)  # leaves must not share memory, since users may change grad
            given.add(id(array))
            if leaf.grad is None:
                leaf.grad = leaf.from_array(array)
            else:
                _add(leaf, array)


def _add(leaf: Any, array: Any) -> None:
    """Add the array to leaf.grad in place, since leaf.grad may be part of a buffer that holds all gradients."""
    grad = leaf.grad
    writable = getattr(grad.array.flags, "writeable", True) and 0 not in grad.array.strides
    if writable or not grad.array.size:
        leaf.accumulate(grad.array, array, True)
        grad.version.count += 1
    else:  # an expanded grad, whose elements share memory
        leaf.grad = leaf.from_array(leaf.accumulate(grad.array, array, False))


def walk(
    seeds: Sequence[tuple[Any, Any]],
    retain_graph: bool,
    wanted: Wanted | None = None,
    between: dict[Place, Any] | None = None,
) -> list[tuple[Any, Any]]:
    """Visit Functions by falling serial number, and return pairs (leaf, gradient).

    seeds    pairs (tensor, gradient) at which the walk starts
    wanted   the Functions that lead to the requested Tensors; the walk skips all others and does not free them
    between  receives the gradients of requested Tensors that are not leaves
    """
    if not seeds:
        return []
    root = seeds[0][0]
    leaves: list[Any] = []
    heap: list[tuple[int, Function]] = []
    pending: dict[int, list[Any]] = {}  # by the id of a leaf or of a creator: a gradient for each output
    sums: set[tuple[int, int]] = set()  # gradients that were summed here, so their arrays may be changed

    def send(source: Any, index: int, array: Any, fresh: bool) -> None:
        """Add `array` to a pending gradient.

        This is the gradient of `source` if `source` is a leaf, or of output `index` if `source` is a Function.
        """
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
                total, array = array, total  # the sum is the same, and writes to memory that exists
            array = root.accumulate(total, array, fresh or place in sums)
            sums.add(place)
        gradients[index] = array

    def take(edge: Any) -> Any:
        """Remove and return the pending gradient of the leaf or the output to which an edge leads.

        Return None if no gradient is pending. The caller adds to the gradient, and sends the sum.
        """
        gradients = None if edge is None else pending.get(id(edge[0]))
        if gradients is None or gradients[edge[1]] is None:
            return None
        total, gradients[edge[1]] = gradients[edge[1]], None
        sums.add((id(edge[0]), edge[1]))
        return total

    def visit(function: Function) -> None:
        gradients = pending.pop(id(function))
        if function.pending is not None:
            function.restore()
        if hooks.registered:
            gradients = [None if g is None else _hooked(function, i, g, root) for i, g in enumerate(gradients)]
        if function.retained is not None:
            _retain(function.retained, gradients)
        edges = function.edges
        assert edges is not None
        if wanted is not None:
            if between is not None:
                places = ((id(function), i) for i, g in enumerate(gradients) if g is not None)
                between.update({p: root._copied(gradients[p[1]]) for p in places if p in wanted.places})
            edges = tuple([edge if reached else None for edge, reached in zip(edges, wanted.among(edges), strict=True)])
            if not any(edges):
                return
        if function.accumulates:
            function.total = take(edges[0])
        found = []
        results = (
            function.differentiate(gradients) if wanted is None else _gradients_with_edge(function, gradients, edges)
        )
        for i, (edge, array) in enumerate(zip(edges, results, strict=True)):
            if edge is not None and array is not None:
                source, index, shape, dtype = edge
                if shape is None:  # a leaf, which may have another type by now
                    shape, dtype = source.array.shape, source.array.dtype
                if array.shape != shape or (array.dtype is not dtype and array.dtype != dtype):
                    raise RuntimeError(
                        f"backward of {type(function).__name__}: the gradient of an input is "
                        f"{array.dtype}{array.shape}; expected {dtype}{shape}, the type and shape of the input"
                    )
                found.append((source, index, array, i in function.fresh))
        if not retain_graph:
            function.free()
        elif function.accumulates:
            function.total = None
        for gradient in found:
            send(*gradient)

    for tensor, gradient in seeds:
        source = tensor if tensor.creator is None else tensor.creator
        if wanted is None or wanted.has(source, tensor.output_index):
            send(source, tensor.output_index, gradient, False)
    while heap:
        visit(heapq.heappop(heap)[1])  # a function, so that no local variable keeps an array alive
    found = [(leaf, pending[id(leaf)][0]) for leaf in leaves]
    return [(leaf, _hooked(leaf, 0, array, leaf)) for leaf, array in found] if hooks.registered else found


def _gradients_with_edge(function: Function, gradients: list[Any], edges: tuple[Any, ...]) -> tuple[Any, ...]:
    """Compute the gradients of the function's inputs; return the gradients of the inputs whose edge is not None."""
    needs = function.needs
    function.needs = tuple([edge is not None for edge in edges])
    try:
        return function.differentiate(gradients)
    finally:
        function.needs = needs


def _hooked(source: Any, index: int, array: Any, like: Any) -> Any:
    answer = hooks.run(source, index, array, like)
    return array if answer is None else like._copied(answer)


def _retain(retained: dict[int, Any], gradients: list[Any]) -> None:
    """Add the gradient of each output of a function to the output's `grad`, if the output retains its gradient."""
    for index, reference in retained.items():
        tensor, array = reference(), gradients[index]
        if tensor is not None and array is not None:
            with adding:
                array = (
                    tensor._copied(array) if tensor.grad is None else tensor.accumulate(tensor.grad.array, array, False)
                )
                tensor.grad = tensor.from_array(array)


def gradients_of(inputs: Sequence[Any], seeds: Sequence[tuple[Any, Any]], retain_graph: bool) -> list[Any]:
    """Return the gradient of each input as a Tensor with separate memory, or None if the outputs do not depend on the
    input.
    """
    results: dict[Place, Any] = {}
    wanted = Wanted(inputs, [y for y, _ in seeds])
    for leaf, array in walk(seeds, retain_graph, wanted, results):
        results[id(leaf), 0] = array
    found = [(x, results.get(place_of(x))) for x in inputs]
    return [None if array is None else x.from_array(x._copied(array)) for x, array in found]
