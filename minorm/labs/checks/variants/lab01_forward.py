"""Lab 1 varies eps, where eps is added, and the order of the axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.labs.checks.variants import layouts
from minorm.labs.varied.choices import Variants, kinds, numbers
from minorm.labs.varied.default_arguments import given

V = Variants(
    "lab01_forward",
    eps=numbers("eps, if a call gives none", ("1e-5", "3e-4", "1e-4", "1e-3"), "eps={}"),
    layout=kinds(
        "the order of the axes of x in task 1.4",
        {
            "NC...": (
                "x has the shape (N, C, *positions) with",
                "splits axis 1",
                "return affine(normalize(x, (0, *range(2, x.ndim)), eps), s, b, 1)",
                "return affine(normalize(x, tuple(range(2, x.ndim)), eps), s, b, 1)",
                (
                    "n, c = x.shape[:2]\n    split = x.reshape(n, num_groups, c // num_groups, *x.shape[2:])\n"
                    "    xhat = normalize(split, tuple(range(2, split.ndim)), eps)\n"
                    "    return affine(xhat.reshape(x.shape), s, b, 1)"
                ),
            ),
            "N...C": (
                "x has the shape (N, *positions, C) with",
                "splits the last axis",
                "return affine(normalize(x, tuple(range(x.ndim - 1)), eps), s, b, x.ndim - 1)",
                "return affine(normalize(x, tuple(range(1, x.ndim - 1)), eps), s, b, x.ndim - 1)",
                (
                    "*before, c = x.shape\n    split = x.reshape(*before, num_groups, c // num_groups)\n"
                    "    xhat = normalize(split, (*range(1, x.ndim - 1), x.ndim), eps)\n"
                    "    return affine(xhat.reshape(x.shape), s, b, x.ndim - 1)"
                ),
            ),
            "CN...": (
                "x has the shape (C, N, *positions) with",
                "splits axis 0",
                "return affine(normalize(x, tuple(range(1, x.ndim)), eps), s, b, 0)",
                "return affine(normalize(x, tuple(range(2, x.ndim)), eps), s, b, 0)",
                (
                    "c = len(x)\n    split = x.reshape(num_groups, c // num_groups, *x.shape[1:])\n"
                    "    xhat = normalize(split, (1, *range(3, split.ndim)), eps)\n"
                    "    return affine(xhat.reshape(x.shape), s, b, 0)"
                ),
            ),
        },
    ),
    place=kinds(
        "the place of eps in rstd",
        {
            "inside": (
                "sqrt(var + eps)",
                "eps is *inside* the root. It keeps",
                "x / sqrt(mean square + eps)",
                "return (x - mean) / np.sqrt(var + eps)",
                "divide by the root of var + eps",
            ),
            "outside": (
                "(sqrt(var) + eps)",
                "eps is *outside* the root. It keeps",
                "x / (sqrt(mean square) + eps)",
                "return (x - mean) / (np.sqrt(var) + eps)",
                "divide by the root of var, plus eps",
            ),
            "least": (
                "sqrt(max(var, eps))",
                "eps is the *smallest* number under the root. It keeps",
                "x / sqrt(max(mean square, eps))",
                "return (x - mean) / np.sqrt(np.maximum(var, eps))",
                "divide by the root of var, or of eps where that is more",
            ),
        },
    ),
)
LAID = ("batch_norm", "instance_norm", "group_norm")


def rstd(var: Any, eps: float) -> Any:
    """Return 1 / deviation.

    In some variants, eps is added to the variance; in others, it is added to the deviation or is the smallest variance.
    """
    if V.place == "least":
        return np.maximum(var, eps) ** -0.5
    return 1 / (np.sqrt(var) + eps) if V.place == "outside" else (var + eps) ** -0.5


def laid(x: Any) -> Any:
    """Move the axes of x from the order (N, C, *positions) to the variant's order."""
    return layouts.laid(x, V.layout)


def translated(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt `function`, which is written for the plain lab, to the variant.

    The result converts arguments and answers.
    """

    def called(*args: Any, **options: Any) -> Any:
        bound = given(function, args, options, eps=V.eps)
        if name not in LAID or V.layout == "NC...":
            return function(*bound.args, **bound.kwargs)
        bound.arguments["x"] = layouts.plain(bound.arguments["x"], V.layout)
        answer = function(*bound.args, **bound.kwargs)
        return laid(answer) if np.ndim(answer) == bound.arguments["x"].ndim else answer

    return called
