"""Lab 3 varies eps, an argument of three_terms, the axes of the tests' data, and the planted bugs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.labs.varied.choices import Variants, kinds, numbers
from minorm.labs.varied.default_arguments import given

FEWER = "the variance divides by m - 1"
OUTSIDE = "eps outside the root"
SQUARED = "eps is squared"
IGNORED = "the given eps is not used"
NO_MEAN = "dx without mean(g)"
NO_XHAT = "dx without xhat * mean(g * xhat)"
NO_SCALE = "dx without s"
RSTD_TWICE = "dx with rstd squared"
BATCH_ALONE = "statistics over the batch alone"
HALF = "sums in float16"
RAW_DS = "ds from x instead of xhat"
MEAN_DB = "db is the mean of dy"
EARLY_BIAS = "b is added before the scale"

V = Variants(
    "lab03_backward",
    eps=numbers("eps, if a call gives none", ("1e-5", "3e-4", "1e-4", "1e-3"), "eps={}"),
    third=kinds(
        "the third argument of three_terms, by which dx is scaled",
        {
            "rstd": (
                "def three_terms(g, xhat, rstd, axes):",
                "dx from xhat and rstd, which",
                "return rstd * (g - mean_g - xhat * mean_gx)",
            ),
            "std": (
                "def three_terms(g, xhat, std, axes):",
                "dx from xhat and std = 1 / rstd, which",
                "return (g - mean_g - xhat * mean_gx) / std",
            ),
            "var + eps": (
                "def three_terms(g, xhat, v, axes):",
                "dx from xhat and v = var + eps, which",
                "return (g - mean_g - xhat * mean_gx) / np.sqrt(v)",
            ),
        },
    ),
    layout=kinds(
        "the order of the axes of x and dy in task 3.5",
        {
            "NC...": (
                "x and dy (N, C) or (N, C, L), s",
                "axes = (0, *range(2, len(shape)))",
                "s, b = rng.standard_normal((2, shape[1]))",
                "along = (-1, *[1] * (len(shape) - 2))",
                "s, b = rng.standard_normal((2, 2))",
            ),
            "N...C": (
                "x and dy (N, C) or (N, L, C), s",
                "axes = tuple(range(len(shape) - 1))",
                "s, b = rng.standard_normal((2, shape[-1]))",
                "along = (-1,)",
                "s, b = rng.standard_normal((2, 4))",
            ),
            "CN...": (
                "x and dy (C, N) or (C, N, L), s",
                "axes = tuple(range(1, len(shape)))",
                "s, b = rng.standard_normal((2, shape[0]))",
                "along = (-1, *[1] * (len(shape) - 1))",
                "s, b = rng.standard_normal((2, 3))",
            ),
        },
    ),
    bugs=kinds(
        "",
        {
            (FEWER, OUTSIDE, NO_MEAN, NO_XHAT, BATCH_ALONE, HALF, RAW_DS): (
                (
                    "the variance divided by m - 1, eps outside the root, a term of dx missing, statistics over the "
                    "wrong axes, sums in float16."
                ),
            ),
            (FEWER, SQUARED, NO_MEAN, NO_SCALE, BATCH_ALONE, HALF, MEAN_DB): (
                (
                    "the variance divided by m - 1, eps squared, a term of dx or s missing, statistics over the wrong "
                    "axes, a mean for a sum, sums in float16."
                ),
            ),
            (OUTSIDE, IGNORED, NO_XHAT, RSTD_TWICE, BATCH_ALONE, RAW_DS, EARLY_BIAS): (
                (
                    "eps outside the root, or not used, a term of dx missing, rstd squared, b added too early, "
                    "statistics over the wrong axes."
                ),
            ),
            (SQUARED, IGNORED, NO_MEAN, NO_SCALE, RSTD_TWICE, MEAN_DB, EARLY_BIAS): (
                (
                    "eps squared, or not used, a term of dx or s missing, rstd squared, a mean for a sum, b added too "
                    "early."
                ),
            ),
        },
    ),
)


def third(rstd: Any) -> Any:
    """Return the third argument of three_terms in this variant, computed from rstd."""
    return {"rstd": rstd, "std": 1 / rstd, "var + eps": rstd**-2.0}[V.third]


def translated(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt `function`, which is written for the plain lab, to the variant. The result converts arguments."""

    def called(*args: Any, **options: Any) -> Any:
        if name == "three_terms":
            g, xhat, scale, axes = args
            rstd = {"rstd": scale, "std": 1 / scale, "var + eps": 1 / np.sqrt(scale)}[V.third]
            return function(g, xhat, rstd, axes)
        bound = given(function, args, options, **({"eps": V.eps} if name == "graph" else {}))
        return function(*bound.args, **bound.kwargs)

    return called
