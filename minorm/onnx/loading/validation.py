"""Check that a file is a valid model, before we trust the file, compute with it or allocate memory for it.

We do not use the checker of the onnx package here. The checker is C++ code that would read a foreign file in this
process, and with shape inference a small file can crash this code (SECURITY.md). The checker also refuses some valid
models (GroupNormalization 18). The checks here include the onnx checker's rules for nodes, names and attributes.
`minorm check` runs the onnx checker in a separate process.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.defs import OpSchema

from minorm.onnx.graph import registry, schemas, versions
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.reading import Node
from minorm.onnx.loading.signatures import opset_table


def opsets_of(model: Any) -> dict[str, int]:
    """Check the model's header, and return the opsets by domain."""
    newest = onnx.IR_VERSION
    if not 1 <= model.ir_version <= newest:
        raise LoadError(
            f"load: ir_version is {model.ir_version}; expected 1 to {newest}; is this an ONNX model, and written for "
            f"onnx {onnx.__version__} or an older one?"
        )
    if not model.HasField("graph"):
        raise LoadError("load: the model has no graph")
    opsets = opset_table(model.opset_import, "the model")
    if not opsets and model.ir_version < 3:
        return {"": 1}
    if not opsets:
        raise LoadError("load: the model does not say which opset it is of (opset_import is empty)")
    if "" in opsets and not 1 <= opsets[""] <= versions.NEWEST:
        raise LoadError(f"load: the model is of opset {opsets['']}; minorm knows opsets 1 to {versions.NEWEST}")
    return opsets


def check_order(nodes: Sequence[Node], given: Iterable[str], outputs: Iterable[str]) -> None:
    """Check that every value is computed exactly once and before it is read, so that the graph has no cycle."""
    known = set(given)
    computed = {name for node in nodes for name in node.outputs}
    made: list[str] = []  # by the nodes, in their order
    opened: list[int] = []  # for each body around us, the length of `made` at its beginning
    hidden = set[str]()  # in bodies that have ended
    for node in nodes:
        for name in (*node.inputs, *(condition for condition, _ in node.conditions)):
            if name and name not in known:
                raise LoadError(f"load: {node} reads {name!r}, which {_why_unknown(name, computed, hidden)}")
        if node.enters:
            opened.append(len(made))
        elif node.body is not None:
            begin = opened.pop()
            hidden.update(made[begin:])
            known.difference_update(made[begin:])
            del made[begin:]
        for name in filter(None, node.outputs):
            if name in known or name in hidden:
                raise LoadError(f"load: {node} computes {name!r}, which exists already; expected every name only once")
            known.add(name)
            made.append(name)
    for name in outputs:
        if name not in known:
            why = _why_unknown(name, set(), hidden) if name in hidden else "nothing computes it"
            raise LoadError(f"load: {name!r} is an output of the graph, but {why}")


def _why_unknown(name: str, computed: Container[str], hidden: Container[str]) -> str:
    if name in hidden:
        return "is a value inside a loop, which cannot be read outside"
    if name in computed:
        return "is computed later: the nodes are out of order, or form a cycle"
    return "nothing computes: it is not an input, an initializer or a node's output"


def needed(nodes: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """Return the nodes on which at least one output depends, in order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if any(name in wanted for name in node.outputs if name):
            wanted.update(node.inputs, (condition for condition, _ in node.conditions))
            kept.append(node)
    return kept[::-1]


# A node against its schema


@functools.cache
def schema_of(operator: str, since: int) -> Any:
    """Return the schema of this version of an operator."""
    return onnx.defs.get_schema(operator, since, "")


_KINDS: dict[Any, tuple[type, type]] = {
    OpSchema.AttrType.FLOAT: (float, object),
    OpSchema.AttrType.INT: (int, object),
    OpSchema.AttrType.STRING: (str, object),
    OpSchema.AttrType.TENSOR: (np.ndarray, object),
    OpSchema.AttrType.FLOATS: (list, float),
    OpSchema.AttrType.INTS: (list, int),
    OpSchema.AttrType.STRINGS: (list, str),
}

# The least value of an attribute, by name; for a list, of each of its numbers.
_LEAST = {
    **dict.fromkeys(("kernel_shape", "strides", "dilations", "group", "blocksize", "num_groups", "num_outputs"), 1),
    **dict.fromkeys(("size", "output_shape"), 1),
    **dict.fromkeys(("split", "output_padding"), 0),
}
_MOST = 2**31 - 1  # the greatest value of these, and of paddings


def check_node(node: Node) -> None:
    """Raise LoadError for a wrong number of inputs or outputs, or an attribute of a wrong name, type or range."""
    if node.operator == "If" or node.enters:  # in minorm's own forms, see flattening.py
        return
    schema = schema_of(node.operator, node.since)
    inputs = node.inputs if node.body is None else node.inputs[: node.body.given]
    graphs = {name for name, attribute in schema.attributes.items() if attribute.type == OpSchema.AttrType.GRAPH}
    if why := schemas.misfit(schema, inputs, node.outputs, {*node.attributes, *graphs}):
        raise LoadError(f"load: {node} {why}")
    for name, value in node.attributes.items():
        expected, each = _KINDS.get(schema.attributes[name].type, (object, object))
        if not isinstance(value, expected) or (isinstance(value, list) and not all(isinstance(v, each) for v in value)):
            raise LoadError(f"load: {node}: attribute {name!r} is {value!r:.80}; expected {expected.__name__}")
        _check_range(node, name, value)


def fixed_inputs(node: Node) -> Container[int]:
    """Return the inputs through which no gradient flows; () for a damaged node, which the reader may not understand."""
    return registry.READERS[node.operator, node.since].fixed_inputs(node) if is_sound(node) else ()


def is_sound(node: Node) -> bool:
    """Return True if the node fits its operator's version; a reader may be called only with such a node."""
    try:
        check_node(node)
    except LoadError:
        return False
    return True


def _check_range(node: Node, name: str, value: Any) -> None:
    if name == "epsilon" and not 0 <= value < math.inf:
        raise LoadError(f"load: {node}: epsilon is {value}; expected a finite number of at least 0")
    least = _LEAST.get(name)
    if name == "pads":
        least = -_MOST if node.operator == "Pad" else 0
    numbers = value if isinstance(value, list) else [value]
    if least is not None and not all(isinstance(n, int) and least <= n <= _MOST for n in numbers):
        raise LoadError(f"load: {node}: {name} is {value}; expected at least {least} and at most {_MOST}")
