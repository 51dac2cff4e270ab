"""A node of a loaded graph, ready to run: its function, and the numbered slots of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from minorm import devices
from minorm.devices import dtypes
from minorm.graph import trace
from minorm.onnx.graph import kinds, memory_budget
from minorm.onnx.graph.scope import Scope
from minorm.tensor.tensor import Tensor


@dataclass
class Step:
    """A node to run on values in numbered slots; None stands for an absent value."""

    operation: Callable[..., Any]
    inputs: list[int | None]
    outputs: list[int | None]
    label: str
    silent: bool  # True if it computes only with shapes: export sees the integers, not their computation
    scope: Scope | None = None  # holds the path with which the node's name begins
    conditions: Sequence[tuple[int, bool]] = ()  # (slot, bool): the node runs only if each slot is this bool
    dropped: Sequence[int] = ()  # slots that no later step reads
    precise: Sequence[int] = ()  # inputs whose type ONNX prescribes: Resize's scales are float32
    operator: str = ""
    names: Sequence[str] = ()  # the names of the outputs in the file
    casts: bool = False  # True for a Cast to floats: in a converted graph it casts data to the graph's type
    together: bool = False  # True if it needs all arguments on one device; the first run on a GPU finds out
    node: str = ""  # its name in the file
    module: str = ""  # the path of the module that it comes from, if the file records it

    @property
    def place(self) -> str:
        """The path of the node's module, or else the name of the node, or else the name of the node's first output."""
        return self.module or self.node or next(filter(None, self.names), "")

    def run(self, values: list[Any], dtype: Any = None) -> tuple[Any, ...]:
        """Compute and store the outputs, unless the node is in a branch that is not taken; return the results.

        dtype    the float type to which the graph was converted after loading; None if it was not converted
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
        except Exception as error:  # the message of any error must name the node
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
        """Compute the results.

        If the operation needs all its arguments on one GPU, the constants are copied to this GPU first. The copy is no
        operation of the model, so a trace does not record it. Constants that the operation itself reads, such as shapes
        and axes, stay on the CPU.
        """
        if not self.together:
            try:
                return _as_tuple(compute(*arguments))
            except devices.DeviceError:
                self.together = True
        device = next((x.device for x in arguments if isinstance(x, Tensor) and x.is_cuda), "cpu")
        recorded, trace.state.calls = trace.state.calls, None
        try:
            there = [x.to(device) if isinstance(x, Tensor) else x for x in arguments]
        finally:
            trace.state.calls = recorded
        return _as_tuple(compute(*there))

    def _silently(self, arguments: list[Any]) -> tuple[Any, ...] | None:
        """Compute the results outside the trace.

        Return None if a result is a float Tensor, because its values may be any function of a length.
        """
        outer, trace.state.calls = trace.state.calls, None
        try:
            results = _as_tuple(self.operation(*arguments))
        finally:
            trace.state.calls = outer
        return None if any(isinstance(x, Tensor) and dtypes.is_float(x.dtype) for x in results) else results


def converted(value: Any, dtype: Any) -> Any:
    """Convert a float Tensor to this type; return anything else unchanged."""
    different = isinstance(value, Tensor) and dtypes.is_float(value.dtype) and value.dtype != dtype
    return value.to(dtype) if different else value


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def unconverted(steps: Sequence[Step]) -> set[int | None]:
    """Return the slots whose values at least one step reads in the type of the file."""
    kept = {step.inputs[place] for step in steps for place in step.precise}
    return kept | {slot for step in steps if step.silent for slot in step.inputs}


def mark_last_uses(steps: Sequence[Step], kept: set[int]) -> None:
    seen = set(kept)
    for step in reversed(steps):
        slots = (*step.inputs, *step.outputs, *(slot for slot, _ in step.conditions))
        used = {slot for slot in slots if slot is not None}
        step.dropped = sorted(used - seen)
        seen |= used
