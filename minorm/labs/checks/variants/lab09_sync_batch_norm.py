"""Lab 9 varies the third number that ranks send, the scale of a gradient, and an odd level of a tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.varied.choices import Variants, kinds

V = Variants(
    "lab09_sync_batch_norm",
    second=kinds(
        "the third number of a part, beside m and mean, in tasks 9.1 and 9.2",
        {
            "var": (
                "and the variance var_r (which divides by m_r).",
                "var  = sum(m_r * (var_r + (mean_r - mean)^2)) / m",
                "Then its mean and var have no meaning",
                "def merge(m, mean, var):",
                "m, mean and var of all parts together: a number and two arrays of shape (C,).",
                "m: one number for each part, (R,). mean and var: (R, C).",
                "mean, var = mean[there], var[there]",
                "return m.sum(), middle, (weight * (var + (mean - middle) ** 2)).sum(0)",
                "merge(m, mean, var)[2]",
                "and two vectors mean and var with C numbers each.",
                "m, mean and var over all ranks, with one message.",
                "def all_moments(rank, m, mean, var):",
                "m: a number. mean and var: (C,).",
                "np.full(mean.shape, m, np.float64), mean, var]))",
                "_, mean, var = all_moments(rank, nest.columns, k + d, var)",
            ),
            "M": (
                "and the variance var_r (which divides by m_r). It sends M_r = m_r * var_r.",
                "M    = sum(M_r + m_r * (mean_r - mean)^2)",
                "Then its mean and M have no meaning",
                "def merge(m, mean, M):",
                "m, mean and M of all parts together: a number and two arrays of shape (C,).",
                "m: one number for each part, (R,). mean and M: (R, C).",
                "mean, M = mean[there], M[there]",
                "return m.sum(), middle, (M + weight * m.sum() * (mean - middle) ** 2).sum(0)",
                "merge(m, mean, m[:, None] * var)[2] / m.sum()",
                "and two vectors mean and M with C numbers each.",
                "m, mean and M over all ranks, with one message.",
                "def all_moments(rank, m, mean, M):",
                "m: a number. mean and M: (C,).",
                "np.full(mean.shape, m, np.float64), mean, M]))",
                "m, mean, M = all_moments(rank, nest.columns, k + d, nest.columns * var)\n        var = M / m",
            ),
            "std": (
                "and the variance var_r (which divides by m_r). It sends the root, std_r.",
                "std  = sqrt(sum(m_r * (std_r^2 + (mean_r - mean)^2)) / m)",
                "Then its mean and std have no meaning",
                "def merge(m, mean, std):",
                "m, mean and std of all parts together: a number and two arrays of shape (C,).",
                "m: one number for each part, (R,). mean and std: (R, C).",
                "mean, std = mean[there], std[there]",
                "return m.sum(), middle, np.sqrt((weight * (std**2 + (mean - middle) ** 2)).sum(0))",
                "merge(m, mean, np.sqrt(var))[2] ** 2",
                "and two vectors mean and std with C numbers each.",
                "m, mean and std over all ranks, with one message.",
                "def all_moments(rank, m, mean, std):",
                "m: a number. mean and std: (C,).",
                "np.full(mean.shape, m, np.float64), mean, std]))",
                "_, mean, std = all_moments(rank, nest.columns, k + d, np.sqrt(var))\n        var = std**2",
            ),
        },
    ),
    scale=kinds(
        "the last argument of input_gradient",
        {
            "rstd": (
                "def input_gradient(rank, g, xhat, rstd):",
                "of all ranks. rstd: (C,).",
                "np.full(rstd.shape, len(g), np.float64)",
                "return rstd * (g - sum_g / m - xhat * sum_gx / m)",
            ),
            "std": (
                "def input_gradient(rank, g, xhat, std):",
                "of all ranks. std = 1 / rstd: (C,).",
                "np.full(std.shape, len(g), np.float64)",
                "return (g - sum_g / m - xhat * sum_gx / m) / std",
            ),
            "var + eps": (
                "def input_gradient(rank, g, xhat, v):",
                "of all ranks. v = var + eps: (C,).",
                "np.full(v.shape, len(g), np.float64)",
                "return (g - sum_g / m - xhat * sum_gx / m) / np.sqrt(v)",
            ),
            "rstd^2": (
                "def input_gradient(rank, g, xhat, p):",
                "of all ranks. p = rstd^2: (C,).",
                "np.full(p.shape, len(g), np.float64)",
                "return (g - sum_g / m - xhat * sum_gx / m) * np.sqrt(p)",
            ),
        },
    ),
    odd=kinds(
        "the vector without a neighbour, in a level of the tree with an odd number",
        {
            "the last alone": (
                "If a level has an odd number of vectors, the last one moves up unchanged.",
                (
                    "pairs = [a + b for a, b in zip(level[::2], level[1::2], strict=False)]\n"
                    "        level = pairs + level[2 * len(pairs) :]"
                ),
            ),
            "the first alone": (
                "If a level has an odd number of vectors, the first one moves up unchanged.",
                (
                    "odd = len(level) % 2\n"
                    "        pairs = [a + b for a, b in zip(level[odd::2], level[odd + 1 :: 2], strict=True)]\n"
                    "        level = level[:odd] + pairs"
                ),
            ),
            "with the last pair": (
                "If a level has an odd number of vectors, the last one is added to the sum of the last pair.",
                (
                    "pairs = [a + b for a, b in zip(level[::2], level[1::2], strict=False)]\n"
                    "        if len(level) % 2:\n"
                    "            pairs[-1] = pairs[-1] + level[-1]\n"
                    "        level = pairs"
                ),
            ),
        },
    ),
)


def second(var: Any, m: Any) -> Any:
    """Convert the variance of m numbers to the number that ranks send in this variant.

    This is var, m * var or sqrt(var).
    """
    return {"var": var, "M": m * var, "std": np.sqrt(var)}[V.second]


def variance(told: Any, m: Any) -> Any:
    """Convert the number `told`, which ranks send in this variant, to the variance of m numbers.

    This is the inverse of `second`.
    """
    return {"var": told, "M": told / np.maximum(m, 1), "std": np.square(told)}[V.second]


def scale(rstd: Any) -> Any:
    """Convert rstd to the number that input_gradient takes in this variant."""
    return {"rstd": rstd, "std": 1 / rstd, "var + eps": rstd**-2.0, "rstd^2": rstd**2}[V.scale]


def level_above(level: list[Any]) -> list[Any]:
    """Add pairs of vectors in one level of a tree; return the next level.

    The variant decides how an odd vector is treated.
    """
    alone = len(level) % 2 if V.odd == "the first alone" else 0
    sums = level[:alone] + [sum(level[i + 1 : i + 2], level[i]) for i in range(alone, len(level), 2)]
    if V.odd == "with the last pair" and len(level) % 2:
        sums[-2:] = [sums[-2] + sums[-1]]
    return sums
