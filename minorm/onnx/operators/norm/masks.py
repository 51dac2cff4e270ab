"""Rules of normalizations are for calls with a mask, or for those without: a decorator says which.

    @lowers(F.layer_norm)
    @unmasked
    def lower(g, x, normalized_shape, weight, bias, eps, compute_dtype): ...

What else a file does not say is taken off here. An argument that neither this file nor the rule names makes export
fail: none is left out unseen.
"""

from __future__ import annotations

import functools
from typing import Any

from minorm.onnx.graph.errors import Decline
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.registry import Rule


def unmasked(rule: Rule) -> Rule:
    """Decorate a rule that declines a mask: masked_norm.py has those that write it."""

    @functools.wraps(rule)
    def write(g: Graph, mask: Value | None, **call: Any) -> Any:
        if mask is not None:
            raise Decline("no operator of ONNX knows a mask")
        return rule(g, **_said(**call))

    return write


def masked(rule: Rule) -> Rule:
    """Decorate a rule that takes g and a mask before the rest of the call, and declines a call without one."""

    @functools.wraps(rule)
    def write(g: Graph, mask: Value | None, **call: Any) -> Any:
        if mask is None:
            raise Decline("without a mask the formula is another")
        if not g.has("ReduceSum", 13):
            raise Decline(f"a mask is written from opset 13 on; the model's opset is {g.opset}")
        return rule(g, mask, **_said(**call))

    return write


UNSAID = "backend", "process_group", "variance", "update_nonfinite", "skipped_batches"


def _said(**call: Any) -> dict[str, Any]:
    """The call without its backend, which computes what a file does; a group: a file is for one rank; a variance: the
    runtime has its own; and what becomes of batches that are not finite: a graph blends in all of them.
    """
    return {name: value for name, value in call.items() if name not in UNSAID}
