"""More pooling: adaptive maxima, adaptive means of volumes, Lp norms, and the inverse of max pooling.

The input is (N, C, *lengths), or one sample (C, *lengths).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minorm.devices import constant_of
from minorm.functional.activation import relu
from minorm.functional.argument_texts import AXES, POOLING, SAMPLE, UNPOOLING
from minorm.functional.arguments import floats
from minorm.functional.pooling import IntOrInts, _adaptive, avg_pool1d, avg_pool2d, avg_pool3d
from minorm.functional.scatter import scatter
from minorm.functional.windows import for_each_rank, ints
from minorm.graph import trace
from minorm.ops.operands import check_room
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

OutputSize = int | Sequence[int | None]


@for_each_rank(
    "adaptive_max_pool",
    POOLING | {"input": SAMPLE},
    "y[n, c, i] = max of input[n, c, floor(i * L / L') : ceil((i + 1) * L / L')]",
    "y[n, c, i, j] = max of input[n, c, floor(i * H / H') : ceil((i + 1) * H / H'), ...]\n\n"
    "The dots stand for the same slice with j, W and W'.",
    "y[n, c, h, i, j] = max of input[n, c, floor(h * D / D') : ceil((h + 1) * D / D'), ...]\n\n"
    "The dots stand for two more slices: one with i, H and H', and one with j, W and W'.",
    example=6,
    batch=False,
)
def _adaptive_max(rank: int, input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """output_size gives {new}, and y is (N, C, {new}). With return_indices=True the result is (y, positions). If
    several elements are the maximum, the first element is taken. Raises ValueError if an axis has length 0.

    Example:
        >>> x = mn.arange(6.0).expand({shape})
        >>> F.{name}(x, output_size=2).reshape(-1)[:2]
        tensor([2., 5.])
    """
    name = f"adaptive_max_pool{rank}d"

    def pool(x: Tensor) -> Any:
        lengths = x.shape[2:]
        wanted = tuple(output_size) if isinstance(output_size, (tuple, list)) else output_size
        if isinstance(wanted, tuple) and len(wanted) == rank:
            wanted = tuple(n if o is None else o for n, o in zip(lengths, wanted, strict=True))
        output = ints(name, "output_size", wanted, rank)
        if 0 in lengths:
            raise ValueError(f"{name}: input has shape {x.shape}; expected at least 1 along every spatial axis")
        places = constant_of(_parts(lengths, output), x.array)
        rows = x.reshape(*x.shape[:2], math.prod(lengths))
        parts = rows[:, :, places.reshape(-1)].reshape(*x.shape[:2], *places.shape)
        values, found = parts.max(-1)
        if not return_indices:
            return values
        with_batch = np.broadcast_to(places, (*x.shape[:2], *places.shape))
        return values, Tensor(with_batch).gather(-1, found.unsqueeze(-1)).squeeze(-1)

    return batched(name, rank, input, pool)


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = _adaptive_max


@for_each_rank(
    "lp_pool",
    POOLING | {"input": SAMPLE + "; floats"},
    *["y = (sum of input^p)^(1/p) over each window, where p = norm_type"] * 3,
    example=2,
    batch=False,
)
def _lp(
    rank: int,
    input: Tensor,
    norm_type: float,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """y is (N, C, {new}). Windows are not padded. If norm_type is odd and the sum over a window is negative, y is NaN,
    as in PyTorch.

    Example:
        >>> x = mn.tensor([3.0, 4.0]).expand({shape})
        >>> F.{name}(x, norm_type=1, kernel_size=2).item() == x.sum().item()
        True

    ONNX LpPool does the same.
    """
    name, average = f"lp_pool{rank}d", (avg_pool1d, avg_pool2d, avg_pool3d)[rank - 1]
    kernel = ints(name, "kernel_size", kernel_size, rank)

    def pool(x: Tensor) -> Tensor:
        mean = average(x**norm_type, kernel, stride, 0, ceil_mode)
        size = relu(mean.abs())
        sign = Tensor(np.sign(mean.array))
        return (size * sign * math.prod(kernel)) ** (1.0 / norm_type)

    return batched(name, rank, input, pool)


lp_pool1d, lp_pool2d, lp_pool3d = _lp


@for_each_rank(
    "max_unpool",
    UNPOOLING | {"input": SAMPLE},
    *[
        f"y[n, c].reshape(-1)[indices[n, c, {i}]] = input[n, c, {i}]: the inverse of max_pool{n}d."
        for n, i in enumerate(("i", "i, j", "h, i, j"), start=1)
    ],
    example=1,
    batch=False,
)
def _unpool(
    rank: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """All other elements of y are 0. y is (N, C, {new}). By default y has the lengths (length - 1) * stride - 2 *
    padding + kernel_size, the most likely lengths of the pooling's input. Raises ValueError if indices does not have
    input's shape, or if output_size differs from the default lengths by stride or more.

    Example:
        >>> x = mn.tensor([5.0]).reshape({shape})
        >>> F.{name}(x, indices=mn.ones_like(x).long(), kernel_size=2).reshape(-1)[:2]
        tensor([0., 5.])

    ONNX MaxUnpool does the same; Zeiler and Fergus 2013, arXiv:1311.2901.
    """
    name, x = f"max_unpool{rank}d", input
    kernel = ints(name, "kernel_size", kernel_size, rank)
    strides = kernel if stride is None else ints(name, "stride", stride, rank)
    paddings = ints(name, "padding", padding, rank, least=0)
    floats(name, input=x)
    if not isinstance(indices, Tensor) or indices.dtype.kind not in "iu" or indices.shape != x.shape:
        raise ValueError(f"{name}: indices are {getattr(indices, 'dtype', type(indices).__name__)} of shape "
                         f"{getattr(indices, 'shape', '?')}; expected integers of shape {x.shape}")  # fmt: skip
    lengths = tuple(
        (n - 1) * s - 2 * p + k for n, s, p, k in zip(x.shape[-rank:], strides, paddings, kernel, strict=True)
    )
    if output_size is not None:
        wanted = tuple(output_size)[-rank:]
        if any(abs(w - n) >= s for w, n, s in zip(wanted, lengths, strides, strict=True)):
            raise ValueError(
                f"{name}: output_size is {tuple(output_size)}; expected lengths that differ from {lengths} by less "
                "than a stride"
            )
        lengths = wanted

    if min(lengths) < 1:
        raise ValueError(f"{name}: the result would have lengths {lengths}; expected at least 1 along every axis")
    lead, count = x.shape[:-rank], math.prod(x.shape[-rank:])
    check_room(name, (*lead, *lengths))
    zeros = Tensor(np.zeros_like(x.array, shape=(*lead, math.prod(lengths))))
    found = scatter(zeros, -1, indices.reshape(*lead, count), x.reshape(*lead, count))
    return found.reshape(*lead, *lengths)


max_unpool1d, max_unpool2d, max_unpool3d = _unpool


@documented(POOLING, base=_adaptive, shape="1, 1, 6, 6, 6", input=SAMPLE.format_map(AXES[3]) + "; floats")
@trace.operation
def adaptive_avg_pool3d(input: Tensor, output_size: OutputSize) -> Tensor:
    """y[n, c, h, i, j] = mean of input[n, c, floor(h * D / D') : ceil((h + 1) * D / D'), ...]

    y is (N, C, D', H', W'), where (D', H', W') = output_size. The dots stand for two more slices: one with i, H and H',
    and one with j, W and W'. output_size=1 gives the global average.
    """
    return batched("adaptive_avg_pool3d", 3, input, lambda x: _adaptive("adaptive_avg_pool3d", 3, x, output_size))


def batched(name: str, rank: int, x: Any, function: Callable[[Tensor], Any]) -> Any:
    """Return function(x). If x has no batch axis, the function gets a batch of one, and the batch axis of its result is
    removed.
    """
    floats(name, input=x)
    if x.ndim not in (rank + 1, rank + 2):
        raise ValueError(f"{name}: input has shape {x.shape}; expected {rank + 2} axes (N, C, ...), or {rank + 1}")
    if x.ndim == rank + 2:
        return function(x)
    result = function(x.unsqueeze(0))
    return tuple(part.squeeze(0) for part in result) if isinstance(result, tuple) else result.squeeze(0)


@functools.lru_cache(maxsize=64)
def _parts(lengths: tuple[int, ...], output: tuple[int, ...]) -> Any:
    """Return the flat indices of the input elements that adaptive pooling combines to each output element, as an array
    (*output, k). If fewer than k elements are combined, the last index is repeated.
    """
    places: Any = np.zeros((1,) * len(lengths) * 2, np.int64)
    for axis, (n, o) in enumerate(zip(lengths, output, strict=True)):
        i = np.arange(o)
        first, end = i * n // o, -(-(i + 1) * n // o)
        steps = np.minimum(first[:, None] + np.arange((end - first).max()), end[:, None] - 1)
        shape = [1] * (2 * len(lengths))
        shape[axis], shape[len(lengths) + axis] = steps.shape
        places = places * n + steps.reshape(shape)
    return places.reshape(*output, -1)
