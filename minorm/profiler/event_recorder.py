"""Records the events of one profile: opens and closes events, and finds the layer of each event."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any

import numpy as np

from minorm import devices
from minorm.cuda.streams import Event as CudaEvent
from minorm.devices import capture
from minorm.nn import Module
from minorm.profiler.events import LAYER, OPERATION, Event, Layer
from minorm.profiler.held_memory import Memory, arrays_in


class _Here(threading.local):
    recorder: Recorder | None = None


here = _Here()  # each thread has its own profile, or no profile


class Root:
    """An outermost module, with the names of the modules and parameters in it."""

    def __init__(self, number: int, module: Module) -> None:
        self.number, self.kind, self.module = number, type(module).__name__, weakref.ref(module)
        self.modules = {id(part): Layer(number, path, type(part).__name__) for path, part in module.named_modules()}
        paths = {name: name.rpartition(".")[0] for name, _ in module.named_parameters()}
        self.parameters = {id(p): paths[name] for name, p in module.named_parameters()}
        self.arrays = {id(p.array): paths[name] for name, p in module.named_parameters()}

    def below(self, layer: Layer, paths: Iterable[str | None], kind: str) -> tuple[Layer, ...]:
        """Return a tuple with a Layer of this kind at the first of `paths` that is inside `layer`.

        If no path is inside `layer`, return ().
        """
        for path in paths:
            if path and path != layer.path and f"{path}.".startswith(layer.path and f"{layer.path}."):
                return (Layer(self.number, path, kind),)
        return ()


class Recorder:
    """The recorder of a profile; `events` are in the order in which they began.

    shapes   whether the shapes of inputs are recorded
    memory   whether the bytes of arrays are counted
    gpu      whether GPU times are measured, with a CUDA event before and after each operation on a GPU
    """

    def __init__(self, shapes: bool, memory: bool, gpu: bool) -> None:
        self.shapes, self.gpu = shapes, gpu
        self.memory = Memory() if memory else None
        self.kept = Memory()  # arrays kept for a backward pass
        self.events: list[Event] = []
        self.roots: list[Root] = []
        self.timeline: list[tuple[int, int]] = []  # (when, bytes held)
        self.began = perf_counter_ns()
        self.ended = 0
        self._open: Event | None = None
        self._layers: dict[int, tuple[Layer, ...]] = {}  # layers of each Function, by its serial number
        self._marks: list[tuple[Event, int, Any, Any]] = []  # (event, GPU, CUDA event before, CUDA event after)

    def now(self) -> int:
        """Return the nanoseconds since the profile began."""
        return perf_counter_ns() - self.began

    def begin(
        self, name: str, kind: str, layers: tuple[Layer, ...] | None = None, backward: bool | None = None
    ) -> Event:
        """Open an event.

        If `layers` or `backward` is None, the new event takes the value of the event that is open now.
        """
        around = self._open
        if around is not None:
            layers = around.layers if layers is None else layers
            backward = around.backward if backward is None else backward
        event = Event(name, kind, self.now(), around, layers or (), bool(backward))
        self.events.append(event)
        self._open = event
        return event

    def finish(self, event: Event) -> None:
        """Close the event, and all events inside it that are still open."""
        end = self.now()
        while self._open is not None:
            closed, self._open = self._open, self._open.parent
            closed.end = end
            if closed.parent is not None:
                closed.parent.nested += closed.time
            if closed is event:
                return

    def close(self) -> None:
        """End the profile: close all open events, and wait for the GPUs."""
        while self._open is not None:
            self.finish(self._open)
        self.ended = self.now()
        firsts: dict[int, tuple[Event, Any]] = {}
        for event, device, start, end in sorted(self._marks, key=lambda mark: mark[0].start):  # outer events first
            end.synchronize()
            base, first = firsts.setdefault(device, (event, start))
            begun = base.start + int(1e6 * first.elapsed_time(start))
            event.device = device, begun, int(1e6 * start.elapsed_time(end))
            around = event.parent
            while around is not None and (around.device is None or around.device[0] != device):
                around = around.parent
            if around is not None:
                around.device_nested += event.device[2]
        self._marks.clear()

    @contextmanager
    def block(self, name: str, kind: str, backward: bool | None = None) -> Iterator[Event]:
        """Open an event for the block, and close it afterwards."""
        event = self.begin(name, kind, backward=backward)
        try:
            yield event
        finally:
            self.finish(event)

    def mark(self, array: Any) -> Any:
        """If GPU times are measured and the array is on a GPU, record and return a CUDA event before the next work."""
        if not self.gpu or type(array) is np.ndarray or devices.is_host(array) or capture.is_captured():
            return None
        with devices.on_device_of(array):
            start = CudaEvent(enable_timing=True)
            start.record()
        return start

    def finish_marked(self, event: Event, start: Any, array: Any) -> None:
        """Close an event that began with `start`, the result of `mark(array)`."""
        if start is not None:
            with devices.on_device_of(array):
                end = CudaEvent(enable_timing=True)
                end.record()
            self._marks.append((event, int(array.device.id), start, end))
        self.finish(event)

    # Layers

    def call(self, module: Module) -> Event:
        """Open the event of a module's call."""
        layer = self._layer_of(module)
        around = () if self._open is None else self._open.layers
        return self.begin(layer.path or layer.kind, LAYER, (*around, layer))

    def operation(self, name: str, inputs: tuple[Any, ...]) -> Event:
        """Open the event of a Function, in the running layer or in an inner layer that owns one of the inputs."""
        event = self.begin(name, OPERATION)
        if event.layers:
            inner = event.layers[-1]
            root = self.roots[inner.root]
            event.layers += root.below(inner, [root.parameters.get(id(x)) for x in inputs], name)
        if self.shapes:
            event.shapes = tuple([None if x is None else tuple(x.shape) for x in inputs])
        return event

    def planned(self, name: str, arrays: list[Any]) -> Event:
        """Open the event of an operation that a precomputed plan applies to arrays."""
        event = self.begin(name, OPERATION)
        if event.layers:
            inner = event.layers[-1]
            root = self.roots[inner.root]
            event.layers += root.below(inner, [root.arrays.get(id(array)) for array in arrays], name)
        return event

    def gradient(self, function: Any) -> Event:
        """Open the event of a Function's backward pass."""
        layers = self._layers.get(function.serial, ())
        return self.begin(f"{type(function).__name__}Backward", OPERATION, layers, backward=True)

    def _layer_of(self, module: Module) -> Layer:
        for root in reversed(self.roots):
            layer = root.modules.get(id(module))
            if layer is not None and root.module() is not None:
                return layer
        self.roots.append(Root(len(self.roots), module))
        return self.roots[-1].modules[id(module)]

    # The results of an operation

    def applied(self, event: Event, inputs: tuple[Any, ...], answer: Any) -> None:
        """Record the memory that a Function has taken, and its layers, which its backward pass needs."""
        outputs = answer if isinstance(answer, tuple) else (answer,)
        creator = getattr(outputs[0], "creator", None)
        if creator is not None:
            self._layers[creator.serial] = event.layers
        if self.memory is None:
            return
        for x in inputs:
            if x is not None and x.creator is None:
                self.memory.leave_out(x.array)
                self.kept.leave_out(x.array)
        arrays = [y.array for y in outputs if hasattr(y, "array")]
        event.allocated = sum(self.memory.add(y) for y in arrays)
        if creator is not None and arrays:
            for array in arrays_in(vars(creator), type(arrays[0])):
                event.allocated += self.memory.add(array)
                event.kept += self.kept.add(array)
        self.timeline.append((self.now(), self.memory.held))

    def filled(self, event: Event, arrays: list[Any], results: list[Any]) -> None:
        """Record the memory of the results that a plan's operation has computed from arrays."""
        if self.memory is not None:
            for array in arrays:
                if array is not None:
                    self.memory.leave_out(array)
            event.allocated = sum(self.memory.add(result) for result in results if result is not None)
            self.timeline.append((self.now(), self.memory.held))

    def returned(self, event: Event, gradients: tuple[Any, ...]) -> None:
        """Record the memory of the gradients after a Function's backward pass."""
        if self.memory is not None:
            event.allocated = sum(self.memory.add(dx) for dx in gradients if hasattr(dx, "nbytes"))
            self.timeline.append((self.now(), self.memory.held))
