"""Sequences of several lengths, padded and packed: against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.nn.utils import rnn

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

import torch.nn.utils.rnn as theirs  # noqa: E402

from tests.pytorch.twins.samples import assert_same, compare, leaves, numbers, ours  # noqa: E402

SEQUENCES = [numbers(length, 2, seed=length) for length in (3, 5, 1, 4)]


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("side", ["right", "left"])
def test_pad_sequence(batch_first: bool, side: Any) -> None:
    arguments = leaves(SEQUENCES)
    mine = ours(arguments)
    expected = theirs.pad_sequence(arguments, batch_first, -1.5, side)
    compare(rnn.pad_sequence(mine, batch_first, -1.5, side), expected, (mine, arguments), "pad_sequence")


@pytest.mark.parametrize("batch_first", [False, True])
def test_unpad_sequence(batch_first: bool) -> None:
    lengths = [3, 5, 1, 4]
    arguments = leaves([theirs.pad_sequence(SEQUENCES, batch_first).detach().requires_grad_()])
    mine = ours(arguments)
    expected = theirs.unpad_sequence(arguments[0].clone(), torch.tensor(lengths), batch_first)
    compare(rnn.unpad_sequence(mine[0], mn.tensor(lengths), batch_first), expected, (mine, arguments), "unpad")


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", [[3, 5, 1, 4], [5, 5, 5, 5], [5, 4, 1, 1]])
def test_pack_and_back(batch_first: bool, lengths: list[int]) -> None:
    arguments = leaves([numbers(*((4, 5) if batch_first else (5, 4)), 2)])
    mine = ours(arguments)
    ordered = lengths == sorted(lengths, reverse=True)
    for enforce in {False, ordered}:
        expected = theirs.pack_padded_sequence(arguments[0], torch.tensor(lengths), batch_first, enforce)
        packed = rnn.pack_padded_sequence(mine[0], mn.tensor(lengths), batch_first, enforce)
        assert_same(packed.data, expected.data, "data")
        for name in ("batch_sizes", "sorted_indices", "unsorted_indices"):
            a, b = getattr(packed, name), getattr(expected, name)
            assert (a is None) == (b is None), name
            assert a is None or np.asarray(a).tolist() == b.tolist(), name
        back = rnn.pad_packed_sequence(packed, batch_first, -2.0, 7)
        wanted = theirs.pad_packed_sequence(expected, batch_first, -2.0, 7)
        compare(back[0], wanted[0], (mine, arguments), "padded")
        assert np.asarray(back[1]).tolist() == wanted[1].tolist()
        mine[0].grad = arguments[0].grad = None


@pytest.mark.parametrize("enforce", [False, True])
def test_pack_sequence(enforce: bool) -> None:
    given = sorted(SEQUENCES, key=len, reverse=True) if enforce else SEQUENCES
    arguments = leaves(given)
    mine = ours(arguments)
    expected, packed = theirs.pack_sequence(arguments, enforce), rnn.pack_sequence(mine, enforce)
    compare(packed.data, expected.data, (mine, arguments), "packed")
    for mine_back, back in zip(rnn.unpack_sequence(packed), theirs.unpack_sequence(expected), strict=True):
        assert_same(mine_back, back, "unpacked")


def test_what_is_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="enforce_sorted"):
        rnn.pack_padded_sequence(mn.ones(5, 2, 2), [1, 5])
    with pytest.raises(RuntimeError, match="enforce_sorted"):
        theirs.pack_padded_sequence(torch.ones(5, 2, 2), torch.tensor([1, 5]))
