"""While a profile is open, replace a few methods that all operations use, so that the profile sees the operations.

If no profile is open, the original methods are in place, so nothing is slower. While a profile is open, threads without
a profile make only one check in each call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from minorm.data import DataLoader
from minorm.graph import backward, custom_function, recorded
from minorm.graph.graph import Function
from minorm.nn import Module
from minorm.ops.applications import Application
from minorm.optim import Optimizer
from minorm.profiler.event_recorder import Recorder, here
from minorm.profiler.events import DATA, OPTIMIZER, WALK, Event
from minorm.support.decorating import stepped

_lock = threading.Lock()
_open = 0  # profiles, of all threads
_originals: list[tuple[Any, str, Any]] = []  # (owner, name, original method)


@contextmanager
def installed() -> Iterator[None]:
    """During the block, operations, layers, optimizers and loaders report to the profile of their thread."""
    global _open  # noqa: PLW0603  the classes are there once, too
    with _lock:
        if not _open:
            _install()
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if not _open:
                _remove()


def _install() -> None:
    _exchange(Function, "apply", lambda plain: classmethod(_applying(plain.__func__)))
    _exchange(custom_function.Function, "apply", lambda plain: classmethod(_applying_static(plain.__func__)))
    _exchange(Function, "differentiate", _differentiating)
    _exchange(recorded, "differentiated", _differentiating)
    for module in (backward, recorded):
        for name in ("add_to_leaves", "gradients_of"):
            _exchange(module, name, _walking)
    _exchange(Module, "__call__", _calling)
    for base, name, listening in ((Optimizer, "step", _stepping), (Application, "run", _running)):
        for kind in (base, *_below(base)):
            if name in vars(kind):
                _exchange(kind, name, listening)
    _exchange(DataLoader, "__iter__", _loading)


def _remove() -> None:
    while _originals:
        owner, name, plain = _originals.pop()
        setattr(owner, name, plain)


def _exchange(owner: Any, name: str, listening: Callable[[Any], Any]) -> None:
    plain = vars(owner)[name]
    _originals.append((owner, name, plain))
    setattr(owner, name, listening(plain))


def _below(kind: Any) -> Iterator[Any]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


# Each of these takes a method and returns one that also reports events.


def _timed(recorder: Recorder, event: Event, array: Any, work: Callable[[], Any]) -> Any:
    """Run work(), end the event (with its GPU time if the array is on a GPU), and return the result."""
    start = recorder.mark(array)
    try:
        return work()
    finally:
        recorder.finish_marked(event, start, array)


def _applying(plain: Any) -> Any:
    def apply(cls: Any, *inputs: Any, **options: Any) -> Any:
        recorder = here.recorder
        if recorder is None:
            return plain(cls, *inputs, **options)
        event = recorder.operation(cls.__name__, inputs)
        answer = _timed(recorder, event, inputs[0].array, lambda: plain(cls, *inputs, **options))
        recorder.applied(event, inputs, answer)
        return answer

    return apply


def _applying_static(plain: Any) -> Any:
    """Wrap the method `apply` of Functions that a user wrote in PyTorch's form.

    All other Functions report to the profile in `Function.apply`.
    """

    def apply(cls: Any, *inputs: Any, **options: Any) -> Any:
        recorder = here.recorder
        if recorder is None or not cls.is_static:
            return plain(cls, *inputs, **options)
        tensors = tuple([x for x in inputs if hasattr(x, "array")])
        event, array = recorder.operation(cls.__name__, tensors), tensors[0].array if tensors else np.empty(0)
        answer = _timed(recorder, event, array, lambda: plain(cls, *inputs, **options))
        recorder.applied(event, tensors, answer)
        return answer

    return apply


def _differentiating(plain: Any) -> Any:
    def differentiate(function: Any, gradients: list[Any], *rest: Any) -> Any:
        recorder = here.recorder
        if recorder is None:
            return plain(function, gradients, *rest)
        first = next(g for g in gradients if g is not None)
        event = recorder.gradient(function)
        results = _timed(recorder, event, getattr(first, "array", first), lambda: plain(function, gradients, *rest))
        recorder.returned(event, results)
        return results

    return differentiate


def _walking(plain: Any) -> Any:
    def walk(*args: Any) -> Any:
        recorder = here.recorder
        if recorder is None:
            return plain(*args)
        with recorder.block("backward", WALK, backward=True):
            return plain(*args)

    return walk


def _running(plain: Any) -> Any:
    """Wrap the method with which a precomputed plan applies its operations to arrays."""

    def run(application: Any, registers: list[Any]) -> None:
        recorder = here.recorder
        if recorder is None:
            plain(application, registers)
            return
        arrays = [registers[i] for i in application.inputs]
        event = recorder.planned(repr(application), arrays)
        try:
            plain(application, registers)
        finally:
            recorder.finish(event)
        recorder.filled(event, arrays, [registers[i] for i in application.outputs])

    return run


def _calling(plain: Any) -> Any:
    def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807  the name that tracebacks show
        recorder = here.recorder
        if recorder is None:
            return plain(module, *args, **kwargs)
        event = recorder.call(module)
        try:
            return plain(module, *args, **kwargs)
        finally:
            recorder.finish(event)

    return __call__


def _stepping(plain: Any) -> Any:
    def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = here.recorder
        if recorder is None:
            return plain(optimizer, *args, **kwargs)
        array = optimizer.param_groups[0]["params"][0].array
        event = recorder.begin(f"Optimizer.step#{type(optimizer).__name__}.step", OPTIMIZER)
        return _timed(recorder, event, array, lambda: plain(optimizer, *args, **kwargs))

    return step


def _loading(plain: Any) -> Any:
    def __iter__(loader: Any) -> Any:  # noqa: N807
        return stepped(plain(loader), _reading)

    return __iter__


def _reading() -> AbstractContextManager[Any]:
    """Return a context that records a loader's batch as an event; it does nothing if no profile is open."""
    recorder = here.recorder
    return nullcontext() if recorder is None else recorder.block("DataLoader.__next__", DATA)
