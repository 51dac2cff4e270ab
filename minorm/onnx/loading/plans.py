"""Inference by plan: what a graph applied to inputs of these shapes is written down once, and applied again.

A node's rule checks its arguments, reads axes and sizes, and applies Functions to arrays. In evaluation mode and
without gradients all of that but the Functions follows from shapes. So the second run with inputs of the same shapes
and types is traced, and the Functions it applied, with the numbers of their arrays and their options, are a Plan; the
runs after it are these Functions, in the same order, on the same arrays: the same bits.

A plan is made only where that is certain. Every node must be of an operator whose rule looks at shapes alone (STEADY);
a value that a rule has read itself, instead of giving it to a Function, must follow from shapes too. No plan is made,
and none used, while gradients are recorded, where a layer trains or has hooks, while a trace is open, where somebody is
watching the nodes, in a graph that was converted to another type, and for arrays on a GPU. A graph without a plan runs
node by node, as it always can, and so does a run in which anything goes wrong, for the error that names the node.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minorm.graph import trace
from minorm.graph.grad_mode import is_grad_enabled
from minorm.graph.graph import Function
from minorm.nn import Module
from minorm.onnx.graph import memory_budget
from minorm.ops.fusing import Application, fused
from minorm.tensor.tensor import Tensor

KEPT = 8  # plans of a graph; a new shape takes the place of the oldest

# Operators whose rules decide by shapes and types what they apply. Left out are those that decide by what floats hold,
# as Loop and Range, those that draw numbers, and those that nobody has missed yet.
STEADY = {
    "Abs", "Add", "AveragePool", "BatchNormalization", "Cast", "CastLike", "Celu", "Clip", "Concat", "Conv",
    "ConvTranspose", "DepthToSpace", "Div", "Dropout", "Elu", "Erf", "Exp", "Expand", "Flatten", "Gather",
    "Gelu", "Gemm", "GlobalAveragePool", "GlobalMaxPool", "GroupNormalization", "HardSigmoid", "HardSwish",
    "Identity", "InstanceNormalization", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "MatMul",
    "MaxPool", "Mul", "Neg", "PRelu", "Pad", "Pow", "RMSNormalization", "Reciprocal", "ReduceMean", "ReduceSum",
    "Relu", "Reshape", "Sigmoid", "Slice", "Softmax", "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum",
    "Swish", "Tanh", "Transpose", "Unsqueeze",
}  # fmt: skip


class Plan:
    """The Functions of a run, on numbered registers. Register 0 is None, an absent argument.

    held      a register and the Tensor of the graph whose array it has when a run begins
    fixed     the registers when a run begins: arrays that follow from shapes, and None
    layers    those with options of their own, which may be changed; then the plan is of another graph
    """

    def __init__(
        self,
        applications: Sequence[Application],
        held: Sequence[tuple[int, Tensor]],
        fixed: Sequence[Any],
        inputs: Sequence[int],
        outputs: Sequence[int],
        layers: Sequence[Module],
    ) -> None:
        self.applications, self.held, self.fixed = list(applications), list(held), list(fixed)
        self.layers = [(layer, dict(vars(layer))) for layer in layers]
        self.inputs, self.outputs = list(inputs), list(outputs)
        kept = {0, *self.outputs, *(register for register, _ in held), *inputs}
        kept |= {register for register, array in enumerate(fixed) if array is not None}
        for application in reversed(self.applications):
            used = {*application.inputs, *application.outputs}
            application.dropped = tuple(sorted(used - kept))
            kept |= used

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.applications))

    def is_current(self) -> bool:
        """Whether every layer is as it was when the plan was made: its mode and options, and no hooks."""
        return all(vars(layer) == before and not _is_active(layer) for layer, before in self.layers)

    def run(self, given: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for these inputs."""
        arrays = list(self.fixed)
        for register, tensor in self.held:
            arrays[register] = tensor.array
        for register, tensor in zip(self.inputs, given, strict=True):
            arrays[register] = tensor.array
        with np.errstate(all="ignore"):
            for application in self.applications:
                application.run(arrays)
        return [Tensor.from_array(arrays[register]) for register in self.outputs]


