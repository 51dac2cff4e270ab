"""interpolate resizes a signal, an image or a volume, axis by axis. The upsample functions call `interpolate` and have
PyTorch's older names.

"nearest" copies an element; linear and cubic modes multiply by a matrix (ops/resizing.py); "area" is adaptive average
pooling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.devices import constant_of, dtypes
from minorm.functional.argument_texts import RESIZING
from minorm.functional.arguments import floats
from minorm.functional.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d
from minorm.functional.volumes import adaptive_avg_pool3d
from minorm.graph import trace
from minorm.ops.operands import check_room
from minorm.ops.resizing import ROUNDINGS, coordinates, matrix
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

RANKS = {"linear": (3,), "bilinear": (4,), "trilinear": (5,), "bicubic": (4,)}  # numbers of input axes, by mode
EVERY_RANK = ("nearest", "nearest-exact", "area")
AREA = {3: adaptive_avg_pool1d, 4: adaptive_avg_pool2d, 5: adaptive_avg_pool3d}


@documented(RESIZING)
@trace.operation
def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """y[i] = input at the position (i + 1/2) / scale - 1/2 along each axis, computed from the elements around it.

    This resizes a signal, an image or a volume. y is (N, C, *size), or (N, C, *floor(length * scale_factor)). With
    align_corners=True the position is i * (n - 1) / (m - 1), where the axis has n elements in input and m in y. For
    "nearest" the position is floor(i / scale). Raises ValueError if mode does not fit the number of axes, or if size
    and scale_factor are both given or both missing.

    Example:
        >>> x = mn.tensor([[[0.0, 4.0]]])
        >>> F.interpolate(x, scale_factor=2)
        tensor([[[0., 0., 4., 4.]]])
        >>> F.interpolate(x, size=4, mode="linear", align_corners=True)
        tensor([[[0.    , 1.3333, 2.6667, 4.    ]]])

    Its ONNX operator is Resize (opset 19). The bicubic mode is from Keys 1981.
    """
    floats("interpolate", input=input)
    _check_mode(input, mode, align_corners, antialias)
    lengths = input.shape[2:]
    sizes, scales = _sizes(lengths, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        return AREA[input.ndim](input, tuple(sizes))
    for axis, (n, m, scale) in enumerate(zip(lengths, sizes, scales, strict=True), start=2):
        if (n, scale) == (m, 1):
            continue
        if mode.startswith("nearest"):
            input = input[(*(slice(None),) * axis, constant_of(nearest(n, m, scale, mode), input.array))]
        else:
            rows = weights(n, m, scale, mode, bool(align_corners), antialias)
            columns = np.ascontiguousarray(rows.T.astype(dtypes.compute_type(input.dtype)))
            across = Tensor(constant_of(columns, input.array))
            product = input.to(across.dtype).transpose(axis, -1) @ across
            input = product.transpose(axis, -1).to(input.dtype)
    return input


def nearest(n: int, m: int, scale: float, mode: str) -> Any:
    """Return, for each of the m elements of the result, the index of the input element that is copied. The computation
    is in float32, as in PyTorch.
    """
    step = np.float32(1 / scale)
    at = np.arange(m, dtype=np.float32)
    at = (at + np.float32(0.5)) * step if mode == "nearest-exact" else at * step
    return ROUNDINGS["floor"](at).astype(np.intp).clip(0, n - 1)


def weights(n: int, m: int, scale: float, mode: str, align_corners: bool, antialias: bool) -> Any:
    """Return the matrix (m, n) that resizes an axis from n to m elements."""
    kernel = "cubic" if mode == "bicubic" else "linear"
    scale = m / n if align_corners else scale
    at = coordinates("align_corners" if align_corners else "half_pixel", n, m, scale, 0.0, 1.0)
    return matrix(kernel, at, n, scale, -0.5 if antialias else -0.75, antialias, antialias)


def _check_mode(input: Tensor, mode: str, align_corners: bool | None, antialias: bool) -> None:
    if mode not in RANKS and mode not in EVERY_RANK:
        known = ", ".join((*EVERY_RANK, *RANKS))
        raise ValueError(f"interpolate: mode is {mode!r}; expected one of {known}")
    ranks = RANKS.get(mode, (3, 4, 5))
    if input.ndim not in ranks or 0 in input.shape[2:]:
        raise ValueError(
            f"interpolate: input has shape {input.shape}; expected {' or '.join(map(str, ranks))} axes (N, C, ...) for "
            f"mode {mode!r}, with at least one element along each axis after C"
        )
    if align_corners is not None and mode in EVERY_RANK:
        raise ValueError(
            f"interpolate: align_corners is {align_corners}, but mode {mode!r} does not take it; expected None"
        )
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(f"interpolate: antialias is True and mode is {mode!r}; expected mode 'bilinear' or 'bicubic'")


def _sizes(lengths: tuple[int, ...], size: Any, scale_factor: Any, recompute: Any) -> tuple[list[int], list[float]]:
    """Return the lengths of the result, and the factor by which each axis grows."""
    if (size is None) == (scale_factor is None):
        raise ValueError(
            f"interpolate: size={size}, scale_factor={scale_factor}; expected exactly one of size and scale_factor"
        )
    name, given = ("size", size) if scale_factor is None else ("scale_factor", scale_factor)
    numbers = list(given) if isinstance(given, (tuple, list)) else [given] * len(lengths)
    if len(numbers) != len(lengths) or not all(number > 0 for number in numbers):
        raise ValueError(f"interpolate: {name} is {given}; expected {len(lengths)} numbers above 0, or one for all")
    if scale_factor is None:
        if recompute:
            raise ValueError(
                "interpolate: recompute_scale_factor is True and size is given; expected scale_factor instead of size"
            )
        sizes = [int(number) for number in numbers]
    else:
        sizes = [math.floor(n * number) for n, number in zip(lengths, numbers, strict=True)]
        if 0 in sizes:
            raise ValueError(
                f"interpolate: scale_factor is {given}, which leaves no element of an axis of lengths {lengths}; "
                "expected a larger factor"
            )
    check_room("interpolate", sizes)
    if scale_factor is None or recompute:
        return sizes, [m / n for n, m in zip(lengths, sizes, strict=True)]
    return sizes, [float(number) for number in numbers]


@documented(RESIZING)
@trace.operation
def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` by its older name.

    Example:
        >>> F.upsample(mn.tensor([[[0.0, 4.0]]]), scale_factor=2)
        tensor([[[0., 0., 4., 4.]]])
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


@documented(RESIZING)
@trace.operation
def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate(mode="nearest")`: y[i] = input[floor(i / scale)] along each axis.

    Example:
        >>> F.upsample_nearest(mn.tensor([[[0.0, 4.0]]]), scale_factor=2)
        tensor([[[0., 0., 4., 4.]]])
    """
    return interpolate(input, size, scale_factor)


@documented(RESIZING, input="(N, C, H, W), floats")
@trace.operation
def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate(mode="bilinear", align_corners=True)`: weighted means of four pixels, with unchanged corners.

    Example:
        >>> F.upsample_bilinear(mn.tensor([[[[0.0, 4.0]]]]), size=(1, 3))
        tensor([[[[0., 2., 4.]]]])
    """
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)
