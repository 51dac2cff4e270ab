"""The steps of inference, in which several nodes of a graph are one on bytes: byte_nodes.py finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minorm.onnx.graph.step import Step, mark_last_uses


@dataclass
class Fused:
    """A step and those of the file's nodes that it replaces, in order."""

    step: Step
    parts: list[Step]


def inference_steps(steps: Sequence[Step], fused: Sequence[Fused], kept: set[int]) -> list[Step] | None:
    """The steps with those of `fused` in place of their parts, and without what nobody reads then.

    None where there are no such parts. kept: the slots that are read after the run, or filled before it.
    """
    there = {id(step) for step in steps}
    groups = [group for group in fused if all(id(part) in there for part in group.parts)]
    if not groups:
        return None
    instead = {id(group.parts[-1]): group.step for group in groups}
    gone = {id(part) for group in groups for part in group.parts[:-1]}
    found: list[Step] = []
    needed = set(kept)
    for step in reversed(steps):
        if id(step) in gone:
            continue
        new = replace(instead.get(id(step), step))
        if new.operator == "DequantizeLinear" and needed.isdisjoint(new.outputs):
            continue
        needed.update(slot for slot in (*new.inputs, *(slot for slot, _ in new.conditions)) if slot is not None)
        found.append(new)
    found.reverse()
    mark_last_uses(found, kept)
    return found
