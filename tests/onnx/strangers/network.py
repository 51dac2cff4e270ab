"""A family: a network in PyTorch, its inputs, and which of their lengths a file leaves free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

FAMILIES: dict[str, Family] = {}


@dataclass
class Family:
    """`inputs` maps each input's name to its shape, in which a word is a free length of that name.

    A number of `words` makes the inputs it names integers below it.
    """

    make: Callable[[], Any]
    inputs: dict[str, tuple[Any, ...]]
    lengths: dict[str, int]
    words: dict[str, int] = field(default_factory=dict)
    positive: bool = False  # the inputs lie between 0 and 1

    def example(self, number: int = 0, free: set[Any] | None = None) -> tuple[Any, ...]:
        """Inputs of the usual lengths (0), of longer ones (1), of odd ones (2), and of others (3).

        free    the lengths that may be others; default: all
        """
        steps = {"n": (0, 1, -1, 2), "t": (0, 3, 1, 2), "h": (0, 32, 11, 64), "w": (0, 32, 5, 64)}
        lengths = {d: n + (steps[d][number] if free is None or d in free else 0) for d, n in self.lengths.items()}
        made = torch.Generator().manual_seed(number)
        tensors = []
        for name, shape in self.inputs.items():
            size = [d if isinstance(d, int) else lengths[d] for d in shape]
            if name in self.words:
                tensors.append(torch.randint(0, self.words[name], size, generator=made))
            elif self.positive:
                tensors.append(torch.rand(size, generator=made))
            else:
                tensors.append(torch.randn(size, generator=made))
        return tuple(tensors)

    def axes(self) -> dict[str, dict[int, str]]:
        free = {name: {i: d for i, d in enumerate(s) if isinstance(d, str)} for name, s in self.inputs.items()}
        return {name: axes for name, axes in free.items() if axes}


def family(
    inputs: dict[str, tuple[Any, ...]] | tuple[Any, ...], words: dict[str, int] | None = None, **more: Any
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Enter the function, which makes the network, under its name; lengths by their names among `more`."""
    inputs = inputs if isinstance(inputs, dict) else {"x": inputs}
    settings = {key: more.pop(key) for key in ("positive",) if key in more}
    lengths = {"n": 2, "t": 6, "h": 32, "w": 32, **more}

    def enter(make: Callable[[], Any]) -> Callable[[], Any]:
        FAMILIES[make.__name__] = Family(make, inputs, lengths, words or {}, **settings)
        return make

    return enter


IMAGE = ("n", 3, "h", "w")


class Net(nn.Module):
    """A module from a function that runs and the parts it runs."""

    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, nn.ModuleList(part) if isinstance(part, list) else part)
        self.run = run

    def forward(self, *inputs: Any) -> Any:
        return self.run(self, *inputs)


def weight(*shape: int, scale: float = 0.2) -> Any:
    return nn.Parameter(torch.randn(*shape) * scale)


def conv_norm(a: int, b: int, kernel: int = 3, stride: int = 1, act: Any = None, **more: Any) -> Any:
    layers = [nn.Conv2d(a, b, kernel, stride, kernel // 2, bias=False, **more), nn.BatchNorm2d(b)]
    return nn.Sequential(*layers, act or nn.ReLU())
