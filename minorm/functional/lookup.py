"""Looks up rows of a table by their index (embedding, bags of embeddings), and turns classes into rows of 0 and 1
(one_hot).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.functional.argument_texts import TABLE
from minorm.functional.arguments import floats
from minorm.graph import trace
from minorm.ops.indexing import own
from minorm.ops.operands import check_room
from minorm.support.argument_errors import not_a_tensor
from minorm.support.documented import documented
from minorm.tensor.combining import where
from minorm.tensor.tensor import Tensor


@documented(TABLE)
@trace.operation
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """y[...] = weight[input[...]]: each number in input is replaced by the row of the table with that index.

    y is (*input.shape, features). Raises IndexError if the table has no row of that index.

    Example:
        >>> F.embedding(mn.tensor([1, 0]), weight=mn.tensor([[0.0, 0.0], [3.0, 4.0]]))
        tensor([[3., 4.],
                [0., 0.]])

    Its ONNX operator is Gather (opset 13).
    """
    floats("embedding", (), weight=weight)
    _check_places("embedding", input, weight)
    padding_idx = _row("embedding", padding_idx, weight)
    if input.dtype == dtypes.uint8:  # an index of uint8 would be a mask
        input = input.to(dtypes.int64)
    del sparse
    if max_norm is not None:
        _shorten(input, weight, max_norm, norm_type)
    rows = weight[input]
    if scale_grad_by_freq:
        counts = np.bincount(own(devices.to_device(input.array, "cpu")).reshape(-1), minlength=len(weight))
        share = Tensor(1 / np.maximum(counts, 1).astype(weight.dtype)).to(weight.device)[input].unsqueeze(-1)
        rows = rows.detach() + (rows - rows.detach()) * share
    if padding_idx is not None:
        rows = where((input == padding_idx).unsqueeze(-1), rows.detach(), rows)
    return rows


@documented(
    TABLE,
    input="row numbers, as integers: (bags, n), or (total) with all bags one after the other",
    offsets="(bags), the position in input at which each bag begins; None if input is (bags, n)",
    mode='how a bag becomes one row: "sum", "mean" or "max"',
    per_sample_weights='a factor for each row number, with input\'s shape; only for mode "sum". None is 1',
    include_last_offset="True if offsets also say where the last bag ends",
    padding_idx="a row that is left out of its bag and gets no gradient; None means no such row",
)
@trace.operation
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """y[b] = sum, mean or max of weight[i] over all numbers i in bag b. A bag can hold the words of a text.

    y is (bags, features), with zeros for an empty bag. Raises IndexError if the table has no row of index i, and
    ValueError unless offsets begins with 0, never falls and ends within input.

    Example:
        >>> table = mn.tensor([[0.0, 0.0], [3.0, 4.0], [5.0, 6.0]])
        >>> F.embedding_bag(mn.tensor([1, 2, 0]), table, offsets=mn.tensor([0, 2]))
        tensor([[4., 5.],
                [0., 0.]])
    """
    name = "embedding_bag"
    floats(name, ("per_sample_weights",), weight=weight, per_sample_weights=per_sample_weights)
    _check_places(name, input, weight)
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"{name}: mode is {mode!r}; expected 'sum', 'mean' or 'max'")
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        raise ValueError(f"{name}: per_sample_weights has shape {per_sample_weights.shape}, mode is {mode!r}; expected "
                         f"the shape of input, {input.shape}, and mode='sum'")  # fmt: skip
    padding_idx = _row(name, padding_idx, weight)
    places, there = _bags(input, offsets, include_last_offset)
    if max_norm is not None:
        _shorten(input, weight, max_norm, norm_type)
    flat = input.reshape(-1)
    if padding_idx is not None:
        there = there & (devices.to_device(flat.array, "cpu")[places] != padding_idx)
    rows = embedding(flat, weight, None, None, 2.0, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    # Without offsets the bags follow from the shape of input.
    on_device = devices.constant_of if offsets is None and padding_idx is None else devices.to_device_of
    bags = rows[on_device(places, weight.array)]
    if not places.shape[1]:
        return bags.sum(1)
    mask = Tensor(on_device(there[..., None], weight.array))
    if mode == "max":
        largest = where(mask, bags, -np.inf).max(1).values
        return where(Tensor(on_device(there.any(1, keepdims=True), weight.array)), largest, 0.0)
    total = where(mask, bags, 0.0).sum(1)
    if mode == "sum":
        return total
    count = np.maximum(there.sum(1, keepdims=True), 1).astype(dtypes.compute_type(weight.dtype))
    return total / Tensor(on_device(count, weight.array)).to(weight.dtype)


@documented(
    {},
    tensor="classes, integers of any shape, from 0 on",
    num_classes="the number of classes; -1 is the largest class plus 1",
)
@trace.operation
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """y[..., c] = 1 where tensor[...] = c, else 0

    y is (*tensor.shape, num_classes) and has the type int64. Raises ValueError for a number below 0 or above
    num_classes - 1.

    Example:
        >>> F.one_hot(mn.tensor([0, 2]), num_classes=3)
        tensor([[1, 0, 0],
                [0, 0, 1]])

    Its ONNX operator is OneHot (opset 11).
    """
    if not isinstance(tensor, Tensor):
        raise not_a_tensor("one_hot", "tensor", tensor)
    if tensor.dtype.kind not in "iu":
        raise TypeError(f"one_hot: tensor is {tensor.dtype}; expected integer classes; convert them with tensor.long()")
    asked = num_classes == -1 or devices.is_host(tensor.array)  # a check on a GPU would make the host wait
    largest = int(tensor.max()) if asked and tensor.numel() else -1
    if num_classes == -1 and largest < 0:
        raise ValueError(
            "one_hot: tensor is empty; expected a value for num_classes, because there is no largest class"
        )
    classes = largest + 1 if num_classes == -1 else num_classes
    if asked and (classes <= largest or (tensor.numel() and int(tensor.min()) < 0)):
        raise ValueError(f"one_hot: tensor holds {int(tensor.min())} to {largest}; expected classes 0 to {classes - 1}")
    check_room("one_hot", (*tensor.shape, classes))
    return (tensor.unsqueeze(-1) == Tensor(devices.constant_of(np.arange(classes), tensor.array))).to(dtypes.int64)


def _check_places(name: str, input: Any, weight: Tensor) -> None:
    if not isinstance(input, Tensor):
        raise not_a_tensor(name, "input", input)
    if input.dtype.kind not in "iu":
        raise TypeError(f"{name}: input is {input.dtype}; expected integer row numbers; use input.long()")
    if weight.ndim != 2:
        raise ValueError(f"{name}: weight has shape {weight.shape}; expected (rows, features)")
    if not devices.is_host(input.array):  # rows on a GPU are not checked, since the host would wait
        return
    if input.numel() and not (int(input.min()) >= 0 and int(input.max()) < len(weight)):
        rows = f"0 to {len(weight) - 1}, the rows of weight" if len(weight) else "no number, because weight has no rows"
        raise IndexError(f"{name}: input holds {int(input.min())} to {int(input.max())}; expected {rows}")


def _row(name: str, padding_idx: int | None, weight: Tensor) -> int | None:
    if padding_idx is None:
        return None
    if not isinstance(padding_idx, (int, np.integer)) or isinstance(padding_idx, bool):
        raise TypeError(f"{name}: padding_idx is {padding_idx!r}; expected an int or None")
    if not -len(weight) <= padding_idx < len(weight):
        raise ValueError(
            f"{name}: padding_idx is {padding_idx}; expected the number of one of the {len(weight)} rows of weight"
        )
    return padding_idx % len(weight)


def _shorten(input: Tensor, weight: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale down rows of `weight` in place: if `input` selects a row with a norm above max_norm, its norm becomes
    max_norm.
    """
    with devices.on_device_of(weight.array):
        rows = np.unique(input.array)
        sizes = (abs(weight.array[rows].astype(np.float64)) ** norm_type).sum(1) ** (1 / norm_type)
        factors = np.where(sizes > max_norm, max_norm / (sizes + 1e-7), 1.0)
        weight.array[rows] *= factors[:, None].astype(weight.dtype)
    weight.version.count += 1


