"""Lab 10 varies two defaults of the old dialect, and the answer of batch_axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.varied.choices import Variants, kinds, numbers


def _momentum_texts(value: str) -> tuple[str, ...]:
    """Return the pieces of the lab's text for this default momentum, which a file keeps in 32 bits."""
    return (
        f"momentum {value}",
        f"{value} is {float(np.float32(value))!r}, and the default",
        f"float(np.float32({value}))",
    )


V = Variants(
    "lab10_onnx_archaeology",
    epsilon=numbers(
        "the default of epsilon in this year's dialect; ONNX itself has 1e-5",
        ("1e-5", "3e-4", "1e-3", "1e-4"),
        "epsilon {}",
        "float(np.float32({}))",
    ),
    momentum=kinds(
        "the default of momentum in this year's dialect; ONNX itself has 0.9",
        {float(value): _momentum_texts(value) for value in ("0.9", "0.8", "0.95", "0.7")},
    ),
    axes=kinds(
        "the answer of batch_axes about the axes of mean and var",
        {
            "reduced": (
                "The axes over which mean and var are taken: a tuple in rising order.",
                "return (0, *range(1 + len(scale_shape), len(x_shape)))",
                "axes = batch_axes(x.shape, s.shape)",
            ),
            "kept": (
                "The axes over which mean and var are *not* taken: a tuple in rising order.",
                "return tuple(range(1, min(1 + len(scale_shape), len(x_shape))))",
                "kept = batch_axes(x.shape, s.shape)\n    axes = tuple(i for i in range(x.ndim) if i not in kept)",
            ),
            "mask": (
                "The axes over which mean and var are taken: an integer whose bit i is set for axis i.",
                "return sum(1 << i for i in (0, *range(1 + len(scale_shape), len(x_shape))))",
                "mask = batch_axes(x.shape, s.shape)\n    axes = tuple(i for i in range(x.ndim) if mask >> i & 1)",
            ),
        },
    ),
)


def stored(value: float) -> float:
    """Return the value rounded to float32, because an ONNX file stores attributes in 32 bits."""
    return float(np.float32(value))


def axes_as_asked(reduced: tuple[int, ...], ndim: int) -> Any:
    """Convert the reduced axes to the answer that this variant's batch_axes returns."""
    if V.axes == "mask":
        return sum(1 << axis for axis in reduced)
    return reduced if V.axes == "reduced" else tuple(axis for axis in range(ndim) if axis not in reduced)
