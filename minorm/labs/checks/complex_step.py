"""Computes gradients by complex steps, without a chain rule, for programs of operations and for normalization.

The imaginary part of f(x + ih) is f'(x) h. No difference of two close numbers is taken, so h can be tiny and the
gradient is right to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

TINY = 1e-30
PATHS = ("direct", "mean", "variance")
Program = list[tuple[Any, ...]]  # (operation, numbers of its inputs, settings); arrays have the first numbers

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "power": lambda a, p: a**p,
    "sum_over": lambda a, axes: a.sum(axis=axes, keepdims=True),
    "mean_over": lambda a, axes: a.mean(axis=axes, keepdims=True),
    "detach": lambda a: a.real,
}


def value_of(program: Program, arrays: Sequence[Any]) -> Any:
    """Run a program of operations on these arrays; return the result of its last operation."""
    values = list(arrays)
    for name, inputs, *settings in program:
        values.append(OPERATIONS[name](*[values[one] for one in inputs], *settings))
    return values[-1]


def slopes(f: Callable[..., Any], *arrays: Any) -> list[Any]:
    """Return the gradients of f(*arrays), which is one number, with respect to each array."""
    found = [np.zeros(array.shape) for array in arrays]
    for place, gradient in enumerate(found):
        for index in np.ndindex(gradient.shape):
            moved = [array.astype(complex) if i == place else array for i, array in enumerate(arrays)]
            moved[place][index] += 1j * TINY
            gradient[index] = f(*moved).imag / TINY
    return found


def gradients(program: Program, arrays: Sequence[Any], dy: Any) -> list[Any]:
    """Return the gradients of sum(dy * result of the program) with respect to each array."""
    return slopes(lambda *moved: (value_of(program, moved) * dy).sum(), *arrays)


def through(x: Any, g: Any, eps: float, axes: tuple[int, ...], paths: Sequence[str] = PATHS) -> Any:
    """Return the gradient of sum(g * xhat) with respect to x, through some paths only.

    `paths` names them: "direct", "mean" and "variance".
    """
    return slopes(lambda moved: (g * xhat_of(moved, eps, axes, paths)).sum(), x)[0]


def xhat_of(x: Any, eps: float, axes: tuple[int, ...], paths: Sequence[str] = PATHS) -> Any:
    """Compute xhat = (x - mean) * rstd for a complex x.

    Where x enters through a path that is not in `paths`, its imaginary part is dropped.
    """
    real = x.real
    mean = (x if "mean" in paths else real).mean(axis=axes, keepdims=True)
    moved = x if "variance" in paths else real
    c = moved - moved.mean(axis=axes, keepdims=True)
    return ((x if "direct" in paths else real) - mean) * ((c * c).mean(axis=axes, keepdims=True) + eps) ** -0.5