def _bags(input: Tensor, offsets: Tensor | None, include_last_offset: bool) -> tuple[Any, Any]:
    """Return the positions in `input` of each bag's numbers, and a mask. Shorter bags are padded to the length of the
    longest bag, and the mask is False for the padding.
    """
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(
                f"embedding_bag: input has shape {input.shape}, and offsets are given; expected an input with one "
                "axis, or offsets=None"
            )
        places = np.arange(input.numel()).reshape(input.shape)
        return places, np.ones(places.shape, bool)
    if input.ndim != 1 or offsets is None or offsets.ndim != 1:
        given = None if offsets is None else offsets.shape
        raise ValueError(f"embedding_bag: input has shape {input.shape}, offsets {given}; expected input (bags, n), or "
                         "(total) with offsets (bags)")  # fmt: skip
    starts = devices.to_device(offsets.array, "cpu").astype(np.int64)
    ends = starts[1:] if include_last_offset else np.append(starts[1:], input.numel())
    starts = starts[: len(ends)]
    if len(starts) and (starts[0] != 0 or (ends < starts).any() or ends[-1] > input.numel()):
        raise ValueError(
            f"embedding_bag: offsets are {offsets.tolist()[:8]}; expected numbers that rise from 0 to at most "
            f"{input.numel()}"
        )
    steps = np.arange((ends - starts).max(initial=0))
    there = steps < (ends - starts)[:, None]
    return np.where(there, starts[:, None] + steps, 0), there
