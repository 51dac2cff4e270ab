"""Elements put at computed positions. Not public yet."""

from __future__ import annotations

from typing import Any

from minorm import devices, dtypes, trace
from minorm.ops import scatter as ops
from minorm.ops.operands import axis_of
from minorm.tensor import Tensor

REDUCTIONS = ("none", "add", "mul", "min", "max")


@trace.operation
def scatter(x: Tensor, dim: int, index: Tensor, src: Tensor, reduction: str = "none") -> Tensor:
    """y = x, but y[index[i, j], j] = src[i, j] for dim 0, and so on; or +=, *=, min, max with what is there.

    index, of integers that may count from the end, and src are of one shape, in no axis but `dim` longer than x.
    """
    _check("scatter", x, index, src, reduction)
    axis = axis_of("scatter", dim, x)
    if index.shape != src.shape:
        raise ValueError(f"scatter: index has shape {index.shape}, src {src.shape}; expected equal shapes")
    if index.ndim != x.ndim or any(
        m > n for i, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)) if i != axis
    ):
        raise ValueError(
            f"scatter: index has shape {index.shape}, x {x.shape}; expected as many axes, and no longer ones but along "
            f"{axis}"
        )
    _inside("scatter", index.array, x.shape[axis], x)
    return ops.ScatterElements.apply(x, index, src, reduction=reduction, axis=axis)


@trace.operation
def scatter_nd(x: Tensor, index: Tensor, src: Tensor, reduction: str = "none") -> Tensor:
    """y = x, but y[index[i]] = src[i], where index[i] are the first coordinates; or +=, *=, min, max.

    index (..., k), of integers that may count from the end; src has the shape index.shape[:-1] + x.shape[k:].
    """
    _check("scatter_nd", x, index, src, reduction)
    if index.ndim == 0 or not 1 <= index.shape[-1] <= x.ndim:
        raise ValueError(
            f"scatter_nd: index has shape {index.shape}; expected 1 to {x.ndim} coordinates in its last axis; x.shape "
            f"is {x.shape}"
        )
    count = index.shape[-1]
    if src.shape != (*index.shape[:-1], *x.shape[count:]):
        raise ValueError(
            f"scatter_nd: src has shape {src.shape}; expected {(*index.shape[:-1], *x.shape[count:])}, for index "
            f"{index.shape} and x {x.shape}"
        )
    for i in range(count):
        _inside("scatter_nd", index.array[..., i], x.shape[i], x)
    return ops.ScatterND.apply(x, index, src, reduction=reduction)


def _check(name: str, x: Tensor, index: Tensor, src: Tensor, reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"{name}: reduction is {reduction!r}; expected one of {', '.join(REDUCTIONS)}")
    if index.dtype.kind not in "iu":
        raise TypeError(f"{name}: index is {index.dtype}; expected integers")
    if x.dtype != src.dtype or (x.dtype == dtypes.bool and reduction != "none"):
        numbers = " of numbers" if reduction != "none" else ""
        raise TypeError(f"{name}: x is {x.dtype}, src is {src.dtype}; expected one type{numbers}")


def _inside(name: str, index: Any, n: int, x: Tensor) -> None:
    with devices.on_device_of(index):
        outside = (index < -n) | (index >= n)
        if outside.any():
            raise ValueError(
                f"{name}: index holds {int(index[outside][0])}; expected {-n} to {n - 1}; x has shape {x.shape}"
            )
