"""If, in the form that flattening.py writes: the inputs are the condition, and then the results of both branches.

Only the nodes of one branch have run. The results of the other branch are absent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import reads


@reads("If", since=1, fixed=(0,))
def read_if(node: Node) -> Callable[..., Any]:
    half = (len(node.inputs) - 1) // 2
    return lambda condition, *results: results[:half] if bool(condition) else results[half:]


def without_the_other(inputs: Sequence[str], condition: bool) -> list[str]:
    """Return the inputs of an If with a known condition; the results of the branch that never runs become ""."""
    half = (len(inputs) - 1) // 2
    return [name if place == 0 or (place <= half) == condition else "" for place, name in enumerate(inputs)]
