"""Functions whose first argument may be a number, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")
SMOOTH = ["pow", "add", "sub", "mul", "div", "true_divide"]
NAMES = [*SMOOTH, "floor_divide", "remainder", "bitwise_and", "bitwise_or", "bitwise_xor"]
NUMBERS = {"int": 2, "negative": -3, "float": 2.5}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32"])
@pytest.mark.parametrize("name", NAMES)
def test_values_types_and_gradients(name: str, dtype: str, number: str) -> None:
    value, values = NUMBERS[number], [1, 2, 3]
    whole = "int" in dtype
    ours = mn.tensor(values, dtype=getattr(mn, dtype), requires_grad=not whole)
    theirs = torch.tensor(values, dtype=getattr(torch, dtype), requires_grad=not whole)
    try:
        expected = getattr(torch, name)(value, theirs)
    except (RuntimeError, NotImplementedError, TypeError):
        with pytest.raises(TypeError):
            getattr(mn, name)(value, ours)
        return
    found = getattr(mn, name)(value, ours)
    assert str(found.dtype) == str(expected.dtype).removeprefix("torch.")
    rtol = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6}.get(dtype, 1e-12)
    np.testing.assert_allclose(found.detach().double().numpy(), expected.detach().double().numpy(), rtol=rtol)
    if name in SMOOTH and found.requires_grad and not (name == "pow" and value < 0):
        found.sum().backward()
        expected.sum().backward()
        wanted = np.zeros(3) if theirs.grad is None else theirs.grad.double().numpy()
        grad = np.zeros(3) if ours.grad is None else ours.grad.double().numpy()
        np.testing.assert_allclose(grad, wanted, rtol=rtol)


def test_options_stay() -> None:
    x = mn.tensor([4.0, 3.0])
    assert mn.sub(10, x, alpha=2).tolist() == torch.sub(10, torch.tensor([4.0, 3.0]), alpha=2).tolist() == [2, 4]
    assert mn.div(-7, x, rounding_mode="trunc").tolist() == [-1, -2]
    assert mn.pow(2, exponent=x).tolist() == mn.pow(self=2, exponent=x).tolist() == [16, 8]


@pytest.mark.parametrize("name", ["exp", "lerp", "eq"])
def test_of_no_other_function(name: str) -> None:
    arguments: tuple[Any, ...] = {"exp": (), "lerp": (mn.ones(1), 0.5)}.get(name, (mn.ones(1),))
    with pytest.raises(TypeError, match=f"{name}: .* is int; expected a Tensor"):
        getattr(mn, name)(2, *arguments)


def test_without_a_tensor() -> None:
    for arguments in ((2, 3), (2,), ("a", mn.ones(1)), ([1.0], mn.ones(1))):
        with pytest.raises(TypeError, match=r"pow: x is .*; expected a Tensor"):
            mn.pow(*arguments)
