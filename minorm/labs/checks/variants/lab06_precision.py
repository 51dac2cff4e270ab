"""Lab 6 varies eps, the rounding of ties, the unit of an error, root_mean_square's result, and the planted bugs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from minorm.labs.varied.choices import Variants, kinds, numbers

SUMS = "sums in 16 bits"
SQUARES = "squares in 16 bits"
MEAN = "the mean in 16 bits"
EPS = "eps in 16 bits"
VARIANCE = "the variance in 16 bits"
RSTD = "rstd in 16 bits"
TWICE = "rounded twice"
THREE_TIMES = "rounded three times"
TOWARDS_0 = "rounded towards 0"
AWAY_FROM_0 = "rounded away from 0"
FEWER = "the variance divides by m - 1"
OUTSIDE = "eps outside the root"


def _root_texts(name: str, words: str) -> tuple[str, ...]:
    """Return the pieces of the lab's text for a variant whose root_mean_square returns a logarithm."""
    exponent = "exponent.astype(x.dtype)"
    unit = exponent if name == "log2" else f"{exponent} * x.dtype.type(np.{name}(2))"
    return (
        f"Return {words}, so that a row of zeros gives minus infinity; give e the type of x before you add it.",
        f"{name} of sqrt(mean(x^2)) over",
        (
            "root = np.sqrt((scaled * scaled).mean(axis=-1, keepdims=True))\n"
            '    with np.errstate(divide="ignore"):\n'
            f"        return np.{name}(root) + {unit}"
        ),
    )


V = Variants(
    "lab06_precision",
    eps=numbers(
        "eps, if a call gives none", ("1e-5", "3e-4", "1e-4", "1e-3"), "eps={}", "keepdims=True) + {}) * s64 + b64"
    ),
    ties=kinds(
        "the rounding of a number in the middle of two neighbours",
        {
            "even": (
                (
                    "goes to the neighbour whose last bit is 0: so add 0x7FFF, and one more where the lowest bit that "
                    "stays is 1."
                ),
                "Ties go to the even one, and NaN stays NaN.",
                "rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16",
            ),
            "away from 0": (
                "goes away from 0, as in some old formats (IEEE 754 has the even neighbour): so add 0x8000.",
                "Ties go away from 0, and NaN stays NaN.",
                "rounded = (bits + 0x8000) >> 16",
            ),
            "towards 0": (
                "goes towards 0, as in some old formats (IEEE 754 has the even neighbour): so add 0x7FFF.",
                "Ties go towards 0, and NaN stays NaN.",
                "rounded = (bits + 0x7FFF) >> 16",
            ),
        },
    ),
    unit=kinds(
        "the number whose last place is the unit of error_in_ulp",
        {
            "right": (
                "in units of the last place of the right values, which",
                "return np.abs(np.asarray(y).astype(np.float64) - right) / ulp(right, name)",
            ),
            "y": (
                "in units of the last place of y. The right values",
                "wide = np.asarray(y).astype(np.float64)\n    return np.abs(wide - right) / ulp(wide, name)",
            ),
            "larger": (
                "in units of the last place of the larger of the two. The right values",
                (
                    "wide = np.asarray(y).astype(np.float64)\n"
                    "    return np.abs(wide - right) / ulp(np.maximum(np.abs(wide), np.abs(right)), name)"
                ),
            ),
        },
    ),
    root=kinds(
        "the result of root_mean_square",
        {
            "root": (
                "A row of zeros gives 0.",
                "sqrt(mean(x^2)) over",
                "return np.ldexp(np.sqrt((scaled * scaled).mean(axis=-1, keepdims=True)), exponent)",
            ),
            "log2": _root_texts("log2", "the logarithm of the root to base 2"),
            "log": _root_texts("log", "the natural logarithm of the root"),
            "log10": _root_texts("log10", "the logarithm of the root to base 10"),
        },
    ),
    bugs=kinds(
        "",
        {
            (SUMS, SQUARES, MEAN, EPS, THREE_TIMES, TOWARDS_0, FEWER, OUTSIDE): (
                (
                    "The bugs: sums, squares, the mean or eps in 16 bits; rounding three times; rounding towards 0; N "
                    "- 1; eps outside the root."
                ),
            ),
            (SUMS, VARIANCE, MEAN, RSTD, THREE_TIMES, AWAY_FROM_0, FEWER, OUTSIDE): (
                (
                    "The bugs: sums, the mean, the variance or rstd in 16 bits; rounding three times; rounding away "
                    "from 0; N - 1; eps outside the root."
                ),
            ),
            (SQUARES, RSTD, EPS, SUMS, TWICE, TOWARDS_0, VARIANCE, FEWER): (
                (
                    "The bugs: sums, squares, the variance, rstd or eps in 16 bits; rounding twice; rounding towards "
                    "0; N - 1."
                ),
            ),
            (SUMS, MEAN, EPS, TWICE, AWAY_FROM_0, OUTSIDE, VARIANCE, THREE_TIMES): (
                (
                    "The bugs: sums, the mean, the variance or eps in 16 bits; rounding twice or three times; rounding "
                    "away from 0; eps outside the root."
                ),
            ),
        },
    ),
)


def rounded_bits(x: Any) -> Any:
    """Round each float32 number to bfloat16, and return the bits. The variant decides how ties are rounded."""
    if V.ties == "even":
        with np.errstate(invalid="ignore", over="ignore"):
            return x.astype(ml_dtypes.bfloat16).view(np.uint16)
    half = 0x8000 if V.ties == "away from 0" else 0x7FFF
    return ((x.view(np.uint32).astype(np.uint64) + half) >> 16).astype(np.uint16)


def root(value: Any) -> Any:
    """Convert a root mean square to the result that the lab asks for in this variant: the root or its logarithm."""
    with np.errstate(divide="ignore"):
        return {"root": np.positive, "log2": np.log2, "log": np.log, "log10": np.log10}[V.root](value)


def unit(y: Any, right: Any) -> Any:
    """Return an array of numbers.

    In this variant, errors are counted in ulps of these numbers: `right`, `y` or the larger of the two.
    """
    return {"right": right, "y": y, "larger": np.maximum(np.abs(y), np.abs(right))}[V.unit]
