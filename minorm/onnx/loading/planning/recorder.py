"""Record a plan: run a graph node by node, and keep the Functions that the rules of the nodes apply."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minorm.graph import trace
from minorm.graph.graph import Function
from minorm.nn import Module
from minorm.onnx.graph.node_layers import Sealed
from minorm.onnx.loading.planning.plan import Plan
from minorm.onnx.loading.planning.watched import Elements, Reads, StandIn, plain
from minorm.ops.applications import Application
from minorm.ops.fusing import fused
from minorm.ops.indexing import Take
from minorm.tensor.tensor import Tensor

# Operators that no plan holds: the shapes of their results depend on values, they draw random numbers, or they check
# labels on the CPU only.
OPERATORS_WITHOUT_PLAN = {
    "Bernoulli", "Compress", "Loop", "Multinomial", "NegativeLogLikelihoodLoss", "NonMaxSuppression", "NonZero",
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Scan", "SoftmaxCrossEntropyLoss",
    "Unique",
}  # fmt: skip

# Layers that may replace nodes in a plan. Other layers may not, because we cannot tell if they decide by shapes alone.
SHAPE_ONLY_LAYERS = {
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BatchNorm1d",
    "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "ELU",
    "Flatten", "GELU", "GroupNorm", "Hardsigmoid", "Hardswish", "Identity", "LayerNorm", "LeakyReLU", "Linear",
    "LogSoftmax", "MaxPool1d", "MaxPool2d", "MaxPool3d", "PReLU", "RMSNorm", "ReLU", "ReLU6", "Sequential", "SiLU",
    "Sigmoid", "Softmax", "StochasticDepth", "Tanh",
}  # fmt: skip

FROM_THE_RUN = object()  # stands in an index for an array that comes from the run

# Operators whose rules read indices only to raise a better error than their Functions for indices out of range.
ONLY_CHECK_INDICES = {"GatherElements", "Scatter", "ScatterElements", "ScatterND"}


class TakeOfRunIndices(Application):
    """Applies a Take whose index arrays come from the run; the inputs are x and then these arrays."""

    __slots__ = ("parts",)

    def __init__(self, inputs: tuple[int, ...], index: Any, outputs: tuple[int, ...]) -> None:
        super().__init__(Take, inputs, {}, outputs)
        parts = index if isinstance(index, tuple) else (index,)
        self.parts = [FROM_THE_RUN if isinstance(part, Elements) else part for part in parts]

    def compute(self, x: Any, *indices: Any) -> Any:  # noqa: D102
        given = iter(indices)
        return Take().forward(x, index=tuple([next(given) if part is FROM_THE_RUN else part for part in self.parts]))


class Recorder:
    """Runs a graph's steps and records the Functions that they apply; `why` names a step that prevents a plan."""

    def __init__(
        self, inputs: Sequence[Tensor], held: Sequence[Tensor], constants: Sequence[Tensor], layers: Sequence[Module]
    ) -> None:
        self.why = ""
        self._layers = layers
        self._registers: dict[int, tuple[Any, int]] = {}  # by the Tensor's id: a weak reference, and its register
        self._fixed: list[Any] = [None]
        self._known: dict[int, tuple[Any, Any]] = {0: (None, None)}  # the shapes and types of the registers
        self._applications: list[Application] = []
        self._shape_only_ids = {
            id(tensor) for tensor in constants
        }  # the ids of the Tensors that depend on shapes alone
        self._kept = list(constants)  # so that no other Tensor gets their ids
        self._held = [(self._register(tensor), tensor) for tensor in held]
        for tensor in constants:
            self._register(tensor, tensor.array)
        self._inputs = [self._register(tensor) for tensor in inputs]
        self._outside = [tensor.array for tensor in (*held, *constants, *inputs)]

    def run(self, step: Any, values: list[Any], dtype: Any) -> None:
        """Run a step in a trace; stand-ins replace the Tensors that depend on more than shapes.

        dtype    the type to which the graph was converted, or None
        """
        if self.why:
            step.run(values, dtype)
            return
        arguments = [None if slot is None else values[slot] for slot in step.inputs]
        reads = Reads()
        originals: dict[int, Any] = {}  # by the ids of the stand-ins
        stand_in_of = {id(x): self._stand_in(x, reads, originals) for x in arguments}
        stand_ins = [stand_in_of[id(x)] for x in arguments]
        for slot, x in zip(step.inputs, stand_ins, strict=True):
            if slot is not None:
                values[slot] = x
        try:
            with trace.record() as calls:
                results = step.run(values, dtype)
        except Exception:  # noqa: BLE001  a stand-in cannot do all that a Tensor can; a wrong node fails again
            self.why = step.label
            for slot, x in zip(step.inputs, arguments, strict=True):
                if slot is not None:
                    values[slot] = x
            step.run(values, dtype)
            return
        if step.silent:
            for tensor in results:
                if isinstance(tensor, Tensor):
                    self._shape_only_ids.add(id(tensor))
                    self._kept.append(tensor)
                    self._register(tensor, tensor.array)
        elif (
            (reads.seen and step.operator not in ONLY_CHECK_INDICES)
            or not _shows_every_decision(step)
            or self._write_down(list(_applied_functions(calls)), stand_ins, results, reads.seen)
        ):
            self.why = step.label
        for slot in {*step.inputs, *step.outputs} - {None}:
            values[slot] = self._without_stand_in(values[slot], originals)

    def _stand_in(self, tensor: Any, reads: Reads, originals: dict[int, Any]) -> Any:
        """Return the stand-in that a rule gets for a Tensor; return the Tensor if it depends on shapes alone."""
        register = None if id(tensor) in self._shape_only_ids else self._find(tensor)
        if register is None:
            return tensor
        stand_in = StandIn.of(tensor, reads)
        self._registers[id(stand_in)] = weakref.ref(stand_in), register
        originals[id(stand_in)] = stand_in, tensor
        return stand_in

    def _without_stand_in(self, value: Any, originals: dict[int, Any]) -> Any:
        """Return a step's value for the next step: a plain Tensor instead of a stand-in."""
        if not isinstance(value, StandIn):
            return value
        if id(value) not in originals:
            originals[id(value)] = value, plain(value)
            register = self._find(value)
            if register is not None:
                self._registers[id(originals[id(value)][1])] = weakref.ref(originals[id(value)][1]), register
        return originals[id(value)][1]

    def plan(self, outputs: Sequence[Any]) -> Plan | None:
        """Return the plan of a run with these results; None if a plan is not possible."""
        if self.why or not all(isinstance(x, Tensor) for x in outputs):  # sequences are not arrays
            return None
        made = {register for application in self._applications for register in application.outputs}
        registers = [self._find(tensor) for tensor in outputs]
        if _share_memory([x.array for x in outputs], self._outside) or not made.issuperset(registers):
            return None
        applications = fused(self._applications, self._known, registers, self._inputs)
        return Plan(applications, self._held, self._fixed, self._inputs, registers, self._layers)

    def _write_down(
        self, calls: Sequence[trace.Call], arguments: Sequence[Any], results: Sequence[Any], seen: bool
    ) -> bool:
        """Record the calls of a step; return True if no plan is possible, because the step depends on more than shapes.

        seen    True if the rule has read elements, on which the tensors that the rule makes may then depend
        """
        read = {id(tensor) for tensor in results}
        for call in calls:
            inputs, options = _inputs_and_options(call)
            read.update(map(id, inputs))
            for tensor in inputs:
                if tensor is not None and self._find(tensor) is None:
                    if seen:
                        return True
                    self._register(tensor, tensor.array)  # a number, as in x * alpha, or a result from shapes
                    self._kept.append(tensor)
            registers = [0 if tensor is None else self._find(tensor) for tensor in inputs]
            outputs = call.result if isinstance(call.result, tuple) else (call.result,)
            found = list(_elements(options))
            if call.changed or (found and call.target is not Take):
                return True
            made = tuple(self._register(tensor) for tensor in outputs)
            if found:
                origins = [next((x for x in arguments if _is_array_of(x, array)), None) for array in found]
                if any(x is None for x in origins):
                    return True
                read.update(map(id, origins))
                registers += [self._find(x) for x in origins]
                application: Application = TakeOfRunIndices(tuple(registers), options["index"], made)
            else:
                application = Application(call.target, tuple(registers), options, made)
            self._applications.append(application)
        unread = [x for x in arguments if x is not None and id(x) not in read and id(x) not in self._shape_only_ids]
        return bool(unread) or any(self._find(tensor) is None for tensor in results)

    def _register(self, tensor: Tensor, array: Any = None) -> int:
        register = len(self._fixed)
        self._fixed.append(array)
        self._known[register] = tensor.shape, tensor.dtype
        self._registers[id(tensor)] = weakref.ref(tensor), register
        return register

    def _find(self, tensor: Any) -> Any:
        """Return the register of a Tensor, if it has one."""
        reference, register = self._registers.get(id(tensor), (None, None))
        return register if reference is not None and reference() is tensor else None


