"""Turn recorded runs into a graph: write each call that has a rule, and look inside each call that has no rule.

We walk through all runs of the model together. We recognise a Tensor if it is the same object as an earlier Tensor, or
has the same array (`x.detach()`). A Tensor that we do not recognise is a constant. If an operation cannot be written,
the walk continues, so that the error at the end lists all such operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.graph.trace import Call
from minorm.onnx.exporting import embedding
from minorm.onnx.exporting.agreement import Agreement, same
from minorm.onnx.exporting.default_opset import NORMALIZATIONS, Pieces
from minorm.onnx.exporting.runs import Run, name_of, tensors_of
from minorm.onnx.graph import registry
from minorm.onnx.graph.errors import ExportError, RuleNotApplicable, Unstable
from minorm.onnx.graph.model_graph import Result, Value
from minorm.onnx.graph.scope import Embedded, Scope
from minorm.onnx.graph.sizes import Shape, Size, size_of
from minorm.onnx.operators.shape.generation import count
from minorm.onnx.operators.shape.shape import expand, full, reshape
from minorm.tensor.tensor import Tensor


class Writer:
    """Walks through all runs together and writes their graph; `agreement` checks that the runs agree."""

    def __init__(
        self,
        agreement: Agreement,
        homes: dict[int, str],
        labels: dict[int, str],
        training: bool | None = False,
        pieces: Pieces | None = None,
    ) -> None:
        self.graph = agreement.graph
        self.agreement = agreement
        self.training = training  # as in `export`
        self.pieces = pieces or Pieces()  # counts the nodes of normalizations
        self.homes = homes  # id of an array -> its state_dict key
        self.labels = labels  # id of an array -> the module's attribute, not a parameter or buffer, that holds it
        self.known: list[dict[int, Value]] = []  # run -> id of a Tensor -> its Value
        self.arrays: list[dict[int, Value]] = []  # run -> id of an array -> its Value
        self.kept: list[Any] = []  # objects to keep alive, so that their ids stay valid
        self.failures: list[str] = []
        self.declined: list[str] = []  # why the functions around the current call were not written whole
        self.holders: list[dict[int, list[int]]] = []  # run -> id of an array -> ids of the constants that hold it
        self.originals: list[dict[int, tuple[Any, Any]]] = []  # run -> id of a changed array -> its old contents
        self.unwritten: dict[int, str] = {}  # id of a Value without an operator -> why; an error if it is used
        self.spoilt: list[str] | None = None  # collects such reasons while a change in place is written
        self.follows = False  # True if a length that depends on a free axis was a reason
        self.operation = ""  # the name of the current call
        self.strays: list[tuple[int, str]] = []  # place of a node in the graph, and the follower's difference there
        self.followed: list[tuple[Value, Tensor]] = []  # Values, and their Tensors in the follower

    def write(self, runs: Sequence[Run], inputs: Sequence[Value], places: Sequence[int]) -> list[Value]:
        """Write the graph of the runs and return the Values of the results; `inputs[i]` is argument `places[i]`."""
        self.known = [{} for _ in runs]
        self.arrays = [{} for _ in runs]
        self.holders = [{} for _ in runs]
        self.kept = [runs]
        self.originals = [run.originals for run in runs]
        for value, place in zip(inputs, places, strict=True):
            self._bind(value, [run.args[place] for run in runs])
        self._walk([run.calls for run in runs])
        results = [tensors_of(run.result) for run in runs]
        self.agreement.agree("the number of results", [len(r) for r in results])
        outputs = [self._value(tensors, f"result {i}") for i, tensors in enumerate(zip(*results, strict=True))]
        if self.failures:
            raise ExportError(
                f"export: {len(self.failures)} operation(s) cannot be written at opset {self.graph.opset}:\n  "
                + "\n  ".join(self.failures)
                + ("\nan axis has a fixed length if dynamic_axes does not name it" if self.follows else "")
            )
        return outputs

    def _walk(self, runs: Sequence[list[Call]]) -> None:
        for i, first in enumerate(runs[0]):
            if any(len(calls) <= i or calls[i].target != first.target for calls in runs):
                names = [name_of(calls[i].target) if i < len(calls) else "nothing" for calls in runs]
                self.agreement.agree("the operation", names)
        self.agreement.agree("the number of operations", [len(calls) for calls in runs])
        for calls in zip(*runs, strict=True):
            begin = len(self.graph.nodes)
            self._call(calls)
            if calls[0].target in NORMALIZATIONS:
                self.pieces.count(calls[0], self.graph.nodes[begin:], self._named(calls[0]))

    def _call(self, calls: Sequence[Call]) -> None:
        first = calls[0]
        if isinstance(first.target, Embedded) and self._embed(calls, first.target):
            return
        if isinstance(first.target, Scope):
            outer, self.graph.scope = self.graph.scope, first.target.path
            self._walk([call.children for call in calls])
            self.graph.scope = outer
            return
        self.operation, self.agreement.notes = name_of(first.target), []
        results = [tensors_of(call.result) for call in calls]
        if first.changed:
            self._change(calls, results)
            return
        if all(id(tensor) in self.known[0] for tensor in results[0]):
            return  # it returned its arguments
        reasons = self._by_rule(calls, results)
        if reasons is None:
            return
        if first.children:
            around = self.declined
            self.declined = [*around, *reasons]
            self._walk([call.children for call in calls])
            self.declined = around
            if all(self._find(tensors) is not None for tensors in zip(*results, strict=True)):
                return
            reasons.append("it computes with other operations than minorm's")
        self._fail(first, [*self.declined, *reasons])
        for tensors in zip(*results, strict=True):
            self._bind(Value(None, tensors[0].dtype), tensors)

    def _embed(self, calls: Sequence[Call], target: Embedded) -> bool:
        """Write a loaded graph with the nodes of its file; return False if the file's nodes cannot express it."""
        found = embedding.piece(target, self.training, self.graph.opset)
        if found is None:
            return False
        self.operation, self.agreement.notes = "a loaded graph", []
        self.pieces.count_file(calls[0], found[0].graph.node, f"the loaded graph in {target.path}")
        given = zip(*(call.arguments["inputs"] for call in calls), strict=True)
        inputs = [self._merge(values, "an input of a loaded graph") for values in given]
        results = [tensors_of(call.result) for call in calls]
        types = [tensor.dtype for tensor in results[0]]
        written = embedding.stand_in(
            self.graph, target, *found, inputs, types, lambda tensor: self._value([tensor] * len(calls), "a tensor")
        )
        for value, tensors in zip(written, zip(*results, strict=True), strict=True):
            self._bind(value, tensors)
        self.strays += [(len(self.graph.nodes) - 1, note) for note in self.agreement.notes]
        return True

    def _change(self, calls: Sequence[Call], results: Sequence[list[Tensor]]) -> None:
        """Write a change in place. The result is a Tensor that is known already, and that now stands for the new value.

        A change that cannot be written is an error only if a later operation reads the new value; some buffers change,
        but are not read.
        """
        self.spoilt = []
        reasons = self._by_rule(calls, results)
        if reasons is not None:
            self.spoilt.append(self._failure(calls[0], reasons))
            for tensors in zip(*results, strict=True):
                self._bind(Value(None, tensors[0].dtype), tensors, changed=True)
        for tensors in zip(*results, strict=True) if self.spoilt else ():
            value = self._find(tensors)
            self.unwritten[id(value)] = self.spoilt[0]
            self.kept.append(value)
        self.spoilt = None

    def _by_rule(self, calls: Sequence[Call], results: Sequence[list[Tensor]]) -> list[str] | None:
        """Write the call with the first rule that accepts it, and return None.

        If no rule accepts the call, return the reasons.
        """
        graph, first, reasons = self.graph, calls[0], []
        rules = registry.writers(first.target, graph.opset)
        if not rules:
            return registry.absent(first.target, graph.opset)
        arguments = {
            key: self._merge([call.arguments[key] for call in calls], f"{name_of(first.target)}: {key}")
            for key in first.arguments
        }
        graph.results = tuple(Result(self._shape(tensors), tensors[0].dtype) for tensors in zip(*results, strict=True))
        for rule in rules:
            mark = graph.mark()
            try:
                written = rule(graph, **arguments)
            except RuleNotApplicable as decline:
                graph.reset(mark)
                reasons.append(self._said(decline))
                continue
            values = written if isinstance(written, tuple) else (written,)
            for value, tensors in zip(values, zip(*results, strict=True), strict=True):
                self._bind(value, tensors, changed=first.changed)
            self.strays += [(len(graph.nodes) - 1, note) for note in self.agreement.notes]
            return None
        return reasons

    def _said(self, decline: RuleNotApplicable) -> str:
        if not isinstance(decline.length, Size):
            return str(decline)
        self.follows = True
        symbols = self.graph.symbols
        names = " and ".join(repr(symbols.names[i]) for i in symbols.followed(decline.length))
        return f"{decline}; this length depends on the free axis {names}"

    def _fail(self, call: Call, reasons: Sequence[str]) -> None:
        self.failures.append(self._failure(call, reasons))

    def _failure(self, call: Call, reasons: Sequence[str]) -> str:
        shapes = [f"{key} {value.shape}" for key, value in call.arguments.items() if isinstance(value, Tensor)]
        why = f": {'; '.join(dict.fromkeys(reasons))}" if reasons else ": minorm has no ONNX form for it"
        return f"{self._named(call, ', '.join(shapes))}{why}"

    def _named(self, call: Call, arguments: str | None = None) -> str:
        where = f" in {self.graph.scope}" if self.graph.scope else ""
        return f"{name_of(call.target)}{'' if arguments is None else f'({arguments})'}{where}"

    # Values

    def _bind(self, value: Value, tensors: Sequence[Tensor], changed: bool = False) -> None:
        shape = self._shape(tensors)
        if value.shape not in (None, shape) or value.dtype != tensors[0].dtype:
            raise AssertionError(
                f"a rule wrote {value.dtype}{value.shape} where the model computed {tensors[0].dtype}{shape}"
            )
        value.shape = shape
        if self.agreement.follower is not None:
            self.followed.append((value, tensors[self.agreement.follower]))
        for run, tensor in enumerate(tensors):
            self.known[run][id(tensor)] = value
            if changed:
                self.arrays[run][id(tensor.array)] = value
                self.known[run].update(dict.fromkeys(self.holders[run].get(id(tensor.array), ()), value))
            else:
                self.arrays[run].setdefault(id(tensor.array), value)

    def _shape(self, tensors: Sequence[Tensor]) -> Shape:
        return self.agreement.shape(tensors, f"of a result of {self.operation}" if self.operation else "of an input")

    def _find(self, tensors: Sequence[Tensor]) -> Value | None:
        found = [
            self.known[run].get(id(tensor)) or self.arrays[run].get(id(tensor.array))
            for run, tensor in enumerate(tensors)
        ]
        which = ["one" if value is found[0] else "another" for value in found]
        self.agreement.agree(f"which tensor {self.operation or 'the model'} takes", which)
        return found[0]

    def _value(self, tensors: Sequence[Tensor], what: str) -> Value:
        found = self._find(tensors)
        if found is None:
            found = self._constant(tensors, what)
            self._bind(found, tensors)
            for run, tensor in enumerate(tensors):
                self.holders[run].setdefault(id(tensor.array), []).append(id(tensor))
        why = self.unwritten.get(id(found))
        if why is not None:
            (self.failures if self.spoilt is None else self.spoilt).append(why)
        return found

    def _constant(self, tensors: Sequence[Tensor], what: str) -> Value:
        arrays = [self.originals[run].get(id(t.array), (None, t.array))[1] for run, t in enumerate(tensors)]
        base = tensors[0].array
        home = self.homes.get(id(base))
        if home is not None:
            return Value(base.shape, base.dtype, home, base, home)
        base = arrays[0]
        if self.agreement.constant(arrays, what):
            scope = f"{self.graph.scope}." if self.graph.scope else ""
            value = Value(base.shape, base.dtype, self.labels.get(id(tensors[0].array), f"{scope}constant"), base)
            value.trained = any(tensor.requires_grad for tensor in tensors)
            return value
        return self._filled(arrays, what)

    def _filled(self, arrays: Sequence[Any], what: str) -> Value:
        """Write a constant whose shape or value depends on a free axis, such as zeros(batch, 8) or x.shape[0]."""
        graph, first = self.graph, arrays[0]
        self.agreement.agree(f"the rank of {what}", [array.ndim for array in arrays])
        known = arrays[: self.agreement.sized]
        numbers = [array.flat[0] for array in known if array.size and (array == array.flat[0]).all()]
        counts = first.ndim == 1 and all(same(a, np.arange(len(a), dtype=a.dtype)) for a in known)
        if not counts and len(numbers) != len(known):
            self.agreement.agree(f"the constant {what}, of shape", [array.shape for array in arrays])
            kinds = ["one" if same(first, array) else "another" for array in arrays]
            self.agreement.agree(f"the constant {what} of shape {first.shape}", kinds)
        shape = tuple(size_of(lengths) for lengths in zip(*[array.shape for array in known], strict=True))
        try:
            if counts:
                return count(graph, shape[0], first.dtype)
            if all(same(n, numbers[0]) for n in numbers):
                return full(graph, numbers[0], shape, first.dtype)
            if any(n != int(n) for n in numbers):
                raise RuleNotApplicable("is a number that depends on the length of a free axis")
            size = size_of([int(n) for n in numbers])
            assert isinstance(size, Size)
            number = graph.cast(graph.length(size), first.dtype)
            return expand(graph, reshape(graph, number, (1,) * len(shape)), shape)
        except RuleNotApplicable as decline:
            raise Unstable(f"{what}: {self._said(decline)}") from None

    # Arguments

    def _merge(self, values: Sequence[Any], what: str) -> Any:
        """Merge an argument's values in all runs: Tensors become Values, ints that depend on free axes become Sizes."""
        first, agreement = values[0], self.agreement
        agreement.agree(f"the type of {what}", [type(value).__name__ for value in values])
        if isinstance(first, Tensor):
            return self._value(values, what)
        if isinstance(first, np.ndarray):
            found = [self.arrays[run].get(id(array)) for run, array in enumerate(values)]
            if found[0] is not None and all(value is found[0] for value in found):
                return found[0]
            return first if agreement.constant(values, what) else self._value([Tensor(a) for a in values], what)
        if isinstance(first, (bool, np.bool_, str, type(None))):
            return agreement.equal(values, what)
        if isinstance(first, (int, np.integer)):
            return agreement.length(values, what)
        if isinstance(first, slice):
            return slice(*[self._merge([getattr(v, part) for v in values], what) for part in ("start", "stop", "step")])
        if isinstance(first, (tuple, list)):
            agreement.agree(f"the number of values in {what}", [len(value) for value in values])
            merged = [self._merge(parts, what) for parts in zip(*values, strict=True)]
            return merged if isinstance(first, list) else tuple(merged)
        if isinstance(first, dict):
            return {key: self._merge([value[key] for value in values], what) for key in first}
        return agreement.equal(values, what)
