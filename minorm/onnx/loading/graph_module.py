"""A loaded graph as a Module: it runs its nodes in order and drops every value after its last use.

The graph lists all Parameters and buffers under their initializers' names, whatever characters these have. The
modules below it are places (places.py): nodes that have a mode (BatchNormalization, Dropout), and the modules that the
file's names speak of, so that `model.get_submodule("layer1.0.bn1").freeze()` means what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.graph import trace
from minorm.nn import Module, Parameter
from minorm.nn.attributes import BUFFER, PARAMETER
from minorm.normalization import running
from minorm.onnx.graph import kinds, memory_budget
from minorm.onnx.graph.node_layers import Sealed
from minorm.onnx.graph.scope import Scope
from minorm.onnx.graph.tensors import Budget
from minorm.onnx.loading.graph_inputs import Input
from minorm.onnx.loading.original import Original, Placed
from minorm.onnx.loading.plans import Plans, Recorder
from minorm.onnx.operators.norm.batch_statistics import put
from minorm.support.masking import printable
from minorm.tensor.tensor import Tensor


@dataclass
class Step:
    """One node to run: values live in numbered slots; None stands for an absent one."""

    operation: Callable[..., Any]
    inputs: list[int | None]
    outputs: list[int | None]
    label: str
    silent: bool  # computes with shapes alone: export sees the integers, not how they came about
    scope: Scope | None = None  # the path that the node's name begins with
    conditions: Sequence[tuple[int, bool]] = ()  # it runs only where these slots are true, or false
    dropped: Sequence[int] = ()  # slots that nobody reads after this step
    precise: Sequence[int] = ()  # places of inputs whose type ONNX prescribes: Resize's scales are float32
    operator: str = ""
    names: Sequence[str] = ()  # of the outputs, in the file
    casts: bool = False  # a Cast to floats: of data it gives the type that the graph was converted to
    together: bool = False  # all arguments on one device: found out at the first run on a GPU
    place: str = ""  # the module that the node comes from, or the node's own name

    def run(self, values: list[Any], dtype: Any = None) -> tuple[Any, ...]:
        """Compute the outputs' slots from the inputs', unless the node is in a branch that is not taken: the results.

        dtype    of the float inputs, where the graph was converted after loading
        """
        results: tuple[Any, ...] = ()
        if all(values[slot] is not None and bool(values[slot]) == value for slot, value in self.conditions):
            results = self._compute(values, None if self.silent else dtype)
        for slot in self.dropped:
            values[slot] = None
        return results

    def _compute(self, values: list[Any], dtype: Any) -> tuple[Any, ...]:
        arguments = [None if slot is None else values[slot] for slot in self.inputs]
        if dtype is not None:
            arguments = [x if i in self.precise else converted(x, dtype) for i, x in enumerate(arguments)]
        try:
            results = self._results(arguments, dtype)
        except MemoryError as error:
            raise MemoryError(f"{self.label}: {error}") from error
        except Exception as error:  # whatever goes wrong, the message must say in which node
            raise ValueError(f"{self.label}: {error}") from error
        for slot, value in zip(self.outputs, results, strict=False):
            if slot is not None:
                values[slot] = value
        return results

    def _results(self, arguments: list[Any], dtype: Any) -> tuple[Any, ...]:
        given = memory_budget.active()
        if self.operator:
            kinds.check(self.operator, arguments)
        if given is not None:
            given.before(arguments)
        results = self._silently(arguments) if self.silent and trace.state.calls is not None else None
        if results is None:
            operation = self.operation if dtype is None or not self.casts else lambda x: x.to(dtype)
            compute = operation if self.scope is None else partial(self.scope.call, operation)
            results = self._together(compute, arguments)
        if given is not None:
            given.after(arguments, results)
            given.tell(self, arguments, results)
        return results

    def _together(self, compute: Callable[..., Any], arguments: list[Any]) -> tuple[Any, ...]:
        """The results; constants go to the GPU where another argument is there and the operation wants them to.

        Those that it reads itself, as shapes and axes, stay on the CPU.
        """
        if not self.together:
            try:
                return _as_tuple(compute(*arguments))
            except devices.DeviceError:
                self.together = True
        device = next((x.device for x in arguments if isinstance(x, Tensor) and x.is_cuda), "cpu")
        return _as_tuple(compute(*[x.to(device) if isinstance(x, Tensor) else x for x in arguments]))

    def _silently(self, arguments: list[Any]) -> tuple[Any, ...] | None:
        """The results, unseen by a trace; None where they are floats, which may be any function of a length."""
        outer, trace.state.calls = trace.state.calls, None
        try:
            results = _as_tuple(self.operation(*arguments))
        finally:
            trace.state.calls = outer
        return None if any(isinstance(x, Tensor) and dtypes.is_float(x.dtype) for x in results) else results


def _apart(result: Any, held: Container[int]) -> Any:
    """The result, or a copy where it is the graph's own memory: it is the caller's to change.

    held    what id() says of the versions of the graph's tensors, which their views share
    """
    if not isinstance(result, Tensor):  # a sequence, or nothing
        return [_apart(item, held) for item in result] if isinstance(result, list) else result
    return result.clone() if id(result.version) in held else result


def converted(value: Any, dtype: Any) -> Any:
    """A float Tensor in this type; anything else as it is."""
    different = isinstance(value, Tensor) and dtypes.is_float(value.dtype) and value.dtype != dtype
    return value.to(dtype) if different else value


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


class GraphModule(Sealed):
    """What `minorm.onnx.load` returns: `model(*inputs)` runs the graph, and gives its output, or a tuple of several.

    input_names, output_names    in the order of the file
    inputs                       what the file declares of each input

    `to(mn.float16)` converts it as any Module: from then on inputs and outputs are of that type, and every float that a
    node reads is, be it a constant of the file or the result of a Cast. What ONNX prescribes (the scales of a Resize)
    stays, and what is computed from shapes alone (the padding of TensorFlow's SAME) is so in the types of the file.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        output_names: Sequence[str],
        ends: Sequence[str],
        steps: Sequence[Step],
        slots: Mapping[str, int],
        state: Mapping[str, Tensor],
        constants: Mapping[str, Tensor],
        budget: Budget,
    ) -> None:
        super().__init__()
        self.inputs = list(inputs)
        self.input_names = [entry.name for entry in inputs]
        self.output_names = list(output_names)
        returned = set(output_names)
        self.updated_names = [name for name in ends if name not in returned]  # they become buffers' contents
        self.updates: list[tuple[Tensor, int, Module]] = []  # a buffer, the slot of its next value, who says the mode
        self.snapshots: list[tuple[Tensor, int]] = []  # a buffer, the slot for what it is when a run begins
        self.constants = dict(constants)  # what the file fixes: shapes, indices, bounds
        self.original: Original | None = None  # what is left of the file, for `export`
        self.placed: list[Placed] = []  # where the layers with a mode stand in it
        self._budget = budget
        self._plans = Plans()
        self._state = dict(state)
        self._steps = list(steps)
        self._size = len(slots)
        self._given = [(slots[name], tensor) for name, tensor in {**constants, **state}.items() if name in slots]
        self._input_slots = [slots[name] for name in self.input_names]
        self._output_slots = [slots[name] for name in output_names]
        floats = (tensor for tensor in self._state.values() if dtypes.is_float(tensor.dtype))
        self._as_converted: tuple[Any, list[tuple[int, Tensor]]] | None = None
        self._first: Any = next(((tensor, tensor.dtype) for tensor in floats), None)
        mark_last_uses(self._steps, {*(slots[name] for name in ends), *(slot for slot, _ in self._given)})

    def forward(self, *inputs: Any) -> Any:
        """The graph's outputs for these inputs."""
        dtype = self.converted_to()
        given = self.check(inputs)
        if dtype is None and (planned := self._plans.run(given)) is not None:
            return planned[0] if len(planned) == 1 else tuple(planned)
        recorder = None if dtype is not None else self._recorder(given)
        values: list[Any] = [None] * self._size
        for slot, tensor in self._tensors(dtype):
            values[slot] = tensor
        for slot, x in zip(self._input_slots, given, strict=True):
            values[slot] = x
        for buffer, slot in self.snapshots:
            values[slot] = buffer.clone()
        weights = {id(tensor) for _, tensor in self._tensors(dtype)}
        # Dividing by 0 has a value in ONNX, and is no news.
        with self._budget.run(given, weights), np.errstate(all="ignore"):
            for step in self._steps:
                step.run(values, dtype) if recorder is None else recorder.run(step, values)
        for buffer, slot, layer in self.updates:
            if layer.training and not layer.frozen and running.is_updating():
                put(buffer, values[slot])
            elif not layer.training or layer.frozen:
                values[slot] = buffer.clone()  # nothing is blended in
        held = set() if trace.state.calls is not None else {id(tensor.version) for _, tensor in self._tensors(dtype)}
        results = tuple(
            _apart(values[slot] if dtype is None else converted(values[slot], dtype), held)
            for slot in self._output_slots
        )
        if recorder is not None:
            self._plans.keep(given, recorder.plan(results))
        return results[0] if len(results) == 1 else results

    def _recorder(self, given: Sequence[Tensor]) -> Recorder | None:
        """What makes a plan of this run; None nearly always."""
        layers = [step.operation for step in self._steps if isinstance(step.operation, Module)]
        fixed = {id(tensor) for tensor in self.constants.values()}
        held = [tensor for _, tensor in self._given if id(tensor) not in fixed]
        constants = [tensor for _, tensor in self._given if id(tensor) in fixed]
        return self._plans.recorder(given, held, constants, [*layers, *(layer for *_, layer in self.updates)])

    def check(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs as Tensors; TypeError or ValueError where they are not what the file declares."""
        if len(inputs) != len(self.inputs):
            names = ", ".join(map(printable, self.input_names))
            raise TypeError(f"the graph takes {len(self.inputs)} inputs ({names}); got {len(inputs)}")
        dtype = self.converted_to()
        return [entry.check(x, dtype) for entry, x in zip(self.inputs, inputs, strict=True)]

    def tensors_by_name(self) -> dict[str, Tensor]:
        """Parameters and buffers under the names of the file, those that are equal or shared too."""
        return dict(self._state)

    def watching(self, see: memory_budget.See) -> AbstractContextManager[None]:
        """Inside, `see(step, arguments, results, multiplications)` is told of every node of a graph that runs."""
        return memory_budget.watching(see)

    def held_names(self) -> set[str]:
        """The tensors of the file whose contents this module holds."""
        return {*self._state, *self.constants}

    def converted_to(self) -> Any:
        """The type of the parameters, if `to` has changed it since the file was read (perhaps of a module around)."""
        if self._first is None:
            return None
        tensor, before = self._first
        return None if tensor.dtype == before else tensor.dtype

    def _tensors(self, dtype: Any) -> Sequence[tuple[int, Tensor]]:
        """The slots that are filled before a run; constants in `dtype`, where the graph was converted.

        Those that shape arithmetic reads stay as the file has them, and it is done in the file's types: float16 cannot
        count to 2049. What a node of data reads of it is converted there, as is all that it reads.
        """
        if dtype is None:
            return self._given
        if self._as_converted is None or self._as_converted[0] != dtype:
            kept = unconverted(self._steps)
            given = [(slot, x if slot in kept else converted(x, dtype)) for slot, x in self._given]
            self._as_converted = dtype, given
        return self._as_converted[1]

    def _own(self, *kinds: str) -> Iterator[tuple[str, Any]]:
        """The tensors of the graph under their initializers' names, then what Module holds: the places."""
        for name, tensor in self._state.items():
            if (PARAMETER if isinstance(tensor, Parameter) else BUFFER) in kinds:
                yield name, tensor
        yield from super()._own(*kinds)

    def extra_repr(self) -> str:
        """Inputs with types and shapes, outputs, the number of nodes, and the plans of inference that were made."""
        inputs, plans = ", ".join(map(str, self.inputs)), repr(self._plans)
        nodes = f"{len(self._steps)} nodes" + (f"; in inference of {plans}" if plans else "")
        return f"{inputs} -> {', '.join(map(printable, self.output_names))}; {nodes}"


def unconverted(steps: Sequence[Step]) -> set[int | None]:
    """The slots that some step reads in the file's own type."""
    kept = {step.inputs[place] for step in steps for place in step.precise}
    return kept | {slot for step in steps if step.silent for slot in step.inputs}


def mark_last_uses(steps: Sequence[Step], kept: set[int]) -> None:
    seen = set(kept)
    for step in reversed(steps):
        slots = (*step.inputs, *step.outputs, *(slot for slot, _ in step.conditions))
        used = {slot for slot in slots if slot is not None}
        step.dropped = sorted(used - seen)
        seen |= used
