"""PyTorch's own samples: what torch.testing._internal tries its functions and layers with, for ours in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import minorm as mn


def ours(value: Any) -> Any:
    """The same with Tensors of minorm for PyTorch's, in every container."""
    if isinstance(value, torch.Tensor):
        array = np.array(value.detach().numpy())
        return mn.Tensor(array, requires_grad=value.requires_grad)
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(map(ours, value))
    if isinstance(value, dict):
        return {key: ours(item) for key, item in value.items()}
    if isinstance(value, torch.dtype):
        return getattr(mn, str(value).removeprefix("torch."))
    return tuple(value) if isinstance(value, torch.Size) else value


def tensors(value: Any, kind: Any) -> Iterator[Any]:
    """Every Tensor in a nest, in order; None is passed over."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item, kind)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item, kind)


def assert_same(mine: Any, theirs: Any, what: str, rtol: float = 1e-9, atol: float = 1e-11) -> None:
    """One shape, one type, and close numbers; NaN is NaN."""
    expected = theirs.detach().numpy()
    assert mine.shape == expected.shape, f"{what}: shape {mine.shape}, PyTorch's {expected.shape}"
    assert mine.dtype == expected.dtype, f"{what}: {mine.dtype}, PyTorch's {expected.dtype}"
    np.testing.assert_allclose(mine.array, expected, rtol=rtol, atol=atol, err_msg=what)


def compare(mine: Any, theirs: Any, arguments: tuple[Any, Any], what: str = "", **bounds: float) -> None:
    """Results of a call, and the gradients of all that it was given, and of `more` parameters."""
    found, expected = list(tensors(mine, mn.Tensor)), list(tensors(theirs, torch.Tensor))
    assert len(found) == len(expected), what
    for a, b in zip(found, expected, strict=True):
        assert_same(a, b, f"{what} result", **bounds)
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if b.requires_grad]
    if not pairs:
        return
    weights = [np.random.default_rng(7).standard_normal(b.shape) for _, b in pairs]
    sum((b * torch.tensor(w)).sum() for (_, b), w in zip(pairs, weights, strict=True)).backward()
    total: Any = sum((a * mn.tensor(np.asarray(w))).sum() for (a, _), w in zip(pairs, weights, strict=True))
    total.backward()
    given, wanted = (list(tensors(side, kind)) for side, kind in zip(arguments, (mn.Tensor, torch.Tensor), strict=True))
    for i, (a, b) in enumerate(zip(given, wanted, strict=True)):
        if b.requires_grad and b.grad is not None:
            gradient = a.grad if a.grad is not None else mn.Tensor(np.zeros_like(a.array))
            assert_same(gradient, b.grad, f"{what} gradient {i}", **bounds)


def leaves(value: Any) -> Any:
    """Copy the nest; its tensors of PyTorch become separate, contiguous leaves."""
    if isinstance(value, torch.Tensor):
        copy = value.detach().clone(memory_format=torch.contiguous_format)
        return copy.requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(map(leaves, value))
    return {key: leaves(item) for key, item in value.items()} if isinstance(value, dict) else value


def same_layer(name: str, *inputs: torch.Tensor, given: tuple[Any, ...] = (), **settings: Any) -> Any:
    """nn.<name>(*given, **settings) in both libraries, with one state: results, all gradients, repr. Returns ours."""
    theirs = getattr(torch.nn, name)(*given, **settings).double()
    layer = getattr(mn.nn, name)(*given, **settings).double()
    layer.load_state_dict(theirs.state_dict())
    assert repr(layer) == repr(theirs)
    arguments = leaves(list(inputs))
    mine = ours(arguments)
    sides = (mine, list(layer.parameters())), (arguments, list(theirs.parameters()))
    compare(layer(*mine), theirs(*arguments), sides, f"nn.{name}")
    return layer


def same_function(name: str, *arguments: Any, **settings: Any) -> None:
    """F.<name>(*arguments, **settings) in both libraries: results and all gradients."""
    given = leaves(list(arguments)), leaves(settings)
    mine = ours(given[0]), ours(given[1])
    result = getattr(mn.functional, name)(*mine[0], **mine[1])
    compare(result, getattr(torch.nn.functional, name)(*given[0], **given[1]), (mine, given), f"F.{name}")


def numbers(*shape: int, seed: int = 0, grad: bool = True) -> torch.Tensor:
    """Normal numbers in float64, a leaf."""
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape), requires_grad=grad)
