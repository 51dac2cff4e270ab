"""The graph inside a Loop or Scan, in a flat list of nodes: it stands between the node that enters it and the last one.

    enters    what the Loop is given -> the inputs of its body
    ...       the nodes of the body
    last      what the Loop is given, the inputs and the outputs of its body -> the outputs of the Loop

Who walks the list, forwards or backwards, so meets every value before, or after, all that is made of it; only what
one turn hands to the next does not show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minorm.onnx.graph import tensors
from minorm.onnx.graph.errors import LoadError


@dataclass(frozen=True, eq=False)
class Body:
    """What a Loop or Scan repeats; values by their names in the flat list.

    given       how many inputs the Loop or Scan has
    before      how many of them stand before the values it carries: the trip count and the condition
    heads       how many inputs, and outputs, of the body stand before these: iteration and condition, and the condition
    carried     how many values one turn hands to the next
    declared    type and shape of each output, as far as the file says; a length that it leaves free is 0
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    given: int
    before: int
    heads: tuple[int, int]
    carried: int
    declared: tuple[tuple[Any, tuple[int, ...]], ...]

    @classmethod
    def of(
        cls, graph: Any, operator: str, opset: int, inputs: tuple[str, ...], outputs: int, scanned: Any, what: str
    ) -> Body:
        """A graph under its own names; LoadError where it does not fit the Loop or Scan that holds it.

        inputs     of the node, which has so many `outputs`
        scanned    how many of the inputs a Scan goes through
        """
        batched = operator == "Scan" and opset < 9  # the lengths of the sequences come first
        before, heads = (2, (2, 1)) if operator == "Loop" else (int(batched), (0, 0))
        carried = len(inputs) - before - scanned if isinstance(scanned, int) else -1
        if carried < 0 or scanned < (operator == "Scan") or outputs < carried:
            raise LoadError(
                f"load: {what} has {len(inputs)} inputs, {outputs} outputs and num_scan_inputs={scanned!r:.80}, "
                "which do not fit together"
            )
        wanted = len(inputs) - before + heads[0], outputs + heads[1]
        names = [
            tuple(tensors.text(entry.name, "a name in a loop") for entry in e) for e in (graph.input, graph.output)
        ]
        if (len(names[0]), len(names[1])) != wanted or "" in (*names[0], *names[1]):
            raise LoadError(
                f"load: the body of {what} has {len(names[0])} inputs and {len(names[1])} outputs; expected "
                f"{wanted[0]} and {wanted[1]}, each with a name"
            )
        if "" in inputs[before:]:
            raise LoadError(f"load: {what} lacks input {inputs.index('', before)}")
        declared = tuple(map(_declared, graph.output))
        return cls(names[0], names[1], len(inputs), before, heads, carried, declared)

    @property
    def collected(self) -> int:
        """How many outputs become one Tensor of what they were in each turn."""
        return len(self.outputs) - self.heads[1] - self.carried

    def source(self, place: int, enters: bool) -> int | None:
        """The input whose type output `place` has, of the node that enters the body or of the last; None if neither.

        Those are the number of the turn, an integer, and the condition.
        """
        if enters:
            return None if place < self.heads[0] else place - self.heads[0] + self.before
        if place < self.carried:
            return self.before + place
        return self.given + len(self.inputs) + self.heads[1] + place

    @property
    def condition(self) -> int | None:
        """The input of the last node that says whether there is a next turn."""
        return self.given + len(self.inputs) if self.heads[1] else None


def _declared(entry: Any) -> tuple[Any, tuple[int, ...]]:
    """The type and shape of a value, as far as it says them; a free length is 0."""
    kind = entry.type.tensor_type
    return tensors.DTYPES.get(kind.elem_type), tuple(max(0, length.dim_value) for length in kind.shape.dim)
