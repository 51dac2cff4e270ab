"""Decorators that say whether a normalization's rule is for calls with a mask or without a mask.

    @lowers(F.layer_norm)
    @unmasked
    def lower(g, x, normalized_shape, weight, bias, eps, compute_dtype): ...

The decorators also remove the arguments that a file does not record. If an argument is named neither in this file nor
in the rule, export fails. So no argument is dropped unnoticed.
"""

from __future__ import annotations

import functools
from typing import Any

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.registry import Rule


def unmasked(rule: Rule) -> Rule:
    """Decorate a rule for calls without a mask; if a call has a mask, raise RuleNotApplicable (see masked_norm.py)."""

    @functools.wraps(rule)
    def write(g: Graph, mask: Value | None, **call: Any) -> Any:
        if mask is not None:
            raise RuleNotApplicable("no ONNX operator takes a mask")
        return rule(g, **_said(**call))

    return write


def masked(rule: Rule) -> Rule:
    """Decorate a rule that takes g and a mask first; for a call without a mask, raise RuleNotApplicable."""

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

    `backend` and `variance` are not recorded, because the runtime chooses how to compute. `process_group` is not
    recorded, because a file is for one rank. The other arguments are about batches that are not finite. A graph treats
    such batches like all other batches.
    """
    return {name: value for name, value in call.items() if name not in UNSAID}
