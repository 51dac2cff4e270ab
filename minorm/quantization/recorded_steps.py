"""Runs a model once, and records its operations for planning.py."""

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
    arguments  the arguments by name; `results` has the returned Tensors. Arguments and results are dropped after
               planning
    """

    target: Any
    path: str
    arguments: dict[str, Any]
    results: list[Any]
    changed: bool = False  # True if the result is an earlier Tensor, changed in place
    makers: dict[int, int] = field(default_factory=dict)  # id of an argument -> the step that it came from
    outputs: dict[int, Site] = field(default_factory=dict)  # place of a Tensor in the result -> its site
    weight: str | None = None  # the key of the weight's fake quantization
    source: Site | None = None  # the site at which the weighted step's input was rounded
    sources: list[Site] = field(default_factory=list)  # the sites at which the inputs of a joining step were rounded
    norm: int | None = None  # the step that is folded into this one
    folded: bool = False  # True for a norm that is folded into the step before
    clip: int | None = None  # the step that clips this one's result
    clips: tuple[float | None, float | None] = (None, None)  # the bounds of a step that clips
    last: int = -1  # the step whose result is rounded: this one, its norm or its clip

    def reads(self, tensor: Tensor) -> bool:
        """Return whether `tensor` is among the arguments of the step."""
        return any(given is tensor for given in tensors_of(self.arguments))

    @property
    def output(self) -> Site | None:
        """The site at which the step's first (or only) result is rounded."""
        return self.outputs.get(0)

    def forget(self) -> None:
        """Drop the tensors of the example; a run does not need them."""
        self.arguments, self.results, self.makers = {}, [], {}


@dataclass
class Site:
    """A point in the model at which an activation is rounded; `key` is the key of the FakeQuantize layer there."""

    key: str


class _Watcher:
    """Records the steps of one run."""

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
    """Return the value after rounding some of its Tensors; `sites` has their indices in `tensors_of(value)`."""
    places = itertools.count()

    def part(tensor: Tensor) -> Tensor:
        place = next(places)
        return rounds(tensor, sites[place].key) if place in sites else tensor

    return mapped(value, Tensor, part) if sites else value


def watch(model: Module, args: tuple[Any, ...]) -> tuple[list[Step], list[Tensor]]:
    """Run the model in evaluation mode without changing it; return its steps and the Tensors that it returned."""
    watcher = _Watcher()
    with evaluating(model), _paths(model, watcher.paths), trace.intercepted(watcher):
        returned = model(*args)
    return watcher.steps, tensors_of(returned)


@contextlib.contextmanager
def _paths(model: Module, open_paths: list[str]) -> Iterator[None]:
    """Inside the block, make the path of the running module the last entry of `open_paths`."""
    with contextlib.ExitStack() as stack:
        for path, module in model.named_modules():

            def enter(*_: Any, path: str = path) -> None:
                open_paths.append(path)

            def leave(*_: Any) -> None:
                open_paths.pop()

            stack.enter_context(module.register_forward_pre_hook(enter))
            stack.enter_context(module.register_forward_hook(leave))
        yield
