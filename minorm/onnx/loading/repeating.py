"""The body of a Loop or Scan in a loaded graph: steps with slots of their own, which are filled anew in every turn.

It sees the values around it through the step that repeats it, which takes them as inputs behind those of the node.
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
    """Steps that run once a turn.

    slots       of the values in it, by name
    inputs      of one turn, and its outputs, by name
    captured    the values from outside
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
        self.inputs = [slots.get(name) for name in inputs]  # None: nobody reads it
        self.outputs = [slots[name] for name in outputs]
        mark_last_uses(self.steps, set(self.outputs))
        kept = unconverted(self.steps)
        self.unconverted = [place for place, slot in enumerate(self.captured) if slot in kept]

    def run(self, captured: Sequence[Any], dtype: Any, *inputs: Any) -> list[Any]:
        """The outputs of one turn."""
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
    """A graph that is being built: the model's own, or the body of a Loop or Scan.

    made      the values that are computed in it
    shapes    whether all it reads depends on shapes and constants alone
    """

    slots: dict[str, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    made: set[str] = field(default_factory=set)
    shapes: bool = False

    def slot(self, name: str) -> int:
        """The slot of a value."""
        return self.slots.setdefault(name, len(self.slots))

    def turns(self, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[Turns, list[str]]:
        """The finished body, and the names of what it sees around it."""
        for name in outputs:
            self.slot(name)
        captured = [name for name in self.slots if name not in self.made]
        return Turns(self.steps, self.slots, inputs, outputs, captured), captured


@dataclass
class Repetition(Step):
    """A Loop or Scan to run: its operation is given what runs one turn, and then the node's own inputs.

    counted    whether shapes alone say how many turns there are
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
