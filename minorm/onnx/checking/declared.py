"""Compare the lengths that a file declares with the real lengths: onnxruntime uses declared lengths to plan memory.

If the file declares a number for an axis, this number must be the real length. If the file declares a name, all axes
with this name, in values and inputs, must have the same length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx

from minorm.onnx.checking import sandbox
from minorm.onnx.checking.trial_sizes import Size
from minorm.onnx.graph import encoding
from minorm.onnx.graph.lengths import length_of
from minorm.onnx.graph.node_rewriter import in_words

Shapes = dict[str, tuple[int, ...]]
_MARK = "/shape of "


def bare(model: Any) -> Any:
    """Copy the model, but leave out the declared shapes of computed values, because these may be wrong."""
    encoding.reserve(3 * model.ByteSize(), "verify: a copy of the model")
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    for entry in copy.graph.output:
        entry.type.tensor_type.ClearField("shape")
    return copy


def shapes_of(model: Any, sizes: Sequence[Size], folder: str | None = None) -> list[Shapes]:
    """Run the model in onnxruntime at each size; return the shapes of all values with declared lengths.

    The result has a dict of shapes for each size. The dict is empty if the run fails.
    """
    entries = (*model.graph.value_info, *model.graph.output)
    declared = {entry.name for entry in entries if entry.type.tensor_type.HasField("shape")}
    made = [name for node in model.graph.node for name in node.output if name in declared]
    copy = bare(model)
    del copy.graph.output[:]
    for name in made:
        copy.graph.node.append(onnx.helper.make_node("Shape", [name], [_MARK + name]))
        kind = onnx.helper.make_tensor_value_info(_MARK + name, onnx.TensorProto.INT64, [None])
        copy.graph.output.append(kind)
    trials = sandbox.try_all(copy, [[size.request()] for size in sizes], folder) if made else []
    if isinstance(trials, sandbox.Stage) or not trials:
        return [{} for _ in sizes]
    return [{n: tuple(map(int, shape)) for n, shape in zip(made, t.outputs, strict=False)} for t in trials]


def contradictions(model: Any, found: Shapes, bound: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield (value, error) for each value whose declared lengths are wrong, in the order of the graph.

    bound    the lengths of the inputs' free axes, by name
    """
    declared = {entry.name: entry for entry in (*model.graph.value_info, *model.graph.output)}
    names = dict(bound)
    for name, shape in found.items():
        if name not in declared:
            continue
        dims = declared[name].type.tensor_type.shape.dim
        said = [None if (n := length_of(dim)) == "" else n for dim in dims]
        wrong = len(said) != len(shape)
        for length, n in zip(said, shape, strict=False):
            known = names.setdefault(length, n) if isinstance(length, str) else n if length is None else length
            wrong = wrong or known != n
        if wrong:
            meant = ", ".join("?" if n is None else str(n) for n in said)
            where = ", ".join(f"{n} = {names[n]}" for n in dict.fromkeys(said) if isinstance(n, str) and n in names)
            yield name, f"has shape {shape}, but the file declares ({meant}){f' with {where}' if where else ''}"


def maker(model: Any, name: str) -> str:
    """Return words that describe the node that computes a value."""
    for node in model.graph.node:
        if name in node.output:
            return in_words(node)
    return "no node"
