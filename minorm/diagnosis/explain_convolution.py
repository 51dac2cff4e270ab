"""Explain how the three sums of a convolution are computed and how the work is divided, without running anything."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minorm import functional as family
from minorm.devices import dtypes
from minorm.functional.convolution import checked_options
from minorm.kernels import cpu
from minorm.tensor.tensor import Tensor

FUNCTIONS = {family.conv1d: 1, family.conv2d: 2, family.conv3d: 3}


@dataclass(frozen=True, repr=False)
class ConvolutionExplanation:
    """How a convolution will run on the CPU: print the explanation, or read its attributes.

    y_shape       the shape of the result
    strategies    a dict from the name of a sum ("forward", "grad_input", "grad_weight") to the strategy that computes
                  it: winograd, lines, rows or images; tiles if x is bfloat16; reference if there are no kernels
    multiply_adds the number of multiply-adds that each of the three sums has by definition
    """

    title: str
    y_shape: tuple[int, ...]
    strategies: dict[str, str]
    cuts: dict[str, str]
    multiply_adds: int

    def __str__(self) -> str:
        y = "x".join(map(str, self.y_shape))
        lines = [self.title, f"  {'y':12}{y}, {self.multiply_adds / 1e6:,.3g} million multiply-adds by the definition"]
        lines += [f"  {name:12}{way}: {self.cuts[name]}" for name, way in self.strategies.items()]
        return "\n".join(lines)

    __repr__ = __str__


def explained(
    function: Callable[..., Tensor], shape: tuple[int, ...], args: Any, dtype: Any, options: dict[str, Any]
) -> ConvolutionExplanation:
    """Explain function(x, *args, **options) for x of this shape.

    `args` and `options` have shapes in place of weight and bias.
    """
    x = Tensor(np.zeros(shape, dtype))
    given = inspect.signature(function).bind(x, *args, **options)
    given.apply_defaults()
    for name in ("weight", "bias"):
        if given.arguments[name] is not None:
            given.arguments[name] = Tensor(np.zeros(given.arguments[name], dtype))
    how = checked_options(function.__name__, FUNCTIONS[function], *given.arguments.values())
    w_shape = given.arguments["weight"].shape
    itemsize = 4 if x.dtype == dtypes.float16 else x.array.itemsize  # float16 is widened before it is computed
    y_shape, found = cpu.conv.ways(shape, w_shape, **how, itemsize=itemsize)
    described = {name: _described(way) for name, way in found.items()}
    return ConvolutionExplanation(
        title=f"{function.__name__} of {_by(shape)} {x.dtype}, weight {_by(w_shape)}",
        y_shape=y_shape,
        strategies={name: way for name, (way, _) in described.items()},
        cuts={name: cut for name, (_, cut) in described.items()},
        multiply_adds=math.prod(y_shape) * math.prod(w_shape[1:]),
    )


def _described(way: Any) -> tuple[str, str]:
    """Return the name of the strategy `way`, and a text that says how the work is divided."""
    if way is None:
        return "reference", "there are no kernels, NumPy multiplies a place of the filter at a time"
    if isinstance(way, dict):
        tiles = way["images_at_once"] * way["rows_at_once"] * way["columns"]
        return "winograd", f"{way['rows']}x{way['columns']} tiles an image, {tiles} at a time, {way['pieces']} times"
    if hasattr(way, "together"):
        at_once = f"{way.strips} strips an image" if way.strips > 1 else f"images at a time: {way.fit}"
        return "tiles", f"the channels of a place side by side, added up in the order of matrix tiles, {at_once}"
    if way.by_image:
        return "images", f"vectors of images, {way.segments} of them"
    kind = "rows" if way.direct_out else "lines"
    source = "read where it is" if way.direct_in else "packed with its padding"
    pieces = f"{way.strips} strips an image" if way.strips > 1 else "an image"
    return kind, f"vectors of neighbouring pixels, the source {source}, {pieces} at a time"


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
