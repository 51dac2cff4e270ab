"""Decorators that say whether a rule of a normalization is for calls with a mask or without.

    @lowers(F.layer_norm)
    @unmasked
    def lower(g, x, normalized_shape, weight, bias, eps, compute_dtype): ...

They also remove the other arguments that a file does not record. An argument that neither this file nor the rule names
makes export fail, so no argument is dropped unnoticed.
"""

from __future__ import annotations

import functools
from typing import Any

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.registry import Rule


def unmasked(rule: Rule) -> Rule:
    """Decorate a rule that declines a mask; the rules of masked_norm.py write one."""

    @functools.wraps(rule)
    def write(g: Graph, mask: Value | None, **call: Any) -> Any:
        if mask is not None:
            raise RuleNotApplicable("no ONNX operator takes a mask")
        return rule(g, **_said(**call))

    return write


def masked(rule: Rule) -> Rule:
    """Decorate a rule that takes g and a mask before the other arguments, and declines a call without a mask."""

    @functools.wraps(rule)
    def write(g: Graph, mask: Value | None, **call: Any) -> Any:
        if mask is None:
            raise RuleNotApplicable("this rule only writes calls with a mask")
        if not g.has("ReduceSum", 13):
            raise RuleNotApplicable(f"a mask is written from opset 13 on; the model's opset is {g.opset}")
        return rule(g, mask, **_said(**call))

    return write


UNSAID = "backend", "process_group", "variance", "update_nonfinite", "skipped_batches"


def _said(**call: Any) -> dict[str, Any]:
    """Return the call without the arguments that a file does not record.

    A backend computes the same as the file; a file is for one rank, so it has no process group; the runtime chooses
    how it computes a variance; and a graph blends in all batches, finite or not.
    """
    return {name: value for name, value in call.items() if name not in UNSAID}
