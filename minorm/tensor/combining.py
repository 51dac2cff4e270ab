"""Functions that join, choose from, or multiply several Tensors. functions.py has the functions of one Tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.ops import elementwise, shape
from minorm.ops.operands import axis_of, check_room, operands
from minorm.support.argument_errors import checked, is_foreign, not_a_tensor, numpys
from minorm.support.argument_texts import AXIS
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor, as_tensor


@documented({}, tensors="a list of Tensors that differ in length along `dim` only", dim=AXIS)
@numpys
@checked
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join the tensors one after the other along `dim`.

    Raises ValueError for shapes that differ along another axis.

    Example:
        >>> mn.cat([mn.tensor([1, 2]), mn.tensor([3])])
        tensor([1, 2, 3])

    Its ONNX operator is Concat (opset 13).
    """
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


@documented({}, tensors="a list of Tensors of one shape", dim="the position of the new axis")
@numpys
@checked
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join the tensors along a new axis `dim`.

    Raises ValueError unless the shapes are equal.

    Example:
        >>> mn.stack([mn.tensor([1, 2]), mn.tensor([3, 4])], dim=1)
        tensor([[1, 3],
                [2, 4]])
    """
    _check_origin("stack", tensors)
    for i, part in enumerate(tensors):
        if part.shape != tensors[0].shape:
            raise ValueError(
                f"stack: tensor {i} is {part.shape}, tensor 0 is {tensors[0].shape}; expected equal shapes"
            )
    return cat([part.unsqueeze(dim) for part in tensors], dim)


concat = concatenate = cat


@documented({}, tensors="a list of Tensors")
@checked
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Join the tensors side by side, along axis 1. Vectors are joined along their only axis."""
    parts = [part.reshape(1) if part.ndim == 0 else part for part in tensors]
    return cat(parts, 0 if parts and parts[0].ndim == 1 else 1)


@documented({}, tensors="a list of Tensors")
@checked
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Join the tensors one below the other, along axis 0. A vector counts as one row."""
    return cat([part.reshape(1, -1) if part.ndim < 2 else part for part in tensors], 0)


@documented({}, tensors="a list of Tensors")
@checked
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Join the tensors side by side, along axis 1. A vector counts as one column."""
    return cat([part.reshape(-1, 1) if part.ndim < 2 else part for part in tensors], 1)


@documented(
    {},
    tensors="vectors, or one list of them",
    indexing='"ij" puts rows first; "xy" swaps the first two axes, as in images',
)
@checked
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Return the coordinates of a grid's points: result[k][i0, i1, ...] = tensors[k][ik].

    Example:
        >>> down, across = mn.meshgrid(mn.tensor([1, 2]), mn.tensor([3, 4, 5]))
        >>> across
        tensor([[3, 4, 5],
                [3, 4, 5]])
    """
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: indexing is {indexing!r}; expected 'ij' or 'xy'")
    parts = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors
    if any(part.ndim > 1 for part in parts):
        raise ValueError(f"meshgrid: shapes are {[part.shape for part in parts]}; expected vectors")
    flat = [part.reshape(-1) for part in parts]
    if indexing == "xy":  # as in images: x is the second axis
        flat[:2] = flat[1::-1]
    shape = tuple(len(part) for part in flat)
    found = [part.reshape(-1, *(1,) * (len(flat) - i - 1)).expand(shape) for i, part in enumerate(flat)]
    if indexing == "xy":
        found[:2] = found[1::-1]
    return tuple(found)


@documented(
    {},
    a="any shape",
    b="any shape, of a's type",
    dims="n, for the last n axes of a and the first n axes of b; or a pair of lists, with axes of a and axes of b",
)
@checked
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Multiply a and b, and sum over their axes `dims`. The result has first the other axes of a, then the other axes
    of b.

    Raises ValueError for axes of different lengths.

    Example:
        >>> mn.tensordot(mn.ones(2, 3), mn.ones(3, 4), dims=1).shape
        (2, 4)
    """
    if isinstance(dims, int):
        dims = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    ours, theirs = ([axis_of("tensordot", d, x) for d in ([axes] if isinstance(axes, int) else axes)] for axes, x in
                    zip(dims, (a, b), strict=True))  # fmt: skip
    pairs = list(zip(ours, theirs, strict=True))
    if any(m != n and 1 not in (m, n) for m, n in ((a.shape[i], b.shape[j]) for i, j in pairs)):
        raise ValueError(f"tensordot: a is {a.shape}, b is {b.shape}; expected equal lengths along {ours} and {theirs}")
    for i, j in pairs:  # an axis of length 1 broadcasts to a longer one, which is summed first
        a, b = (x.sum(k, True) if x.shape[k] != 1 == n else x for x, k, n in ((a, i, b.shape[j]), (b, j, a.shape[i])))
    rows = [i for i in range(a.ndim) if i not in ours]
    columns = [i for i in range(b.ndim) if i not in theirs]
    count = math.prod(a.shape[i] for i in ours)
    shape = [a.shape[i] for i in rows], [b.shape[i] for i in columns]
    left = a.permute(*rows, *ours).reshape(math.prod(shape[0]), count)
    right = b.permute(*theirs, *columns).reshape(count, math.prod(shape[1]))
    return (left @ right).reshape(*shape[0], *shape[1])


