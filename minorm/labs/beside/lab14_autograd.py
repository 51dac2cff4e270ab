"""Lab 14: builds graphs of the student's Vars. Operations are the judge's, and only the judge knows their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Forward = Callable[[int, Any], Any]  # number of the operation, value of its input
Back = Callable[[int, Any], Any]  # number of the operation, dy


def _probe(module: Any, number: int, node: Any, forward: Forward, back: Back) -> Any:
    """Apply the judge's operation with this number to a Var of the student's; return the new Var."""
    return module.Var(forward(number, node.value), (node,), lambda dy: (back(number, dy),))


def probed(module: Any, arrays: Any, links: Any, forward: Forward, back: Back) -> list[Any]:
    """Build a graph of Vars on the arrays, run the student's backward from the last Var, return the arrays' gradients.

    links  how each further Var is made. A pair (i, j) adds Vars i and j. A number i applies one of the judge's
           operations to Var i.
    """
    leaves = [module.Var(array) for array in arrays]
    nodes = list(leaves)
    for number, link in enumerate(links):
        if isinstance(link, int):
            nodes.append(_probe(module, number, nodes[link], forward, back))
        else:
            nodes.append(module.add(nodes[link[0]], nodes[link[1]]))
    module.backward(nodes[-1], 1.0)
    return [leaf.grad for leaf in leaves]


def network(module: Any, x: Any, parameters: Any, dy: Any, forward: Forward, back: Back) -> Any:
    """Return the output of the student's network.

    Each parameter is the result of one of the judge's operations, so the judge sees the gradients of the parameters.
    """
    behind = [_probe(module, number, module.Var(array), forward, back) for number, array in enumerate(parameters)]
    output = module.network(module.Var(x), *behind)
    module.backward(output, dy)
    return output.value
