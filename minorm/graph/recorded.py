"""The backward walk on Tensors, for `create_graph=True`: its results are recorded and can be differentiated.

The walk of backward.py uses arrays and calls `backward` of each Function. This walk calls `gradient`, the same formula
written with Tensors. It visits only nodes that lead to the requested inputs, and computes only their gradients.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from minorm.graph import hooks, trace
from minorm.graph.grad_mode import enable_grad
from minorm.graph.graph import Function, Kept, serial
from minorm.graph.wanted import Place, Wanted, place_of
from minorm.support.locks import shared_lock

# Several threads may add to one gradient at the same time, and no addend must be lost between reading and writing the
# sum. A single lock, taken once in each walk, costs a tenth of a microsecond; a lock for each tensor cost more.
adding = shared_lock()


def walk(
    seeds: Sequence[tuple[Any, Any]], retain_graph: bool, inputs: Sequence[Any] | None = None
) -> dict[Place, tuple[Any, Any]]:
    """Walk back from `seeds`, and return {place: (source, gradient)} for all leaves, or only for `inputs`.

    seeds  pairs of Tensors (y, dy): an output and its gradient

    The function `place_of` says what a place is.
    """
    with enable_grad(), trace.no_casts():
        wanted = None if inputs is None else Wanted(inputs, [y for y, _ in seeds])
        return _Walk(wanted).run(seeds, retain_graph)


class _Walk:
    """Walks back through the graph, and holds the pending and the finished gradients.

    wanted  the Tensors to which the walk goes; None for all leaves
    """

    def __init__(self, wanted: Wanted | None) -> None:
        self.wanted = wanted
        self.heap: list[tuple[int, Function]] = []
        self.pending: dict[int, list[Any]] = {}
        self.found: dict[Place, tuple[Any, Any]] = {}

    def run(self, seeds: Sequence[tuple[Any, Any]], retain_graph: bool) -> dict[Place, tuple[Any, Any]]:
        for tensor, gradient in seeds:
            source = tensor if tensor.creator is None else tensor.creator
            if self.wanted is None or self.wanted.has(source, tensor.output_index):
                self._send(source, tensor.output_index, gradient)
        while self.heap:
            self._visit(heapq.heappop(self.heap)[1], retain_graph)
        return self.found

    def _send(self, source: Any, index: int, gradient: Any) -> None:
        """Add a gradient to the pending gradient of a leaf, or of output `index` of a Function."""
        if isinstance(source, Function):
            if source.edges is None:
                raise source.freed()
            gradients = self.pending.get(id(source))
            if gradients is None:
                heapq.heappush(self.heap, (-source.serial, source))
                gradients = self.pending[id(source)] = [None] * source.outputs
            gradients[index] = gradient if gradients[index] is None else gradients[index] + gradient
        else:
            place = id(source), 0
            before = self.found.get(place)
            self.found[place] = source, gradient if before is None else before[1] + gradient

    def _visit(self, function: Function, retain_graph: bool) -> None:
        gradients = self.pending.pop(id(function))
        for i, gradient in enumerate(gradients):
            if gradient is not None:
                gradients[i] = hooks.run_recorded(function, i, gradient)
                _retain(function, i, gradients[i])
                if self.wanted is not None and (id(function), i) in self.wanted.places:
                    self.found[id(function), i] = function, gradients[i]
        edges = function.edges
        assert edges is not None
        reached = tuple([e is not None for e in edges]) if self.wanted is None else self.wanted.among(edges)
        if True not in reached:  # the graph behind this node stays for another walk
            return
        function.restore()
        results = differentiated(function, gradients, reached)
        for edge, gradient, asked in zip(edges, results, reached, strict=True):
            if asked and gradient is not None:
                _check_form(function, edge, gradient)
                self._send(edge[0], edge[1], gradient)
        if not retain_graph:  # kept values may be part of the new graph, and are freed together with it
            function.edges = None


def differentiated(function: Function, gradients: list[Any], reached: tuple[bool, ...]) -> tuple[Any, ...]:
    """Return the gradients of the function's inputs, as Tensors; only for inputs whose entry in `reached` is True."""
    function.check_unchanged()
    needs = function.needs
    function.needs = reached
    try:
        results = function.gradient(*gradients)
    finally:
        function.needs = needs
    return results if isinstance(results, tuple) else (results,)