@documented({}, tensors="Tensors whose axes are equal or 1, counted from the last")
@checked
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Expand all tensors to their common shape."""
    shape = np.broadcast_shapes(*[x.shape for x in tensors])
    return tuple(x.expand(shape) for x in tensors)


@documented({}, obj="any object")
@checked
def is_tensor(obj: Any) -> bool:
    """Return True for a Tensor."""
    return isinstance(obj, Tensor)


@documented(
    {},
    condition="a bool Tensor",
    input="a number or a Tensor, taken where the condition holds",
    other="a number or a Tensor, taken elsewhere",
)
@checked
def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """y = input where the condition is True, and other elsewhere. The three arguments are broadcast to one shape.

    If input and other are missing, the function returns the indices of the elements where the condition is True, as a
    vector for each axis. Raises TypeError for a condition that is not bool.

    Example:
        >>> x = mn.tensor([1.0, -2.0])
        >>> mn.where(x > 0, x, 0.0)
        tensor([1., 0.])

    Its ONNX operator is Where (opset 16).
    """
    if input is None and other is None:
        return as_tensor(condition).nonzero(as_tuple=True)
    chosen = as_tensor(condition)
    if chosen.dtype != dtypes.bool:
        raise TypeError(f"where: condition is {chosen.dtype}; expected bool; compare first, as in x > 0")
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):  # two numbers: the wider type counts
        kind = dtypes.get_default_dtype() if float in map(type, (input, other)) else None
        number = np.asarray(input, kind) if isinstance(input, (bool, int, float)) else input
        input = as_tensor(number).to(chosen.device)
    return elementwise.Where.apply(chosen, *operands("where", input, other))


@documented(
    {},
    x="any shape",
    pad="(before, after) for the last axis, then for the axis before it, and so on; negative numbers cut elements off",
    value="the value of the new elements",
)
@checked
def pad(x: Tensor, pad: Sequence[int], value: float = 0.0) -> Tensor:
    """Put elements equal to `value` around x. `F.pad` can also pad by reflecting or repeating elements of x.

    Example:
        >>> mn.pad(mn.tensor([1.0, 2.0]), (1, 0), value=9.0)
        tensor([9., 1., 2.])

    Its ONNX operator is Pad.
    """
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ValueError(
            f"pad: pad={tuple(pad)} has {len(pad)} numbers; expected a pair for each axis, for at most {x.ndim} axes"
        )
    pairs = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)][::-1]
    widths = ((0, 0),) * (x.ndim - len(pairs)) + tuple(pairs)
    for n, (low, high) in zip(x.shape, widths, strict=True):
        if n + min(low, 0) + min(high, 0) < 0:
            raise ValueError(f"pad: ({low}, {high}) cuts more than the {n} elements of an axis; x.shape is {x.shape}")
    check_room("pad", [n + low + high for n, (low, high) in zip(x.shape, widths, strict=True)])
    return shape.Pad.apply(x, widths=widths, value=value)


@documented({}, input="a Tensor or a number", other="a Tensor or a number; Tensors broadcast with each other")
@checked
def maximum(input: Any, other: Any) -> Tensor:
    """max(input, other), element by element. The result is NaN if either element is NaN.

    Example:
        >>> mn.maximum(mn.tensor([1.0, 5.0]), mn.tensor([3.0, 2.0]))
        tensor([3., 5.])

    Its ONNX operator is Max (opset 13).
    """
    return elementwise.Maximum.apply(*_pair("maximum", input, other))


@documented({}, input="a Tensor or a number", other="a Tensor or a number; Tensors broadcast with each other")
@checked
def minimum(input: Any, other: Any) -> Tensor:
    """min(input, other), element by element. The result is NaN if either element is NaN.

    Example:
        >>> mn.minimum(mn.tensor([1.0, 5.0]), mn.tensor([3.0, 2.0]))
        tensor([1., 2.])

    Its ONNX operator is Min (opset 13).
    """
    return elementwise.Minimum.apply(*_pair("minimum", input, other))


def _pair(operation: str, a: Any, b: Any) -> tuple[Any, ...]:
    return operands(operation, a if isinstance(b, Tensor) else as_tensor(a), b)


@documented({}, input="(..., I, J), or a vector (J)", other="(..., J, K), or a vector (J); leading axes broadcast")
@checked
def matmul(input: Tensor, other: Any) -> Tensor:
    """input @ other: y[..., i, k] = sum_j input[..., i, j] * other[..., j, k]

    Raises ValueError if the lengths of the summed axes differ, or if the other axes do not broadcast.

    Example:
        >>> mn.matmul(mn.tensor([[1.0, 2.0]]), mn.tensor([[3.0], [4.0]]))
        tensor([[11.]])

    Its ONNX operator is MatMul (opset 13).
    """
    return as_tensor(input) @ other


def _check_origin(operation: str, tensors: Sequence[Any]) -> None:
    for i, part in enumerate(tensors):
        if is_foreign(part):
            raise not_a_tensor(operation, f"tensors[{i}]", part)


@documented(
    {},
    input="a Tensor or an array",
    other="a Tensor or an array",
    rtol="the allowed difference, as a share of |other|",
    atol="the allowed difference that is added to rtol * |other|",
    equal_nan="True treats NaN as equal to NaN",
)
@checked
def allclose(input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Return True if every |input - other| <= atol + rtol * |other|. Infinity is close only to itself.

    Example:
        >>> mn.allclose(mn.tensor([1.0]), mn.tensor([1.001]), rtol=0.01)
        True
    """
    return as_tensor(input).allclose(as_tensor(other), rtol, atol, equal_nan)
