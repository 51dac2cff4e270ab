"""Writes elements to computed positions. Not public yet."""

from __future__ import annotations

from minorm.graph import trace
from minorm.ops import scatter as ops
from minorm.tensor.methods.index_places import inside
from minorm.tensor.methods.scatter_arguments import put_by
from minorm.tensor.methods.scattering import put_along
from minorm.tensor.tensor import Tensor


@trace.operation
def scatter(x: Tensor, dim: int, index: Tensor, src: Tensor, reduction: str = "none") -> Tensor:
    """Return a copy y of x with y[index[i, j], j] = src[i, j] (here for dim=0 and two axes). With reduction "add",
    "mul", "min" or "max", the element of src is combined with the element of x.

    index holds integers; negative integers count from the end. index and src have the same shape. Along all axes but
    `dim` this shape is at most as long as x.
    """
    return put_along("scatter", x, dim, index, src, reduction)


@trace.operation
def scatter_nd(x: Tensor, index: Tensor, src: Tensor, reduction: str = "none") -> Tensor:
    """Return a copy y of x with y[index[i]] = src[i], where index[i] holds the indices along the first k axes. See
    `scatter` for `reduction`.

    index (..., k) holds integers; negative integers count from the end. src has the shape index.shape[:-1] +
    x.shape[k:].
    """
    kind = put_by("scatter_nd", x, index, src, reduction)
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
        inside("scatter_nd", index.array[..., i], x.shape[i], x)
    return ops.ScatterND.apply(x, index, src, reduction=kind)
