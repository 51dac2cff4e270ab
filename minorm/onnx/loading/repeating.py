"""Run the body of a Loop or Scan in a loaded graph: the body has separate slots, which every turn fills again.

The step that repeats the body has two groups of inputs: first the node's inputs, then the outer values that the body
reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from minorm.onnx.graph import memory_budget
from minorm.onnx.graph.scope import Loop
from minorm.onnx.graph.step import Step, converted, mark_last_uses, unconverted


class Turns:
    """Runs the steps of a body once for each turn.

    slots       the slots of the body's values, by name
    inputs      the names of one turn's inputs
    outputs     the names of one turn's outputs
    captured    the names of the outer values that the body reads
    """

    def __init__(
        self,
        steps: Sequence[Step],
        slots: Mapping[str, int],
        inputs: Sequence[str],
        outputs: Sequence[str],
        captured: Sequence[str],
    ) -> None:
        self.steps = list(steps)
        self.size = len(slots)
        self.captured = [slots[name] for name in captured]
        self.inputs = [slots.get(name) for name in inputs]  # None: no step reads it
        self.outputs = [slots[name] for name in outputs]
        mark_last_uses(self.steps, set(self.outputs))
        kept = unconverted(self.steps)
        self.unconverted = [place for place, slot in enumerate(self.captured) if slot in kept]

    def run(self, captured: Sequence[Any], dtype: Any, *inputs: Any) -> list[Any]:
        """Run one turn and return its outputs."""
        values: list[Any] = [None] * self.size
        for slot, value in zip(self.captured, captured, strict=True):
            values[slot] = value
        for place, value in zip(self.inputs, inputs, strict=True):
            if place is not None:
                values[place] = value
        for step in self.steps:
            step.run(values, dtype)
        results = [values[slot] for slot in self.outputs]
        return results if dtype is None else [converted(value, dtype) for value in results]


@dataclass
class Frame:
    """Collects the steps of a graph that is being built: the graph of the model, or the body of a Loop or Scan.

    made      the values that are computed inside this graph or body
    shapes    True if all values that the steps read depend on shapes and constants alone
    """

    slots: dict[str, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    made: set[str] = field(default_factory=set)
    shapes: bool = False

    def slot(self, name: str) -> int:
        """Return the slot of a value."""
        return self.slots.setdefault(name, len(self.slots))

    def turns(self, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[Turns, list[str]]:
        """Return the finished body, and the names of the outer values that it reads."""
        for name in outputs:
            self.slot(name)
        captured = [name for name in self.slots if name not in self.made]
        return Turns(self.steps, self.slots, inputs, outputs, captured), captured


@dataclass
class Repetition(Step):
    """Runs a Loop or Scan.

    The operation is called with a function that runs one turn, and with the inputs of the node.

    counted    True if shapes alone determine the number of turns
    """

    turns: Turns | None = None
    counted: bool = True

    def _results(self, arguments: list[Any], dtype: Any) -> tuple[Any, ...]:
        assert self.turns is not None
        given = memory_budget.active()
        own = len(arguments) - len(self.turns.captured)
        before = memory_budget.arrays_of(arguments)
        turn = partial(self._turn, given, before, arguments[own:], dtype)
        compute = self.operation if self.scope is None else partial(self.scope.call, self.operation)
        results: tuple[Any, ...] = (
            compute(turn, *arguments[:own]) if self.counted else Loop.call(compute, turn, *arguments[:own])
        )
        if given is not None:
            given.count(results, before)
        return results

    def _turn(
        self, given: memory_budget.MemoryBudget | None, before: set[int], captured: list[Any], dtype: Any, *inputs: Any
    ) -> list[Any]:
        assert self.turns is not None
        if given is None:
            return self.turns.run(captured, dtype, *inputs)
        with given.turn():
            given.count(inputs, before)
            return self.turns.run(captured, dtype, *inputs)
