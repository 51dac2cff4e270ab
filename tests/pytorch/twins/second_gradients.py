"""Gradients of gradients of PyTorch's own samples (OpInfo), in both libraries; by finite differences where it has none.

For y = f(x) with weights v of y's elements, the first gradient g = d<v, y>/dx is a function of x and of v. Given
weights w of its elements, the second gradients are d<w, g>/dx and d<w, g>/dv.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import minorm as mn
from tests.pytorch.twins import operations

STEP = 1e-5
MOST = 50  # elements of a leaf that finite differences are taken for


class Setting:
    """One sample in both libraries: the functions, the arguments of their calls, and the weights v and w."""

    def __init__(self, theirs: Callable[..., Any], mine: Callable[..., Any], given: tuple[Any, Any, Any]) -> None:
        """given: the first argument, the others, and those by name."""
        made: dict[int, Any] = {}
        self.theirs, self.mine, self.given = theirs, mine, given
        self.ours = tuple(operations.ours(value, made) for value in self.given)
        self.leaves = [x for x in operations.tensors(list(self.given), torch.Tensor) if x.requires_grad]
        self.made = [made[id(x)] for x in self.leaves]

    def add_parameters(self, theirs: Any, mine: Any) -> None:
        """Count the parameters of two modules as leaves; both get the same numbers."""
        mine.load_state_dict({key: mn.tensor(np.array(value.numpy())) for key, value in theirs.state_dict().items()})
        of_mine = dict(mine.named_parameters())
        for key, parameter in theirs.named_parameters():
            self.leaves.append(parameter)
            self.made.append(of_mine[key])

    def called(self, function: Callable[..., Any], given: tuple[Any, Any, Any]) -> Any:
        x, args, kwargs = given
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):  # whose gradient PyTorch can differentiate
            warnings.simplefilter("ignore")
            return function(x, *args, **kwargs)

    def of_pytorch(self) -> tuple[list[Any], list[Any]] | None:
        """Its first and second gradients, an empty list where it has none; None where nothing is differentiable."""
        results = operations.tensors(self.called(self.theirs, self.given), torch.Tensor)
        self.which = [i for i, y in enumerate(results) if y.requires_grad]
        if not self.which or not self.leaves:
            return None
        generator = torch.Generator().manual_seed(1)

        def drawn(x: Any) -> Any:
            return torch.randn(x.shape, dtype=x.dtype, generator=generator)

        ends = [results[i] for i in self.which]
        self.v = [drawn(y).requires_grad_() for y in ends]
        self.w = [drawn(x) for x in self.leaves]
        try:
            first = torch.autograd.grad(ends, self.leaves, self.v, create_graph=True, allow_unused=True)
            return list(first), second_of(torch, first, self.leaves, self.v, self.w)
        except (RuntimeError, NotImplementedError):
            ends = [operations.tensors(self.called(self.theirs, self.given), torch.Tensor)[i] for i in self.which]
            return list(torch.autograd.grad(ends, self.leaves, self.v, allow_unused=True)), []

    def first_of_ours(self, create_graph: bool) -> tuple[list[Any], list[Any]]:
        results = operations.tensors(self.called(self.mine, self.ours), mn.Tensor)
        v = [operations.ours(v, {}) for v in self.v]
        ends = [results[i] for i in self.which]
        if not all(y.requires_grad for y in ends):  # of rounding, whose gradient is 0 in PyTorch
            return [None] * len(self.made), v
        first = mn.autograd.grad(ends, self.made, v, create_graph=create_graph, allow_unused=True)
        return list(first), v

    def of_ours(self) -> tuple[list[Any], list[Any]]:
        first, v = self.first_of_ours(True)
        return first, second_of(mn, first, self.made, v, [mn.tensor(w.numpy(), mn.float64) for w in self.w])

    def by_differences(self) -> list[tuple[Any, Any]]:
        """d<w, g>/dx by central differences of our first gradients on arrays: for each leaf places and values."""

        def slope() -> float:
            first, _ = self.first_of_ours(False)
            return sum(
                float((g.numpy() * w.numpy()).sum()) for g, w in zip(first, self.w, strict=True) if g is not None
            )

        found = []
        for x in self.made:
            elements = x.detach().numpy()
            places, gradient = np.arange(x.numel())[:: 1 + x.numel() // MOST], []
            for place in places:
                index = np.unravel_index(place, x.shape)
                before, sides = elements[index], []
                for step in (STEP, -STEP):
                    elements[index] = before + step
                    sides.append(slope())
                elements[index] = before
                gradient.append((sides[0] - sides[1]) / (2 * STEP))
            found.append((places, np.array(gradient)))
        return found


def second_of(library: Any, first: Any, leaves: list[Any], v: list[Any], w: list[Any]) -> list[Any]:
    """d<w, first>/d(leaves and v)"""
    pairs = [(g, one) for g, one in zip(first, w, strict=True) if g is not None and g.requires_grad]
    inputs = [*leaves, *v]
    if not pairs:
        return [None] * len(inputs)
    ends, weights = ([pair[i] for pair in pairs] for i in (0, 1))
    return list(library.autograd.grad(ends, inputs, weights, allow_unused=True))


def differences(setting: Setting, name: str, bound: float = 1e-8) -> tuple[int, list[str]]:
    """How many gradients were compared, and what differs, in words."""
    expected = setting.of_pytorch()
    if expected is None:
        return 0, []
    described = f"{name}({operations.describe(setting.given)})"
    try:
        first, second = setting.of_ours()
    except Exception as error:  # noqa: BLE001
        return 1, [f"{described}: {type(error).__name__}: {error}"]
    wrong = [f"{described}: first {text}" for text in _compared(first, expected[0], bound)]
    if expected[1]:
        wrong += [f"{described}: second {text}" for text in _compared(second, expected[1], bound)]
    else:
        places, numerical = zip(*setting.by_differences(), strict=True)
        there = [None if g is None else _array(g).reshape(-1)[at] for g, at in zip(second, places, strict=False)]
        wrong += [f"{described}: second {text}" for text in _compared(there, list(numerical), 1e-4)]
    return len(first) + len(second), wrong


def _compared(found: list[Any], expected: list[Any], bound: float) -> list[str]:
    wrong = []
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        shape = next(x.shape for x in (a, b, np.zeros(())) if x is not None)
        one, other = (np.zeros(shape) if x is None else _array(x) for x in (a, b))
        if one.shape != other.shape:
            wrong.append(f"gradient {i} has shape {one.shape}, expected {other.shape}")
        elif (apart := operations.apart(one, other)) > bound:
            wrong.append(f"gradient {i} differs by {apart:.1e}")
    return wrong


def _array(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.detach().double().numpy(force=True)
    return x.detach().double().numpy() if isinstance(x, mn.Tensor) else x
