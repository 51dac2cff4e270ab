"""Choose the type in which operators with inputs of several types or with a `stash_type` compute.

minorm computes in the widest type of the inputs, at least float32, and rounds once at the end. ONNX's specification
rounds three times: to the stash type, to T, and after scale and bias. minorm does not imitate a stash type of lower
precision.
"""

from __future__ import annotations

import math
from typing import Any

from minorm.devices import dtypes
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.tensors import element_type
from minorm.tensor.tensor import Tensor


def widest(*tensors: Tensor | None, stash: Any = dtypes.float16) -> Any:
    """Return the widest type: of `stash`, and of the types in which minorm computes these tensors."""
    types = [dtypes.compute_type(t.dtype) for t in tensors if t is not None]
    return max([*types, stash], key=lambda dtype: dtype.itemsize)


def same_type(*tensors: Any) -> tuple[Any, ...]:
    """Return the tensors unchanged if all have the same type; else convert all tensors to one type.

    This type is the widest of the types in which minorm computes with the tensors.
    """
    if len({t.dtype for t in tensors if t is not None}) == 1:
        return tensors
    return in_type(widest(*tensors), *tensors)


def in_type(dtype: Any, *tensors: Any) -> tuple[Any, ...]:
    """Convert all tensors to this type; None stays None."""
    return tuple(None if t is None else t.to(dtype) for t in tensors)


def stash_type(node: Node) -> Any:
    """Return the type that `stash_type` names; raise ValueError if it is not a float type."""
    dtype = element_type(node["stash_type"], "stash_type")
    if not dtypes.is_float(dtype):
        raise ValueError(f"stash_type is {dtype}; expected a float type")
    return dtype


def affine(y: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """y * scale + bias; scale and bias must broadcast to the shape of y."""
    for name, p in (("scale", scale), ("bias", bias)):
        if p is not None and not stretches(p.shape, y.shape):
            raise ValueError(f"{name} has shape {p.shape}; expected a shape that broadcasts to {y.shape}")
    return y * scale if bias is None else y * scale + bias


def stretches(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return whether `shape` broadcasts to `target`, and not to a larger shape."""
    return len(shape) <= len(target) and all(
        n in (1, m) for n, m in zip(reversed(shape), reversed(target), strict=False)
    )


def single(x: Tensor, scale: Tensor, bias: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Normalize over axes that together have only one element, so that x - mean is 0 and y is the bias."""
    assert math.prod(x.shape[axis] for axis in axes) == 1
    if scale.ndim == 1:
        scale, bias = (p.reshape(-1, *(1,) * (x.ndim - 2)) for p in (scale, bias))
    mean = x.mean(axes, keepdim=True) if axes else x  # for `mean`, () means all axes
    return affine(x - mean, scale, bias)
