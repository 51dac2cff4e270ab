"""Put the body of a Loop or Scan into a flat list, between a node that enters the body and a node that ends it.

The two nodes compute their outputs from these inputs (inputs -> outputs):

    enters    the inputs of the Loop -> the inputs of its body
    ...       the nodes of the body
    last      the inputs of the Loop, the inputs and the outputs of its body -> the outputs of the Loop

So a walk forwards through the list meets every value before the values that depend on it. A walk backwards meets every
value after the values that depend on it. The list does not show which values one turn passes to the next turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minorm.onnx.graph import tensors
from minorm.onnx.graph.errors import LoadError


@dataclass(frozen=True, eq=False)
class Body:
    """The graph that a Loop or Scan repeats. The values of this graph have the names of the flat list.

    given       the number of inputs of the Loop or Scan
    before      the number of these inputs before the carried values: a Loop has a trip count and a condition there
    heads       two numbers: how many inputs of the body (iteration, condition), and how many outputs of the body
                (condition), come before the carried values
    carried     the number of values that one turn passes to the next
    declared    the type and the shape of each output, if the file gives them; a free length is 0
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
        """Make the Body of a graph, with the names of the graph; raise LoadError if the graph does not fit its node.

        inputs     the inputs of the Loop or Scan
        outputs    the number of outputs of the Loop or Scan
        scanned    the number of inputs over which a Scan iterates
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
                f"{wanted[0]} inputs and {wanted[1]} outputs, each with a name"
            )
        if "" in inputs[before:]:
            raise LoadError(f"load: {what} lacks input {inputs.index('', before)}")
        declared = tuple(map(_declared, graph.output))
        return cls(names[0], names[1], len(inputs), before, heads, carried, declared)

    @property
    def collected(self) -> int:
        """The number of outputs whose values from all turns are stacked into one Tensor."""
        return len(self.outputs) - self.heads[1] - self.carried

    def source(self, place: int, enters: bool) -> int | None:
        """Return the index of the input that has the same type as output `place`; None if no input has this type.

        enters    True for the node that enters the body, False for the node that ends it

        The result is None for two outputs: the number of the turn (an integer) and the condition.
        """
        if enters:
            return None if place < self.heads[0] else place - self.heads[0] + self.before
        if place < self.carried:
            return self.before + place
        return self.given + len(self.inputs) + self.heads[1] + place

    @property
    def condition(self) -> int | None:
        """The index of the condition among the inputs of the node that ends the body; None for a Scan."""
        return self.given + len(self.inputs) if self.heads[1] else None


def _declared(entry: Any) -> tuple[Any, tuple[int, ...]]:
    """Return the declared type and shape of a value; a free length is 0."""
    kind = entry.type.tensor_type
    return tensors.DTYPES.get(kind.elem_type), tuple(max(0, length.dim_value) for length in kind.shape.dim)
