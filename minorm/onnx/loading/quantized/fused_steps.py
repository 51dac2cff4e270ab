"""Makes the steps of inference, in which one step on bytes stands for several nodes; byte_nodes.py finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minorm.onnx.graph.step import Step, mark_last_uses


@dataclass
class Fused:
    """A step and those of the file's nodes that it replaces, in order: the last one's place is its own.

    sources    the file's nodes without which it would be wrong
    beside     its one part stays where it is read
    """

    step: Step
    parts: list[Step]
    sources: list[Step]
    beside: bool = False


def inference_steps(steps: Sequence[Step], fused: Sequence[Fused], kept: set[int]) -> list[Step] | None:
    """The steps with those of `fused` in place of their parts, and without those that are not needed then.

    None where there are no such parts. kept: the slots that are read after the run, or filled before it.
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
