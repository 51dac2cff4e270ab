"""Compare a written file with the model itself, which minorm runs at each size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minorm.graph.grad_mode import no_grad
from minorm.onnx.checking import trial_sizes
from minorm.onnx.checking.sandbox import Trial
from minorm.onnx.checking.size_checks import Comparison, first_difference
from minorm.onnx.checking.trial_sizes import Size
from minorm.onnx.conversion.equivalence import inputs_of, labels_of
from minorm.onnx.exporting.runs import results, same_random_numbers_after
from minorm.onnx.exporting.trace_lengths import REFUSALS
from minorm.onnx.exporting.translating import Translated
from minorm.onnx.graph.errors import ExportError, Unstable
from minorm.onnx.graph.model_graph import ELEMENT_TYPES
from minorm.onnx.loading.graph_module import GraphModule
from minorm.onnx.loading.load import load
from minorm.onnx.loading.updates import ENDING
from minorm.tensor.tensor import Tensor


class TranslatedModel:
    """Computes the correct results with the traced model."""

    name = "the model"
    looks_inside = True

    def __init__(self, translated: Translated) -> None:
        self.translated, self.training = translated, translated.training

    def try_all(self, groups: Sequence[Sequence[Size]]) -> list[Trial]:
        """Run the model in this process, except on the example, whose results are known already."""
        return [tried(group, self._results) for group in groups]

    def _results(self, size: Size) -> list[Tensor]:
        translated = self.translated
        if size.exact:
            return translated.results
        return results(translated.model, self._args(size), translated.mode, translated.became)

    def _args(self, size: Size) -> tuple[Any, ...]:
        return self.translated.example.given([Tensor(array) for array in size.arrays().values()])

    def where(self, new: Any, size: Size, folder: str | None) -> str:
        """Find the node at which the file begins to differ from the model at this size.

        We trace the model again, together with the runs that made the file. If a length or a number of this trace
        differs from the file, we have found the node. Otherwise we compare the results of each node in onnxruntime with
        those in the model.
        """
        translated = self.translated
        try:
            follower = translated.follow(self._args(size), size.bound)
        except (Unstable, ExportError) as error:
            return f"; {str(error).removeprefix('export: ')}"
        if any(a.operator != b.operator for a, b in zip(follower.graph.nodes, translated.nodes, strict=False)):
            return ""  # this time the model was written in another way, so the places of nodes differ
        written = {node.name for node in new.graph.node}
        for place, how in follower.strays:
            node = translated.nodes[place]
            if node.name:
                where = f"node {node.name!r} ({node.operator})" if node.name in written else node.scope
                return f"; in {where} {how}"
        # An array that was changed in place no longer holds a node's result.
        changed = [array for array, _ in follower.originals[-1].values()]
        tensors = {
            id(value): tensor
            for value, tensor in follower.followed
            if not any(np.may_share_memory(tensor.array, array) for array in changed)
        }
        right = {
            name.name: tensors[id(value)].array
            for theirs, ours in zip(follower.graph.nodes, translated.nodes, strict=False)
            for value, name in zip(theirs.outputs, ours.outputs, strict=True)
            if value is not None and name is not None and ours.name and name.name and id(value) in tensors
        }
        return first_difference(new, size, right, folder, self.training)


def tried(group: Sequence[Size], run: Callable[[Size], Sequence[Tensor | None]]) -> Trial:
    """Try the sizes of a group until the model accepts one; return the results, and the errors of the earlier sizes."""
    errors: list[str] = []
    for place, size in enumerate(group):
        try:
            return Trial(place, errors, tuple(None if tensor is None else tensor.array for tensor in run(size)))
        except (*REFUSALS, MemoryError) as error:
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            errors.append(" ".join(f"{kind}{error}".split())[:1000])
    return Trial(None, errors)


def against(translated: Translated) -> Comparison:
    """Return a Comparison with a traced model, on the example and with other lengths of every free axis."""
    example, symbols = translated.example, translated.example.symbols
    labels: dict[str, list[int | str]] = {
        name: [symbols.names[axes[i]] if i in axes else n for i, n in enumerate(tensor.shape)]
        for name, tensor, axes in zip(example.names, example.tensors, example.axes, strict=True)
    }
    names = [entry.name for entry in translated.proto.graph.input]
    inputs = dict(zip(names, labels.values(), strict=True))
    return of(TranslatedModel(translated), inputs, example.tensors, translated.training)


def of(source: Any, labels: trial_sizes.Labels, example: Sequence[Tensor], training: bool) -> Comparison:
    """Return a Comparison at sizes near the example's; `labels` has each input's lengths, or the names of free ones."""
    arrays: Mapping[str, Any] = {name: tensor.array for name, tensor in zip(labels, example, strict=True)}
    elems = {name: ELEMENT_TYPES[array.dtype][0] for name, array in arrays.items()}
    return Comparison(source, trial_sizes.around(labels, elems, arrays, 2 if training else 1), "export")


# A loaded graph that is written back


class LoadedGraph:
    """Computes the correct results with a loaded graph, in the mode of the written file.

    outputs    for each output of the new file: an int, the index of the result; a str, the name of the updated buffer;
               or None for any other output
    """

    name = "the model"
    looks_inside = True

    def __init__(self, model: GraphModule, training: bool | None, outputs: Sequence[int | str | None]) -> None:
        self.model, self.mode, self.outputs = model, training, outputs
        self.training = training is not False

    def try_all(self, groups: Sequence[Sequence[Size]]) -> list[Trial]:
        """Run the graph in this process."""
        return [tried(group, self._results) for group in groups]

    def _results(self, size: Size) -> list[Tensor | None]:
        args, buffers = tuple(map(Tensor, size.arrays().values())), [n for n in self.outputs if isinstance(n, str)]
        found = results(self.model, args, self.mode, buffers)
        after = dict(zip(buffers, found[len(self.model.output_names) :], strict=True))
        return [found[n] if isinstance(n, int) else after[n] if n is not None else None for n in self.outputs]

    def where(self, new: Any, size: Size, folder: str | None) -> str:
        """Load the new file in minorm, and find the first node whose results in onnxruntime and minorm differ."""
        names = [name for node in new.graph.node for name in node.output if name]
        try:
            again = load(new, outputs=names)
            with same_random_numbers_after(again), no_grad():
                found = again(*(size.arrays()[entry.name] for entry in again.inputs))
        except (*REFUSALS, MemoryError):
            return ""
        values = found if isinstance(found, tuple) else (found,)
        right = dict(zip(names, (value.array for value in values), strict=True))
        return first_difference(new, size, right, folder, self.training)


def of_graph(
    model: GraphModule,
    new: Any,
    training: bool | None,
    output_names: Sequence[str],
    example: Sequence[Tensor] | None = None,
) -> Comparison:
    """Return a Comparison with a loaded graph, at sizes near the example's, or on random inputs if there is no example.

    new             the file that is written from the graph; the contents of its tensors may be missing
    output_names    the names of the graph's results in the new file; all other outputs are new values of buffers
    """
    entries, buffers = inputs_of(new.graph), dict(model.named_buffers())
    labels = {entry.name: labels_of(entry, {}, "export") for entry in entries}
    outputs: list[int | str | None] = []
    for entry in new.graph.output:
        buffer = entry.name.removesuffix(ENDING)
        known = buffer if buffer in buffers and buffer != entry.name else None
        outputs.append(list(output_names).index(entry.name) if entry.name in output_names else known)
    source = LoadedGraph(model, training, outputs)
    if example is not None:
        return of(source, labels, example, training is not False)
    elems = {entry.name: entry.type.tensor_type.elem_type for entry in entries}
    return Comparison(source, trial_sizes.usual(labels, elems), "export")
