"""Make the steps for inference: one step with byte inputs replaces several nodes, which byte_nodes.py has found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minorm.onnx.graph.step import Step, mark_last_uses


@dataclass
class Fused:
    """Holds a step and the steps that it replaces, in order; the step runs at the position of the last part.

    sources    the steps of the file that compute the inputs of `step` as floats; `step` runs only if all of them exist
    beside     True if `step` has one part, which stays if another step reads its result
    """

    step: Step
    parts: list[Step]
    sources: list[Step]
    beside: bool = False


def inference_steps(steps: Sequence[Step], fused: Sequence[Fused], kept: set[int]) -> list[Step] | None:
    """Return the steps; the steps of `fused` replace their parts, and steps that are not needed are left out.

    Return None if no part is replaced. `kept` are the slots that are filled before a run or read after a run.
    """
    there = {id(step) for step in steps}
    groups = [group for group in fused if all(id(one) in there for one in (*group.parts, *group.sources))]
    if all(group.beside for group in groups):
        return None
    instead = {id(group.parts[-1]): group.step for group in groups if not group.beside}
    beside = {id(group.parts[-1]): group.step for group in groups if group.beside}
    gone = {id(part) for group in groups for part in group.parts[:-1]}
    found: list[Step] = []
    needed = set(kept)
    for step in reversed(steps):
        if id(step) in gone:
            continue
        other = beside.get(id(step))
        for one in (instead.get(id(step), step), other):
            spare = other is not None or step.operator == "DequantizeLinear"
            if one is None or (spare and needed.isdisjoint(one.outputs)):
                continue
            needed.update(slot for slot in (*one.inputs, *(slot for slot, _ in one.conditions)) if slot is not None)
            found.append(replace(one))
    found.reverse()
    mark_last_uses(found, kept)
    return found
