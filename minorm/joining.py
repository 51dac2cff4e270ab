"""Functions of several Tensors, and the function form of what is usually a method: `minorm.exp(x)` is `x.exp()`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from minorm import dtypes
from minorm.mistakes import checked, is_foreign, not_a_tensor
from minorm.ops import elementwise, shape
from minorm.ops.operands import axis_of, operands
from minorm.tensor import Tensor, as_tensor


@checked
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along `dim`; their other axes must agree."""
    if not tensors:
        raise ValueError("cat: no tensors; expected at least one")
    _check_origin("cat", tensors)
    parts = operands("cat", *tensors, broadcast=False)
    axis = axis_of("cat", dim, parts[0])
    for i, part in enumerate(parts):
        if part.ndim != parts[0].ndim or part.shape[:axis] + part.shape[axis + 1 :] != (
            parts[0].shape[:axis] + parts[0].shape[axis + 1 :]
        ):
            raise ValueError(
                f"cat: tensor {i} is {part.shape}, tensor 0 is {parts[0].shape}; expected shapes that differ in axis "
                f"{axis} alone; pass the dim along which they are joined"
            )
    return shape.Cat.apply(*parts, axis=axis)


@checked
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors, all of one shape, along a new axis `dim`."""
    _check_origin("stack", tensors)
    for i, part in enumerate(tensors):
        if part.shape != tensors[0].shape:
            raise ValueError(
                f"stack: tensor {i} is {part.shape}, tensor 0 is {tensors[0].shape}; expected equal shapes"
            )
    return cat([part.unsqueeze(dim) for part in tensors], dim)


@checked
def split(x: Tensor, size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """x.split(size, dim)"""
    return _tensor("split", x).split(size, dim)


@checked
def where(condition: Any, a: Any, b: Any) -> Tensor:
    """a where the condition holds, b elsewhere; all three broadcast."""
    chosen = as_tensor(condition)
    if chosen.dtype != dtypes.bool:
        raise TypeError(f"where: condition is {chosen.dtype}; expected bool; compare first, as in x > 0")
    either = next((v for v in (a, b) if isinstance(v, Tensor)), None)
    first, second = operands("where", a, b) if either is not None else operands("where", as_tensor(a), b, real=True)
    return elementwise.Where.apply(chosen, first, second)


@checked
def pad(x: Tensor, pad: Sequence[int], value: float = 0.0) -> Tensor:
    """x with `value` around it. `pad` lists (before, after) from the last axis backwards, as in PyTorch.

    A negative number cuts elements away.
    """
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ValueError(
            f"pad: pad={tuple(pad)} has {len(pad)} numbers; expected a pair an axis, for at most {x.ndim} axes"
        )
    pairs = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)][::-1]
    widths = ((0, 0),) * (x.ndim - len(pairs)) + tuple(pairs)
    for n, (low, high) in zip(x.shape, widths, strict=True):
        if n + min(low, 0) + min(high, 0) < 0:
            raise ValueError(f"pad: ({low}, {high}) cuts more than the {n} elements of an axis; x.shape is {x.shape}")
    return shape.Pad.apply(x, widths=widths, value=value)


@checked
def maximum(a: Any, b: Any) -> Tensor:
    """The larger of each pair; NaN if either is."""
    return elementwise.Maximum.apply(*_pair("maximum", a, b))


@checked
def minimum(a: Any, b: Any) -> Tensor:
    """The smaller of each pair; NaN if either is."""
    return elementwise.Minimum.apply(*_pair("minimum", a, b))


def _pair(operation: str, a: Any, b: Any) -> tuple[Any, ...]:
    return operands(operation, a if isinstance(b, Tensor) else as_tensor(a), b)


@checked
def matmul(a: Tensor, b: Any) -> Tensor:
    """a @ b"""
    return as_tensor(a) @ b


@checked
def exp(x: Tensor) -> Tensor:
    """x.exp()"""
    return _tensor("exp", x).exp()


@checked
def log(x: Tensor) -> Tensor:
    """x.log()"""
    return _tensor("log", x).log()


@checked
def sqrt(x: Tensor) -> Tensor:
    """x.sqrt()"""
    return _tensor("sqrt", x).sqrt()


@checked
def sin(x: Tensor) -> Tensor:
    """x.sin()"""
    return _tensor("sin", x).sin()


@checked
def cos(x: Tensor) -> Tensor:
    """x.cos()"""
    return _tensor("cos", x).cos()


@checked
def abs(x: Tensor) -> Tensor:
    """x.abs()"""
    return _tensor("abs", x).abs()


@checked
def clip(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """x.clip(min, max)"""
    return _tensor("clip", x).clip(min, max)


clamp = clip


@checked
def gather(x: Tensor, dim: int, index: Any) -> Tensor:
    """x.gather(dim, index)"""
    return _tensor("gather", x).gather(dim, index)


@checked
def sum(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """x.sum(dim, keepdim)"""
    return _tensor("sum", x).sum(dim, keepdim)


@checked
def mean(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """x.mean(dim, keepdim)"""
    return _tensor("mean", x).mean(dim, keepdim)


@checked
def var(x: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    """x.var(dim, unbiased, keepdim)"""
    return _tensor("var", x).var(dim, unbiased, keepdim)


@checked
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """x.argmax(dim, keepdim)"""
    return _tensor("argmax", x).argmax(dim, keepdim)


@checked
def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """x.flatten(start_dim, end_dim)"""
    return _tensor("flatten", x).flatten(start_dim, end_dim)


@checked
def reshape(x: Tensor, shape: Any) -> Tensor:
    """x.reshape(shape)"""
    return _tensor("reshape", x).reshape(shape)


@checked
def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """x.transpose(dim0, dim1)"""
    return _tensor("transpose", x).transpose(dim0, dim1)


@checked
def permute(x: Tensor, dims: Any) -> Tensor:
    """x.permute(dims)"""
    return _tensor("permute", x).permute(dims)


def _check_origin(operation: str, tensors: Sequence[Any]) -> None:
    for i, part in enumerate(tensors):
        if is_foreign(part):
            raise not_a_tensor(operation, f"tensors[{i}]", part)


def _tensor(operation: str, x: Any) -> Tensor:
    """`x`, which must be a Tensor: an array of another library has methods of the same names."""
    if not isinstance(x, Tensor):
        raise not_a_tensor(operation, "x", x)
    return x


@checked
def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """True where every |a - b| <= atol + rtol * |b|; an infinity is close to itself alone, NaN to nothing."""
    left, right = as_tensor(a).detach().double(), as_tensor(b).detach().double()
    difference, tolerance = abs(left - right), abs(right) * rtol + atol
    return bool(where(difference < math.inf, difference <= tolerance, left == right).all())