def _check_form(function: Function, edge: Any, gradient: Any) -> None:
    source, _, shape, dtype = edge
    if shape is None:
        shape, dtype = source.shape, source.dtype
    if gradient.shape != shape or gradient.dtype != dtype:
        raise RuntimeError(
            f"gradient of {type(function).__name__}: the gradient of an input is {gradient.dtype}{gradient.shape}; "
            f"expected {dtype}{shape}, the type and shape of the input"
        )


def _retain(function: Function, index: int, gradient: Any) -> None:
    """Add the gradient to `grad` of the function's output `index`, if this output retains its gradient."""
    reference = (function.retained or {}).get(index)
    tensor = None if reference is None else reference()
    if tensor is not None:
        with adding:
            tensor.grad = gradient.clone() if tensor.grad is None else tensor.grad + gradient


def add_to_leaves(seeds: Sequence[tuple[Any, Any]], retain_graph: bool, inputs: Sequence[Any] | None = None) -> None:
    """Set leaf.grad = leaf.grad + gradient for every leaf or for `inputs`. The sum is recorded in the graph, and no
    Tensor is changed in place.

    A leaf's first gradient is a copy, since users may change `grad`, and a hook or a user's Function may hold the
    original.
    """
    # The source of an intermediate result is a Function; such a result has already retained its gradient.
    leaves = [(x, dy) for x, dy in walk(seeds, retain_graph, inputs).values() if not isinstance(x, Function)]
    with enable_grad():
        hooked = [(leaf, hooks.run_recorded(leaf, 0, dy)) for leaf, dy in leaves]
    with enable_grad(), adding:
        for leaf, gradient in hooked:
            leaf.grad = gradient.clone() if leaf.grad is None else leaf.grad + gradient


def gradients_of(inputs: Sequence[Any], seeds: Sequence[tuple[Any, Any]], retain_graph: bool) -> list[Any]:
    """Return each input's gradient as a Tensor of the graph, or None if the outputs do not depend on the input."""
    given, begun = {id(dy.array) for _, dy in seeds}, serial()
    found = walk(seeds, retain_graph, inputs)
    results: list[Any] = []
    for x in inputs:
        _, gradient = found.get(place_of(x), (None, None))
        with enable_grad():
            if gradient is not None and x.creator is None:
                gradient = hooks.run_recorded(x, 0, gradient)
            results.append(None if gradient is None else _own(gradient, given, begun))
    return results


def _own(gradient: Any, given: set[int], begun: int) -> Any:
    """Return the gradient, or a copy if its memory is shared.

    Users may change the result, so no other Tensor may use the same memory.

    given   the ids of the arrays of earlier results
    begun   the serial number at the walk's start; the user's code may hold Tensors with lower numbers
    """
    is_old = gradient.creator is None or gradient.creator.serial < begun
    if is_old or id(gradient.array) in given or isinstance(gradient.array.base, type(gradient.array)):
        gradient = gradient.clone()
    given.add(id(gradient.array))
    return gradient


def _as_another_node(x: Any) -> Any:
    """Return a Tensor with the same elements that is the output of a new node. So a walk that ends at this node finds
    only the part of the gradient that comes through the node.
    """
    other = Kept.apply(x, array=x.array)
    other.version = x.version
    return other


def expressed(expression: Callable[..., Any], inputs: Sequence[Any], gradients: Sequence[Any]) -> tuple[Any, ...]:
    """Return the gradients for the inputs of a Function whose forward pass is `expression`, written with Tensors.

    inputs     the Function's inputs, each a Tensor or None; the expression gets as many arguments
    gradients  the gradients of the expression's results, each a Tensor, or None for a result without a gradient
    """
    own = [None if x is None else _as_another_node(x) for x in inputs]
    results = expression(*own)
    results = results if isinstance(results, tuple) else (results,)
    seeds = [(y, dy) for y, dy in zip(results, gradients, strict=True) if dy is not None and y.requires_grad]
    asked = [x for x in own if x is not None and x.requires_grad]
    found = walk(seeds, True, asked)
    return tuple([None if x is None or place_of(x) not in found else found[place_of(x)][1] for x in own])