class Plans:
    """The plans of a graph, by the shapes and types of its inputs; True for some that came once, False for no plan."""

    def __init__(self) -> None:
        self._known: dict[Any, Plan | bool] = {}

    def __reduce__(self) -> Any:
        return Plans, ()  # a copy of the graph makes its own

    def run(self, given: Sequence[Tensor]) -> list[Tensor] | None:
        """The outputs by the plan for these inputs; None where there is none, or where it may not be used now."""
        plan = self._known.get(_key(given)) if _may_repeat(given) else None
        if not isinstance(plan, Plan):
            return None
        try:
            if plan.is_current():
                return plan.run(given)
            self._known.pop(_key(given), None)
        except Exception:  # noqa: BLE001  node by node it is raised again, or not
            pass
        return None

    def recorder(
        self, given: Sequence[Tensor], held: Sequence[Tensor], constants: Sequence[Tensor], layers: Sequence[Module]
    ) -> Recorder | None:
        """What writes down this run, if these inputs have come once before and nothing is against it."""
        if not _may_repeat(given) or any(map(_is_active, layers)):
            return None
        places = [*map(id, given)]  # of one Tensor in two of them nobody could tell which a node reads
        if len(set(places)) < len(places) or not {*map(id, held), *map(id, constants)}.isdisjoint(places):
            return None
        key = _key(given)
        if key in self._known:
            return Recorder(given, held, constants, layers) if self._known[key] is True else None
        while len(self._known) >= KEPT:
            self._known.pop(next(iter(self._known)), None)
        self._known[key] = True
        return None

    def __repr__(self) -> str:
        """`(1, 3, 224, 224): 85 passes` for each plan: to how many passes the nodes came together."""
        made = [(key, plan) for key, plan in self._known.items() if isinstance(plan, Plan)]
        return ", ".join(
            f"{' '.join(str(shape) for shape, _ in key)}: {len(plan.applications)} passes" for key, plan in made
        )

    def keep(self, given: Sequence[Tensor], plan: Plan | None) -> None:
        """From now on runs with inputs like these go by this plan; None: node by node."""
        self._known[_key(given)] = False if plan is None else plan


def _key(given: Sequence[Tensor]) -> Any:
    return tuple([(x.array.shape, x.array.dtype) for x in given])


def _may_repeat(given: Sequence[Tensor]) -> bool:
    """Whether a run may be one by a plan: it is only computed, by our own kernels, and nobody wants to see how."""
    if is_grad_enabled() or trace.state.calls is not None or trace.state.cast is not None or memory_budget.is_watched():
        return False
    return all(isinstance(x, Tensor) and type(x.array) is np.ndarray and x.array.flags.c_contiguous for x in given)


def _is_active(layer: Module) -> bool:
    """Whether a layer does more than compute: it trains, or calls hooks."""
    return (layer.training and not layer.frozen) or any(layer.__dict__.get("_hooks", {}).values())


