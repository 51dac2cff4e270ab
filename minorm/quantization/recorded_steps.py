"""Runs a model once, and writes down its operations: what planning.py reads."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from minorm.graph import trace
from minorm.nn import Module
from minorm.nn.evaluating import evaluating
from minorm.support.nested import mapped
from minorm.tensor.tensor import Tensor


@dataclass
class Step:
    """One operation of the model.

    target     the public function or the autograd Function
    path       the module that called it
    arguments  by name, results: what it returned; forgotten after planning
    """

    target: Any
    path: str
    arguments: dict[str, Any]
    results: list[Any]
    changed: bool = False  # whether that is a Tensor from before, changed in place
    makers: dict[int, int] = field(default_factory=dict)  # id of an argument -> the step that it came from
    outputs: dict[int, Site] = field(default_factory=dict)  # where its result is rounded: the Tensors in it by place
    weight: str | None = None  # the key of the weight's fake quantization
    source: Site | None = None  # where the input of a weight was rounded
    sources: list[Site] = field(default_factory=list)  # where all that a joining step reads was rounded
    norm: int | None = None  # the step that is folded into this one
    folded: bool = False  # a norm that is folded into the step before
    clip: int | None = None  # the step that clips this one's result
    clips: tuple[float | None, float | None] = (None, None)  # the bounds of a step that clips
    last: int = -1  # the step whose result is rounded: this one, its norm or its clip

    def reads(self, tensor: Tensor) -> bool:
        """Return whether this Tensor is among the arguments."""
        return any(given is tensor for given in tensors_of(self.arguments))

    @property
    def output(self) -> Site | None:
        """The site where the step's only result, or its first, is rounded."""
        return self.outputs.get(0)

    def forget(self) -> None:
        """Keep what running needs, and no tensor of the example."""
        self.arguments, self.results, self.makers = {}, [], {}


@dataclass
class Site:
    """A tensor that is rounded, by the key of its fake quantization."""

    key: str


class _Watcher:
    """Writes down the steps of one run."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.paths: list[str] = [""]

    def call(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        return self._add(function, arguments, trace.called(function, arguments))

    def applied(self, function: type, arguments: dict[str, Any], result: Any) -> Any:
        return self._add(function, arguments, result)

    def changed(self, tensor: Tensor) -> None:
        self.steps[-1].results, self.steps[-1].changed = [tensor], True

    def _add(self, target: Any, arguments: dict[str, Any], result: Any) -> Any:
        self.steps.append(Step(target, self.paths[-1], arguments, tensors_of(result)))
        return result


def tensors_of(value: Any) -> list[Tensor]:
    """Return the Tensors in a result or in arguments."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [t for part in value for t in tensors_of(part)] if isinstance(value, (tuple, list)) else []


def round_parts(value: Any, sites: dict[int, Site], rounds: Callable[[Tensor, str], Tensor]) -> Any:
    """Return a Tensor, or several, with those rounded whose places `sites` names, in the order of tensors_of."""
    places = itertools.count()

    def part(tensor: Tensor) -> Tensor:
        place = next(places)
        return rounds(tensor, sites[place].key) if place in sites else tensor

    return mapped(value, Tensor, part) if sites else value


def watch(model: Module, args: tuple[Any, ...]) -> tuple[list[Step], list[Tensor]]:
    """Run the model in evaluation mode, and leave no mark on it; what it did, and the Tensors that it returned."""
    watcher = _Watcher()
    with evaluating(model), _paths(model, watcher.paths), trace.intercepted(watcher):
        returned = model(*args)
    return watcher.steps, tensors_of(returned)


@contextlib.contextmanager
def _paths(model: Module, open_paths: list[str]) -> Iterator[None]:
    """Keep the path of the running module at the end of `open_paths` inside the block."""
    with contextlib.ExitStack() as stack:
        for path, module in model.named_modules():

            def enter(*_: Any, path: str = path) -> None:
                open_paths.append(path)

            def leave(*_: Any) -> None:
                open_paths.pop()

            stack.enter_context(module.register_forward_pre_hook(enter))
            stack.enter_context(module.register_forward_hook(leave))
        yield
