"""Lab 4 varies the axes of x, the first running variance, a default momentum, and the planted bugs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.labs.checks.variants import layouts
from minorm.labs.varied.choices import Variants, kinds, numbers
from minorm.labs.varied.default_arguments import given

FEWER = "the running variance divides by m - 1"
INVERTED = "momentum is the share of the new value"
OUTSIDE = "eps outside the root"
NOT_SUBTRACTED = "the mean is not subtracted"
BATCH_ALONE = "variance over the batch axis only"
HALF = "sums in float16"
BLENDED = "training normalizes with the new running statistics"
FROM_BATCH = "evaluation normalizes with the statistics of the batch"
WITH_EPS = "eps is in the running variance"
DEVIATIONS = "the running deviations are blended, not the variances"
STAYS = "the running variance stays as it is"
NO_EPS = "evaluation leaves eps out"


def _start_texts(first: str) -> tuple[str, ...]:
    """Return the pieces of the lab's text for a running variance that starts at this value."""
    plain = first == "1"
    layer = "momentum=0.9, unbiased_running_var=unbiased_var )"
    return (
        "the running variance at 1. With these values," if plain
        else f"the running variance at {first}. With 0 and 1, the usual values,",
        f"The initial values 0 and {first} lose",
        f"Start with mean 0 and variance {first}.",
        f"the initial {first}",
        f"the initial variance {first} is",
        "np.zeros(channels), np.ones(channels), []" if plain else f"np.zeros(channels), np.full(channels, {first}), []",
        f"initial = {'' if plain else f'{first} * '}(1 - torch_momentum) ** batches",
        layer if plain else f"{layer}\n    layer.running_var.array[...] = {first}",
    )  # fmt: skip


V = Variants(
    "lab04_running_statistics",
    layout=kinds(
        "the order of the axes of x",
        {
            "NC...": (
                "x has the shape (N, C) or (N, C, *positions). The",
                "axes = (0, *range(2, x.ndim))",
                "x.size // x.shape[1]",
                "channels = batches[0].shape[1]",
                "(200, 16, 1)",
                "trajectory(batches, convention)[-1]",
                "array of shape (N, C) or (N, C, L). The",
                "for shape in ((3, 2), (3, 2, 4)):",
                "axes = (0, *range(2, len(shape)))",
                "along = (-1, *[1] * (len(shape) - 2))",
                "standard_normal((3, 2, 4))",
                "(x - mean[:, None]) / np.sqrt(var + 1e-2)[:, None]",
            ),
            "N...C": (
                "x has the shape (N, C) or (N, *positions, C). The",
                "axes = tuple(range(x.ndim - 1))",
                "x.size // x.shape[-1]",
                "channels = batches[0].shape[-1]",
                "(200, 16, 1)",
                "trajectory(batches, convention)[-1]",
                "array of shape (N, C) or (N, L, C). The",
                "for shape in ((3, 2), (3, 4, 2)):",
                "axes = tuple(range(len(shape) - 1))",
                "along = (-1,)",
                "standard_normal((3, 4, 2))",
                "(x - mean) / np.sqrt(var + 1e-2)",
            ),
            "CN...": (
                "x has the shape (C, N) or (C, N, *positions). The",
                "axes = tuple(range(1, x.ndim))",
                "x.size // x.shape[0]",
                "channels = batches[0].shape[0]",
                "(200, 1, 16)",
                "trajectory([x.T for x in batches], convention)[-1]",
                "array of shape (C, N) or (C, N, L). The",
                "for shape in ((2, 3), (2, 3, 4)):",
                "axes = tuple(range(1, len(shape)))",
                "along = (-1, *[1] * (len(shape) - 1))",
                "standard_normal((2, 3, 4))",
                "(x - mean[:, None, None]) / np.sqrt(var + 1e-2)[:, None, None]",
            ),
        },
    ),
    first_var=kinds(
        "the running variance before any batch",
        {float(first): _start_texts(first) for first in ("1", "2.0", "0.5", "4.0")},
    ),
    momentum=numbers(
        "momentum, if a call gives none", ("0.9", "0.8", "0.95", "0.7"), "x, momentum={}", "var, momentum={}"
    ),
    bugs=kinds(
        "",
        {
            (FEWER, INVERTED, OUTSIDE, NOT_SUBTRACTED, BATCH_ALONE, HALF, BLENDED, FROM_BATCH): (),
            (FEWER, INVERTED, WITH_EPS, NOT_SUBTRACTED, BATCH_ALONE, HALF, BLENDED, NO_EPS): (),
            (STAYS, INVERTED, OUTSIDE, NOT_SUBTRACTED, BATCH_ALONE, DEVIATIONS, WITH_EPS, FROM_BATCH): (),
            (FEWER, STAYS, OUTSIDE, DEVIATIONS, NO_EPS, HALF, BLENDED, FROM_BATCH): (),
        },
    ),
)


def laid(x: Any) -> Any:
    """Move the axes of x from the order (N, C, *positions) to the variant's order."""
    return layouts.laid(x, V.layout)


def translated(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt `function`, which is written for the plain lab, to the variant. The result converts arguments."""

    def called(*args: Any, **options: Any) -> Any:
        defaults = {"momentum": V.momentum} if name == "update" else {}
        bound = given(function, args, options, **defaults)
        if name in ("batch_statistics", "update"):
            bound.arguments["x"] = layouts.plain(bound.arguments["x"], V.layout)
        if name == "trajectory":
            bound.arguments["batches"] = [layouts.plain(x, V.layout) for x in bound.arguments["batches"]]
        return function(*bound.args, **bound.kwargs)

    return called