def _share_memory(arrays: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether an array in `arrays` may share memory with another one in `arrays`, or with one in `others`."""
    spans = [
        (*np.lib.array_utils.byte_bounds(array), fresh)
        for fresh in (True, False)
        for array in (arrays if fresh else others)
    ]
    ends = {True: 0, False: 0}  # the furthest end so far, of fresh arrays and of others
    for start, end, fresh in sorted(span for span in spans if span[0] < span[1]):
        if start < ends[True] or (fresh and start < ends[False]):
            return True
        ends[fresh] = max(ends[fresh], end)
    return False


def _shows_every_decision(step: Any) -> bool:
    """Return True if the recorder notices each decision of this node that depends on elements of tensors.

    The result is False for loops and branches, because we do not notice all decisions inside these.
    """
    if step.conditions or getattr(step, "turns", None) is not None or step.operator in OPERATORS_WITHOUT_PLAN:
        return False
    return (
        bool(step.operator)
        or not isinstance(step.operation, Module)
        or all(map(_depends_on_shapes_only, step.operation.modules()))
    )


def _depends_on_shapes_only(layer: Module) -> bool:
    """Return whether a layer's decisions depend only on shapes: a normalization of the file, or a known layer."""
    kind = type(layer)
    return isinstance(layer, Sealed) or (
        kind.__name__ in SHAPE_ONLY_LAYERS and kind.__module__.startswith("minorm.nn.")
    )


def _elements(options: Any) -> Iterator[Elements]:
    """Yield the watched arrays among a Function's options."""
    if isinstance(options, Elements):
        yield options
    elif isinstance(options, (dict, tuple, list)):
        for option in options.values() if isinstance(options, dict) else options:
            yield from _elements(option)


def _is_array_of(tensor: Any, elements: Elements) -> bool:
    """Return True if `elements` are the unchanged integers of a stand-in, which are the indices of a Take.

    A mask of bools does not count, because its elements decide the shape of the result.
    """
    return isinstance(tensor, StandIn) and elements.is_of(tensor.array) and tensor.array.dtype.kind == "i"


def _applied_functions(calls: Sequence[trace.Call]) -> Iterator[trace.Call]:
    """Yield the Functions in a tree of calls, in the order in which they were applied."""
    for call in calls:
        if isinstance(call.target, type) and issubclass(call.target, Function):
            yield call
        else:
            yield from _applied_functions(call.children)


def _inputs_and_options(call: trace.Call) -> tuple[list[Any], dict[str, Any]]:
    """Return the Tensors to which a Function was applied, and its options."""
    inputs: list[Any] = []
    options: dict[str, Any] = {}
    kinds = inspect.signature(call.target.forward).parameters
    for name, value in call.arguments.items():
        kind = kinds[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            inputs.extend(value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            options.update(value)
        elif kind is inspect.Parameter.KEYWORD_ONLY:
            options[name] = value
        else:
            inputs.append(value)
    return inputs, options
