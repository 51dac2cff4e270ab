"""Run the model several times to see what it computes, and leave it unchanged.

One run shows the operations. A run in which a free axis (the batch, for example) has another length shows which lengths
and numbers depend on that axis. A run with other input values shows which numbers the model computed outside minorm, by
`x.numpy()` or `x.item()`; without this run, such numbers would silently become constants. Afterwards we restore modes,
buffers and the random generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import generators
from minorm.graph import trace
from minorm.graph.grad_mode import no_grad
from minorm.graph.trace import Call
from minorm.nn import Module
from minorm.onnx.graph.errors import ExportError
from minorm.onnx.graph.scope import Embedded, Scope
from minorm.onnx.loading.graph_module import GraphModule
from minorm.tensor.tensor import Tensor


@dataclass
class Run:
    """Holds one run: its arguments, its calls, its result, and the values of the buffers after the run."""

    args: tuple[Any, ...]
    calls: list[Call]
    result: Any
    buffers: dict[str, Tensor]
    originals: dict[int, tuple[Any, Any]]  # id -> an array that calls changed in place, and its old contents


def record(model: Callable[..., Any], args: tuple[Any, ...]) -> Run:
    """Run `model(*args)` and record its calls, as a tree of modules and operations."""
    known = [a for a in args if isinstance(a, Tensor)]
    if isinstance(model, Module):
        known += [*model.parameters(), *model.buffers()]
    before = {id(tensor.version): (tensor.version.count, _unseen(tensor)) for tensor in known}
    with no_grad(), _scopes(model), trace.record() as calls:
        result = model(*args)
        originals = trace.state.originals
    ignored = {id(b.version) for b in model.buffers()} if isinstance(model, Module) else set()
    for tensor in known:
        if tensor.version.count != before[id(tensor.version)][0] and id(tensor.version) not in ignored:
            raise ExportError(
                f"export: an input or a parameter of shape {tensor.shape} was changed in place; a graph changes "
                "nothing that it is given; compute a new tensor instead, or start from x.clone()"
            )
    _refuse_changes(calls, before, ignored)
    _part_views(calls)
    buffers = model.named_buffers() if isinstance(model, Module) else ()
    return Run(args, calls, result, {name: Tensor(devices.copied(buffer.array)) for name, buffer in buffers}, originals)


_CHANGED = (
    "export: {} of shape {} was changed in place, which a trace cannot record; compute a new tensor instead "
    "(minorm.where, minorm.cat, x * mask)"
)


def _unseen(tensor: Tensor) -> int:
    """Return how often the tensor's array was changed directly; no trace records such changes."""
    return tensor.version.count - tensor.version.traced


def _refuse_changes(calls: list[Call], before: dict[int, tuple[int, int]], ignored: set[int]) -> None:
    """Raise ExportError for changes that no call records; such changes raise the version of a tensor."""
    for call in calls:
        for tensor in tensors_of(call.result):
            if _unseen(tensor) != before.get(id(tensor.version), (0, 0))[1] and id(tensor.version) not in ignored:
                raise ExportError(_CHANGED.format(f"a result of {name_of(call.target)}", tensor.shape))
        _refuse_changes(call.children, before, ignored)


def _part_views(calls: list[Call]) -> None:
    """Detach recorded views from their buffers, because the next run changes the buffers and would change the views."""
    for call in calls:
        if not call.changed:
            for tensor in tensors_of(call.result):
                tensor.view_of = None
        _part_views(call.children)


@contextmanager
def _scopes(model: Callable[..., Any]) -> Iterator[None]:
    """Inside this context, make each module's forward appear in the trace as a call of the module's Scope."""
    with ExitStack() as stack:
        for path, module in model.named_modules() if isinstance(model, Module) else ():
            stack.callback(_put_back, module.__dict__, "forward", module.__dict__.get("forward"))
            whole = isinstance(module, GraphModule) and module.original is not None and module is not model
            module.__dict__["forward"] = _scoped(module.forward, Scope(path), Embedded(path, module) if whole else None)
        yield


def _put_back(attributes: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        attributes.pop(name, None)
    else:
        attributes[name] = value


def _scoped(forward: Callable[..., Any], scope: Scope, file: Embedded | None) -> Callable[..., Any]:
    """Wrap a forward in a call of `scope`, or in a call of `file` if this is given and no interceptor is active."""

    def called(*args: Any, **kwargs: Any) -> Any:
        how = scope if file is None or trace.state.interceptor is not None else file
        return how.call(forward, *args, **kwargs)

    return called


@contextmanager
def same_random_numbers_after(model: Any = None) -> Iterator[None]:
    """After this context, restore the random generator and the generators of the model's layers.

    Do not put each run into a separate context: two runs must draw different numbers, so that we notice a random
    constant.
    """
    layers = model.modules() if isinstance(model, Module) else ()
    own = [g for layer in layers if isinstance(g := getattr(layer, "generator", None), np.random.Generator)]
    states = [generator.bit_generator.state for generator in own]
    try:
        with generators.kept():
            yield
    finally:
        for generator, state in zip(own, states, strict=True):
            generator.bit_generator.state = state


@contextmanager
def untouched(model: Callable[..., Any], training: bool | None) -> Iterator[None]:
    """Put the model in training or evaluation mode (None: keep its modes); restore modes and buffers afterwards."""
    modules = list(model.modules()) if isinstance(model, Module) else []
    modes = [(module, module.training) for module in modules]
    buffers = [
        (module, name, buffer, buffer.array, devices.copied(buffer.array), buffer.version.count, buffer.version.traced)
        for module in modules
        for name, buffer in module.named_buffers(recurse=False)
    ]
    try:
        if isinstance(model, Module) and training is not None:
            model.train(training)
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for module, name, buffer, array, contents, count, traced in buffers:
            with devices.on_device_of(array):
                array[...] = contents
            buffer.set_array(array)
            buffer.version.count, buffer.version.traced = count, traced
            if dict(module.named_buffers(recurse=False)).get(name) is not buffer:  # forward replaced the buffer
                setattr(module, name, buffer)


def results(
    model: Callable[..., Any], args: tuple[Any, ...], training: bool | None, updated: Sequence[str]
) -> list[Tensor]:
    """Run the model without changing it; return its results, followed by the new values of the buffers in `updated`."""
    with same_random_numbers_after(model), untouched(model, training), no_grad():
        found = tensors_of(model(*args))
        buffers = dict(model.named_buffers()) if isinstance(model, Module) else {}
        return [Tensor(devices.copied(tensor.array)) for tensor in (*found, *(buffers[name] for name in updated))]


def tensors_of(result: Any) -> list[Tensor]:
    """Return the Tensors in a result, which is a Tensor, or nested tuples, lists and dicts with Tensors."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, Sequence) and not isinstance(result, str):
        return [tensor for part in result for tensor in tensors_of(part)]
    return []


def name_of(target: Any) -> str:
    """Return the name of an operation for messages."""
    if isinstance(target, Scope):
        return f"module {target.path or 'model'}"
    return str(getattr(target, "__qualname__", target)).split(".")[-1]
