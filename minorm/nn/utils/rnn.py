"""Puts sequences of several lengths into one Tensor: padded to the longest, or packed step by step without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minorm.functional.padding import pad
from minorm.support.documented import documented
from minorm.tensor.combining import cat, stack
from minorm.tensor.tensor import Tensor

SEQUENCES = {
    "lengths": "(batch) integers: the number of steps of each sequence",
    "sequences": "Tensors (steps, *) with any numbers of steps",
    "batch_first": "True means (batch, steps, *), False (steps, batch, *)",
    "enforce_sorted": (
        "True requires falling lengths, as an export does; False sorts the sequences and stores the order"
    ),
    "padding_value": "the value of the padding",
}


class PackedSequence(NamedTuple):
    """Sequences in one Tensor without padding: all first steps, then all second steps ... The longest sequence comes
    first.

    `pack_padded_sequence` and `pack_sequence` make a PackedSequence. RNN, GRU and LSTM take and return a
    PackedSequence.

    Fields:
        data (Tensor): (all steps, *), the steps of all sequences
        batch_sizes (Tensor): (steps), the number of sequences that have each step
        sorted_indices (Tensor | None, default None): the original positions of the sequences; None without sorting
        unsorted_indices (Tensor | None, default None): the order that undoes the sorting

    Example:
        >>> packed = nn.utils.rnn.pack_sequence([mn.tensor([1, 2, 3]), mn.tensor([4])])
        >>> packed.data, packed.batch_sizes
        (tensor([1, 4, 2, 3]), tensor([2, 1, 1]))
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None


@documented(
    SEQUENCES,
    input="(steps, batch, *), the padded sequences",
    lengths="(batch) integers: the length of each sequence",
)
def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs padded sequences into a PackedSequence, and leaves the padding out.

    The input is (steps, batch, *). Raises ValueError if the lengths do not fit the input. With enforce_sorted=True,
    raises ValueError if a length is larger than the length before.

    Example:
        >>> x = mn.tensor([[1, 2, 3], [4, 0, 0]])
        >>> nn.utils.rnn.pack_padded_sequence(x, [3, 1], batch_first=True).data
        tensor([1, 4, 2, 3])
    """
    counts = np.asarray(lengths.cpu().array if isinstance(lengths, Tensor) else lengths, np.int64)
    x = input.transpose(0, 1) if batch_first else input
    if counts.shape != x.shape[1:2] or not len(counts) or counts.min() < 1 or counts.max() > len(x):
        raise ValueError(
            f"pack_padded_sequence: lengths are {counts.tolist()[:8]}; expected a length from 1 to {len(x)} for each "
            f"of {x.shape[1]} sequences"
        )
    order = back = None
    if enforce_sorted and (np.diff(counts) > 0).any():
        raise ValueError(
            f"pack_padded_sequence: lengths are {counts.tolist()[:8]}; expected lengths in falling order, or "
            "enforce_sorted=False"
        )
    if not enforce_sorted:
        places = np.argsort(-counts, kind="stable")
        order, back = Tensor(places).to(x.device), Tensor(np.argsort(places)).to(x.device)
        x, counts = x[:, order], counts[places]
    sizes = Tensor((np.arange(counts[0])[:, None] < counts).sum(1))
    return PackedSequence(pack_padded(x, sizes), sizes, order, back)


@documented(SEQUENCES, sequence="the PackedSequence", total_length="the length to pad to; None is the longest")
def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Returns (padded, lengths): the sequences of a PackedSequence, padded to one length, and their original lengths.

    padded is (steps, batch, *), in the original order of the sequences. Raises ValueError if total_length is less than
    the longest length.

    Example:
        >>> packed = nn.utils.rnn.pack_sequence([mn.tensor([1, 2, 3]), mn.tensor([4])])
        >>> nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        (tensor([[1, 2, 3],
                [4, 0, 0]]), tensor([3, 1]))
    """
    x, lengths = padded(sequence, padding_value)
    if sequence.unsorted_indices is not None:
        x, lengths = x[:, sequence.unsorted_indices], lengths[sequence.unsorted_indices.cpu()]
    if total_length is not None:
        if total_length < len(x):
            raise ValueError(f"pad_packed_sequence: total_length is {total_length}; expected at least {len(x)}")
        x = pad(x, [0, 0] * (x.ndim - 1) + [0, total_length - len(x)], value=padding_value)
    return x.transpose(0, 1) if batch_first else x, lengths


@documented(SEQUENCES, padding_side='the side of the padding, "right" or "left"')
def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Pads Tensors (steps, *) of several lengths and joins them to one Tensor (longest, batch, *).

    Example:
        >>> nn.utils.rnn.pad_sequence([mn.tensor([1, 2, 3]), mn.tensor([4])], batch_first=True)
        tensor([[1, 2, 3],
                [4, 0, 0]])
    """
    if padding_side not in ("right", "left"):
        raise ValueError(f"pad_sequence: padding_side is {padding_side!r}; expected 'right' or 'left'")
    longest = max(len(x) for x in sequences)
    rows = []
    for x in sequences:
        missing = [longest - len(x), 0] if padding_side == "left" else [0, longest - len(x)]
        rows.append(pad(x, [0, 0] * (x.ndim - 1) + missing, value=padding_value))
    return stack(rows, 0 if batch_first else 1)


@documented(SEQUENCES, padded_sequences="(steps, batch, *), the padded sequences")
def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """Returns the list of Tensors that `pad_sequence` joined.

    Example:
        >>> nn.utils.rnn.unpad_sequence(mn.tensor([[1, 2, 3], [4, 0, 0]]), mn.tensor([3, 1]), batch_first=True)
        [tensor([1, 2, 3]), tensor([4])]
    """
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[: int(n)] for row, n in zip(x, lengths.tolist(), strict=True)]


@documented(SEQUENCES)
def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs Tensors (steps, *) of several lengths into one PackedSequence, step by step.

    With enforce_sorted=True, raises ValueError if a sequence is longer than the sequence before.

    Example:
        >>> nn.utils.rnn.pack_sequence([mn.tensor([1, 2, 3]), mn.tensor([4])]).batch_sizes  # of steps 1, 2, 3
        tensor([2, 1, 1])
    """
    return pack_padded_sequence(pad_sequence(sequences), [len(x) for x in sequences], enforce_sorted=enforce_sorted)


@documented(SEQUENCES, packed_sequences="the PackedSequence")
def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Returns the list of Tensors that `pack_sequence` packed.

    Example:
        >>> packed = nn.utils.rnn.pack_sequence([mn.tensor([1, 2, 3]), mn.tensor([4])])
        >>> nn.utils.rnn.unpack_sequence(packed)
        [tensor([1, 2, 3]), tensor([4])]
    """
    x, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(x, lengths, batch_first=True)


def pack_padded(x: Tensor, batch_sizes: Tensor) -> Tensor:
    """Return x (steps, batch, *) without padding, as one Tensor. The sequences of x are sorted, with the longest
    first.
    """
    return cat([x[t, :n] for t, n in enumerate(batch_sizes.tolist())])


def padded(packed: PackedSequence, value: float = 0.0) -> tuple[Tensor, Any]:
    """Return the padded sequences (steps, batch, *), with the longest first, and their lengths."""
    data, sizes = packed[0], packed.batch_sizes.tolist()
    steps = data.split(sizes)
    rows = [pad(x, [0, 0] * (x.ndim - 1) + [0, sizes[0] - len(x)], value=value) for x in steps]
    lengths = (np.asarray(sizes)[:, None] > np.arange(sizes[0])).sum(0)
    return stack(rows), Tensor(lengths)