class Recorder:
    """Runs the steps of a graph one by one, and writes down what they apply; `why` says what is against a plan."""

    def __init__(
        self, inputs: Sequence[Tensor], held: Sequence[Tensor], constants: Sequence[Tensor], layers: Sequence[Module]
    ) -> None:
        self.why = ""
        self._layers = layers
        self._registers: dict[int, tuple[Any, int]] = {}  # by the Tensor's id: a weak reference, and its register
        self._fixed: list[Any] = [None]
        self._known: dict[int, tuple[Any, Any]] = {0: (None, None)}  # the shapes and types of the registers
        self._applications: list[Application] = []
        self._steady = {id(tensor) for tensor in constants}  # the Tensors that follow from shapes
        self._kept = list(constants)  # so that no other Tensor gets their ids
        self._held = [(self._register(tensor), tensor) for tensor in held]
        for tensor in constants:
            self._register(tensor, tensor.array)
        self._inputs = [self._register(tensor) for tensor in inputs]
        self._outside = [tensor.array for tensor in (*held, *constants, *inputs)]

    def run(self, step: Any, values: list[Any]) -> None:
        """Run the step, in a trace."""
        arguments = [None if slot is None else values[slot] for slot in step.inputs]
        with trace.record() as calls:
            results = step.run(values)
        if self.why:
            return
        if step.silent:
            for tensor in results:
                if isinstance(tensor, Tensor):
                    self._steady.add(id(tensor))
                    self._kept.append(tensor)
                    self._register(tensor, tensor.array)
        elif step.conditions or not _is_steady(step):
            self.why = step.label
        else:
            self.why = step.label if self._write_down(list(_applied(calls)), arguments, results) else ""

    def plan(self, outputs: Sequence[Any]) -> Plan | None:
        """The plan of a run with these results; None where something is against it."""
        made = {register for application in self._applications for register in application.outputs}
        registers = [self._find(tensor) for tensor in outputs]
        if self.why or _share_memory([x.array for x in outputs], self._outside) or not made.issuperset(registers):
            return None
        applications = fused(self._applications, self._known, registers)
        return Plan(applications, self._held, self._fixed, self._inputs, registers, self._layers)

    def _write_down(self, calls: Sequence[trace.Call], arguments: Sequence[Any], results: Sequence[Any]) -> bool:
        """Write down the calls of a step; whether that fails, since it knows more than shapes."""
        read = {id(tensor) for tensor in results}
        for call in calls:
            inputs, options = _taken_apart(call)
            read.update(map(id, inputs))
            for tensor in inputs:
                if tensor is not None and self._find(tensor) is None:
                    if tensor.array.ndim:
                        return True
                    self._register(tensor, tensor.array)  # a number, as in x * alpha
            outputs = call.result if isinstance(call.result, tuple) else (call.result,)
            application = Application(
                call.target,
                tuple(0 if tensor is None else self._find(tensor) for tensor in inputs),
                options,
                tuple(self._register(tensor) for tensor in outputs),
            )
            self._applications.append(application)
        unread = [x for x in arguments if x is not None and id(x) not in read and id(x) not in self._steady]
        return bool(unread) or any(self._find(tensor) is None for tensor in results)

    def _register(self, tensor: Tensor, array: Any = None) -> int:
        register = len(self._fixed)
        self._fixed.append(array)
        self._known[register] = tensor.shape, tensor.dtype
        self._registers[id(tensor)] = weakref.ref(tensor), register
        return register

    def _find(self, tensor: Any) -> Any:
        """The register of a Tensor, if it has one."""
        reference, register = self._registers.get(id(tensor), (None, None))
        return register if reference is not None and reference() is tensor else None


def _share_memory(arrays: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether one of the arrays may look into the memory of another of them, or of the others."""
    spans = [
        (*np.lib.array_utils.byte_bounds(array), fresh)
        for fresh in (True, False)
        for array in (arrays if fresh else others)
    ]
    ends = {True: 0, False: 0}  # of what begins before
    for start, end, fresh in sorted(span for span in spans if span[0] < span[1]):
        if start < ends[True] or (fresh and start < ends[False]):
            return True
        ends[fresh] = max(ends[fresh], end)
    return False


def _is_steady(step: Any) -> bool:
    return step.operator in STEADY or (not step.operator and isinstance(step.operation, Module))


def _applied(calls: Sequence[trace.Call]) -> Iterator[trace.Call]:
    """The Functions in a tree of calls, in the order in which they were applied."""
    for call in calls:
        if isinstance(call.target, type) and issubclass(call.target, Function):
            yield call
        else:
            yield from _applied(call.children)


def _taken_apart(call: trace.Call) -> tuple[list[Any], dict[str, Any]]:
    """The Tensors that a Function was applied to, and its options."""
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
