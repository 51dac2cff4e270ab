"""Keep a loaded module's file without its large tensors, so that `export` can write it back.

The copy omits the contents of the tensors that the module now holds: Parameters, buffers and constants.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import onnx
from onnx import AttributeProto

from minorm.nn import Module
from minorm.onnx.graph.encoding import PAYLOAD
from minorm.onnx.graph.node_rewriter import tensors_of
from minorm.onnx.graph.storage import embedded_weights
from minorm.onnx.graph.tensors import Budget
from minorm.onnx.loading.exchange import stand_in
from minorm.onnx.loading.flattening import Layout

LEAST = 1024  # bytes; smaller tensors stay in the copy


@dataclass
class Placed:
    """Says which node of the file holds the mode of a layer; `value` is the node's first output in the flat list."""

    value: str
    operator: str
    layer: Module
    statistics: tuple[str, ...]  # the buffers that it owns


class Start(NamedTuple):
    """Says how a buffer starts: the name of the value in the file, and the contents of this value."""

    value: str
    array: Any


@dataclass(frozen=True)
class Original:
    """Holds the file of a loaded module, without the contents that the module holds. An Original does not change,
    because copies of the module share it.

    model       the file's ModelProto, in which a tensor that the module holds has only a name, a type and a shape
    layout      how functions and branches were flattened
    starts      buffer -> its first value in the file, unless this is an initializer with the name of the buffer
    expanded    tensor that repeats a Parameter for each sample -> this Parameter, and the tensor's shape in the file
    outside     True if the file kept weights in other files
    """

    model: Any
    layout: Layout
    starts: Mapping[str, Start] = field(default_factory=dict)
    expanded: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    outside: bool = False

    def __deepcopy__(self, memo: Any) -> Original:
        return self

    def replaced(
        self, inputs: Sequence[str], output: str, returned: Sequence[str], gone: Collection[str]
    ) -> Original | None:
        """Return the file with a layer's stand-in node instead of the nodes that compute `output`.

        returned    the names of the values that the module returns
        gone        the outputs of the file to drop

        Return None if `output` or one of `inputs` is a value inside a function.
        """
        if not self.layout.homes.keys().isdisjoint([*inputs, output]):
            return None
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        layout = stand_in.put_layer(model, self.layout, inputs, output, returned, gone)
        held = {tensor.name for tensor in tensors_of(model)} | {n for node in model.graph.node for n in node.output}
        expanded = {name: whole for name, whole in self.expanded.items() if name in held}
        return replace(self, model=model, layout=layout, expanded=expanded)

    @property
    def opset(self) -> int:
        """Return the opset of ONNX's own operators."""
        own = [entry.version for entry in self.model.opset_import if entry.domain in ("", "ai.onnx")]
        return max(own, default=1)  # without an entry, the file has no nodes of ONNX's own domain


def keep(
    model: Any,
    layout: Layout,
    folder: str | None,
    budget: Budget,
    held: Collection[str],
    read: Collection[str] | None,
    starts: Mapping[str, Start],
    expanded: Mapping[str, tuple[str, tuple[int, ...]]],
) -> Original:
    """Return a copy of the model without the contents of the tensors in `held`.

    folder    the folder of the weights that are not in the file itself
    read      the values that the module of a cut graph reads; other initializers are left out. None if the graph is
              whole
    """
    copy = onnx.ModelProto()
    _copy(model, copy, "graph")
    _graph(model.graph, copy.graph, held, read)
    outside = embedded_weights.is_outside(model)
    if outside:
        embedded_weights.bring_in(copy, folder, budget)
    return Original(copy, layout, dict(starts), dict(expanded), outside)


def _graph(old: Any, new: Any, held: Collection[str], read: Collection[str] | None) -> None:
    _copy(old, new, "initializer", "node")
    for tensor in old.initializer:
        if read is None or tensor.name in read:
            _tensor(tensor, new.initializer.add(), held)
    for node in old.node:
        _node(node, new.node.add(), held)


def _node(old: Any, new: Any, held: Collection[str]) -> None:
    if old.op_type != "Constant" or len(old.attribute) != 1 or not old.attribute[0].HasField("t"):
        new.CopyFrom(old)
        return
    _copy(old, new, "attribute")
    given = new.attribute.add(name=old.attribute[0].name, type=AttributeProto.TENSOR)
    _tensor(old.attribute[0].t, given.t, {old.attribute[0].t.name} if old.output and old.output[0] in held else ())


def _copy(old: Any, new: Any, *but: str) -> None:
    """Copy the fields of a message, except the fields in `but` and texts (comments, say) that are not UTF-8."""
    for entry in old.DESCRIPTOR.fields:
        if entry.name in but:
            continue
        if entry.is_repeated:
            getattr(new, entry.name).extend(getattr(old, entry.name))
        elif old.HasField(entry.name):
            with suppress(UnicodeDecodeError):
                setattr(new, entry.name, getattr(old, entry.name))


def _tensor(old: Any, new: Any, held: Collection[str]) -> None:
    if old.name not in held or not is_large(old):
        new.CopyFrom(old)
        return
    _copy(old, new, *PAYLOAD, "data_location", "external_data", "segment")


def is_large(tensor: Any) -> bool:
    """Return whether a tensor is so large that the copy leaves out its contents."""
    return math.prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize >= LEAST
