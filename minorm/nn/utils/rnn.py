"""Sequences of several lengths in one Tensor: padded to the longest, or packed, step by step without the padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minorm.functional.padding import pad
from minorm.joining import cat, stack
from minorm.tensor import Tensor


class PackedSequence(NamedTuple):
    """Sequences sorted by falling length, all first steps, then all second steps ...: data (all steps, *).

    batch_sizes (steps): how many sequences have that step; sorted_indices: the order they came in, or None where
    they were sorted; unsorted_indices: the way back.
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """input (steps, batch, *), or (batch, steps, *) with batch_first, and how long each sequence is, as one.

    ValueError for lengths that do not fall, unless enforce_sorted=False.
    """
    counts = np.asarray(lengths.cpu().array if isinstance(lengths, Tensor) else lengths, np.int64)
    x = input.transpose(0, 1) if batch_first else input
    if counts.shape != x.shape[1:2] or not len(counts) or counts.min() < 1 or counts.max() > len(x):
        raise ValueError(f"pack_padded_sequence: lengths are {counts.tolist()[:8]}; expected 1 to {len(x)} for each of "
                         f"{x.shape[1]} sequences")  # fmt: skip
    order = back = None
    if enforce_sorted and (np.diff(counts) > 0).any():
        raise ValueError(f"pack_padded_sequence: lengths are {counts.tolist()[:8]}; expected them to fall, or "
                         "enforce_sorted=False")  # fmt: skip
    if not enforce_sorted:
        places = np.argsort(-counts, kind="stable")
        order, back = Tensor(places).to(x.device), Tensor(np.argsort(places)).to(x.device)
        x, counts = x[:, order], counts[places]
    sizes = Tensor((np.arange(counts[0])[:, None] < counts).sum(1))
    return PackedSequence(pack_padded(x, sizes), sizes, order, back)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The padded sequences, and how long each is: what `pack_padded_sequence` came from."""
    x, lengths = padded(sequence, padding_value)
    if sequence.unsorted_indices is not None:
        x, lengths = x[:, sequence.unsorted_indices], lengths[sequence.unsorted_indices.cpu()]
    if total_length is not None:
        if total_length < len(x):
            raise ValueError(f"pad_packed_sequence: total_length is {total_length}; expected at least {len(x)}")
        x = pad(x, [0, 0] * (x.ndim - 1) + [0, total_length - len(x)], value=padding_value)
    return x.transpose(0, 1) if batch_first else x, lengths


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Tensors (steps, *) of several lengths as one (longest, batch, *), or (batch, longest, *) with batch_first."""
    if padding_side not in ("right", "left"):
        raise ValueError(f"pad_sequence: padding_side is {padding_side!r}; expected 'right' or 'left'")
    longest = max(len(x) for x in sequences)
    rows = []
    for x in sequences:
        missing = [longest - len(x), 0] if padding_side == "left" else [0, longest - len(x)]
        rows.append(pad(x, [0, 0] * (x.ndim - 1) + missing, value=padding_value))
    return stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The Tensors that `pad_sequence` put together."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[: int(n)] for row, n in zip(x, lengths.tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Tensors (steps, *) of several lengths as one PackedSequence."""
    return pack_padded_sequence(pad_sequence(sequences), [len(x) for x in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The Tensors that `pack_sequence` put together."""
    x, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(x, lengths, batch_first=True)


def pack_padded(x: Tensor, batch_sizes: Tensor) -> Tensor:
    """(steps, batch, *) of falling lengths without its padding."""
    return cat([x[t, :n] for t, n in enumerate(batch_sizes.tolist())])


def padded(packed: PackedSequence, value: float = 0.0) -> tuple[Tensor, Any]:
    """(steps, batch, *) in the order in which they are packed, and the lengths."""
    data, sizes = packed[0], packed.batch_sizes.tolist()
    steps = data.split(sizes)
    rows = [pad(x, [0, 0] * (x.ndim - 1) + [0, sizes[0] - len(x)], value=value) for x in steps]
    lengths = (np.asarray(sizes)[:, None] > np.arange(sizes[0])).sum(0)
    return stack(rows), Tensor(lengths)
