"""Turn a loaded module back into the graph of its file: the same nodes and names, with its current tensors and modes.

The module does not run, so no example is necessary and free axes stay free. The file changes only where the user has
changed something: contents, the form of nodes that have a mode, and the outputs of the graph. If the calls of a
function must differ, they are inlined.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import onnx
from onnx import helper

from minorm.onnx.conversion.rewriting import Rewriter, drop_descriptions
from minorm.onnx.exporting.bodies import Bodies
from minorm.onnx.exporting.state import State
from minorm.onnx.graph import versions
from minorm.onnx.graph.errors import ExportError, RuleNotApplicable
from minorm.onnx.graph.names import drop, reads_of, refill
from minorm.onnx.graph.node_rewriter import Kinds, Values, constant_of, in_words
from minorm.onnx.graph.registry import MODES
from minorm.onnx.loading.graph_module import GraphModule
from minorm.onnx.loading.original import Original, Placed
from minorm.onnx.loading.signatures import opset_table
from minorm.onnx.loading.updates import ENDING


class NeedsExample(ExportError):
    """The file's own nodes cannot express the module. Tracing the module can, but tracing needs an example."""


class Restorer:
    """Writes a module back. `model` is the result; the elements of its large initializers are in `state.contents`.

    kinds       a function that infers types and shapes; it is called if the graph does not declare them
    embedded    True if the new values of all buffers become outputs, whatever the mode of the module is
    """

    def __init__(
        self, module: GraphModule, training: bool | None, kinds: Callable[[Any], Kinds], embedded: bool = False
    ) -> None:
        assert module.original is not None
        self.module, self.training, self.embedded = module, training, embedded
        self.original: Original = module.original
        self.model: Any = onnx.ModelProto()
        self.model.CopyFrom(self.original.model)
        self.graph = self.model.graph
        self.bodies = Bodies(self.model, self.original.layout)
        self.state = State(module, self.model, self.bodies)
        self.values: dict[int, Values] = {}
        self.rewriter = Rewriter(self.model, self.original.opset, lambda: kinds(self.model), dict)
        self.new_outputs: list[Any] = []
        self.file_outputs = {entry.name for entry in self.original.model.graph.output}

    def restore(self) -> Any:
        """Return the ModelProto."""
        self.bodies.write_out({call for value in self._differing() for call in self.bodies.calls_around(value)})
        self._set_modes()
        self.state.fill(self._values(self.graph))
        self._set_outputs()
        return self.model

    # Functions whose calls differ

    def _differing(self) -> Iterable[str]:
        """Yield names of values inside function calls that must be inlined, because the calls differ."""
        homes = self.original.layout.homes
        yield from (name for name in self.module.output_names if name in homes and self._is_inner(name))
        for placed in self.module.placed:
            if self.bodies.calls_around(placed.value):
                if placed.value in homes and self._changes(placed):
                    yield placed.value
                if any(map(self.state.differs, placed.statistics)):
                    yield placed.value
        yield from self.state.apart()

    def _is_inner(self, name: str) -> bool:
        return all(name not in node.output for node in self.graph.node)

    def _changes(self, placed: Placed) -> bool:
        """Return True if the layer's mode changes the form that the node has in the file."""
        if placed.operator not in MODES:
            return False
        holder, _ = self.bodies.find(placed.value)
        node = self.bodies.maker(placed.value)
        tried = type(node)()
        tried.CopyFrom(node)
        new = self._apply(placed, tried, holder)[1]
        return bool(new) or tried != node

    # Modes

    def _trains(self, placed: Placed) -> bool:
        layer = placed.layer
        return (layer.training if self.training is None else self.training) and not layer.frozen

    def _apply(self, placed: Placed, node: Any, holder: Any) -> tuple[Any, tuple[str, ...]]:
        """Give the node the form that its operator has for the layer's mode.

        Return the NodeRewriter of the node, and the names of the statistics that become outputs.
        """
        opsets = opset_table(getattr(holder, "opset_import", self.model.opset_import), "the model")
        since = versions.resolve(node.op_type, opsets[""])
        draft = self.rewriter.draft(node, since, self._values(holder))
        trains = self._trains(placed)
        described = getattr(placed.layer, "statistics", None) is not None
        kept = placed.statistics and f"{placed.statistics[0]}{ENDING}" in self.file_outputs
        if described and trains and not kept:
            raise NeedsExample(
                f"export: {draft.label!r} updates running statistics in a way for which ONNX has no operator, so the "
                "training form needs nodes that the file does not have; give an example: export(model, args, ...)"
            )
        if described and trains:
            return draft, ()
        named = (
            self.training
            or self.embedded
            or (placed.statistics and f"{placed.statistics[0]}{ENDING}" in self.module.updated_names)
        )
        updates = bool(trains and named and getattr(placed.layer, "updates", False))
        try:
            new = MODES[node.op_type](draft, trains, updates, placed.statistics)
        except RuleNotApplicable as why:
            raise ExportError(f"export: {in_words(node)}: {why}") from why
        return draft, new if updates else ()

    def _values(self, holder: Any) -> Values:
        if id(holder) not in self.values:
            path = self.bodies.paths.get(id(holder), "")
            around = self._values(self.bodies.holders[path.rpartition("/")[0]]) if "/" in path else None
            values = self.values[id(holder)] = self.rewriter.values(holder, path, around)
            constants = [node for node in holder.node if node.op_type == "Constant" and len(node.output) == 1]
            values.tensors |= {node.output[0]: t for node in constants if (t := constant_of(node)) is not None}
        return self.values[id(holder)]

    def _set_modes(self) -> None:
        current: dict[str, str] = {}  # buffer -> its next value
        first: dict[tuple[str, ...], list[str]] = {}  # statistics -> the inputs of their layer's first call
        for placed in self.module.placed:
            node = self.bodies.maker(placed.value)
            if node is None or node.op_type not in MODES or not getattr(placed.layer, "owned", True):
                continue
            holder, _ = self.bodies.find(placed.value)
            if placed.statistics and holder is self.graph and len(node.input) > 4:
                names = first.setdefault(placed.statistics, list(node.input[3:5]))
                if not self._trains(placed):  # a further call reads these too, not the previous call's results
                    node.input[3], node.input[4] = names
            draft, new = self._apply(placed, node, holder)
            if new and holder is not self.graph:
                raise ExportError(
                    f"export: {draft.label!r} is inside a branch, which cannot return new running statistics; freeze "
                    "the layer, or export its inference form"
                )
            for index, buffer in enumerate(placed.statistics[:2]):
                if buffer in current:
                    node.input[3 + index] = current[buffer]
            current |= dict(zip(placed.statistics, new, strict=False))
            if draft.before or draft.behind or draft.node is None:
                self.bodies.place(holder, node, draft.before, draft.behind, stays=draft.node is not None)
            if "warning" in draft.notes:
                warnings.warn(f"export: {draft.notes['warning']}", stacklevel=5)
        if not current:
            return
        read = reads_of(self.graph.node) | {entry.name for entry in self.graph.output}
        makers = {name: node for node in self.graph.node for name in node.output}
        for buffer, value in current.items():
            self._return(buffer, value, makers[value], value in read)

    def _return(self, buffer: str, value: str, node: Any, read: bool) -> None:
        """Add a graph output `<buffer>.updated`, which holds the buffer's new value.

        value    the name of the new value, which `node` computes
        read     True if another node reads the new value
        """
        name = f"{buffer}{ENDING}"
        if name in self.file_outputs:
            return
        if name != value and (read or name in self.rewriter.taken):
            name = self.rewriter.values(self.graph, "").fresh(name)
            self.graph.node.append(helper.make_node("Identity", [value], [name], name))
        else:
            node.output[list(node.output).index(value)] = name
        array = self.state.arrays[buffer]
        elem = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.new_outputs.append(helper.make_tensor_value_info(name, elem, array.shape))

    # Outputs

    def _set_outputs(self) -> None:
        """Set the outputs: first the module's results, then new values of buffers. Drop nodes that no output needs."""
        asked = list(self.module.output_names)
        file = {entry.name: entry for entry in self.graph.output}
        updates = {f"{name}{ENDING}" for name in self.state.arrays} - set(asked)
        owners: dict[str, list[Placed]] = {}  # a buffer's next value -> its layers
        for placed in self.module.placed:
            for statistic in placed.statistics:
                owners.setdefault(f"{statistic}{ENDING}", []).append(placed)
        kept = [name for name in file if name in updates and self._is_kept(owners.get(name, []))]
        results = [name for name in file if name not in updates]
        described = {entry.name: entry for entry in self.graph.value_info} | file
        entries = [described.get(name) or onnx.ValueInfoProto(name=name) for name in asked]
        entries = [*entries, *(file[name] for name in kept), *self.new_outputs]
        if results == asked and len(results) + len(kept) == len(file):
            entries = [*file.values(), *self.new_outputs]  # in the order of the file
        refill(self.graph.output, entries)
        fewer = results != asked or len(kept) < len(updates & file.keys())
        if fewer or any(values.absorbed for values in self.values.values()):
            self._prune(results != asked)
        given = {entry.name for entry in (*self.graph.input, *self.graph.output)}
        drop_descriptions(self.graph, [*given, *(t.name for t in self.graph.initializer)])

    def _is_kept(self, layers: Sequence[Placed]) -> bool:
        """Return True if a buffer's new value stays an output.

        All layers that own the buffer must train; if no layer owns it, `training` must not be False.
        """
        return all(map(self._trains, layers)) if layers else self.training is not False

    def _prune(self, inputs_too: bool) -> None:
        wanted = {entry.name for entry in self.graph.output}
        nodes = self.graph.node
        for index in range(len(nodes) - 1, -1, -1):
            if wanted.isdisjoint(filter(None, nodes[index].output)):
                del nodes[index]
            else:
                wanted |= reads_of([nodes[index]])
        for tensor in self.graph.initializer:
            if tensor.name not in wanted:
                self.state.contents.pop(tensor.name, None)
        drop(self.graph.initializer, lambda tensor: tensor.name not in wanted)
        held = {tensor.name for tensor in self.original.model.graph.initializer}
        drop(self.graph.input, lambda entry: entry.name not in wanted and (inputs_too or entry.name in held))
