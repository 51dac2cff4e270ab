"""embedding reads rows by numbers of every integer type, and says which number, table or padding_idx is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn

TABLE = np.arange(15, dtype=np.float32).reshape(5, 3)


@pytest.mark.parametrize("kind", [mn.uint8, mn.int8, mn.uint16, mn.int32, mn.uint64, mn.int64])
def test_numbers_of_every_integer_type_are_places(kind: Any) -> None:
    """Five bytes are no mask of a table with five rows."""
    weight, places = mn.tensor(TABLE, requires_grad=True), [0, 4, 4, 1, 1]
    rows = F.embedding(mn.tensor(places, dtype=kind), weight, padding_idx=1)
    assert np.array_equal(rows.numpy(), TABLE[places])
    rows.sum().backward()
    assert weight.grad is not None
    assert weight.grad.numpy()[:, 0].tolist() == [1, 0, 0, 0, 2]
    bags = F.embedding_bag(mn.tensor([[0, 4], [1, 1]], dtype=kind), weight, mode="sum")
    assert np.array_equal(bags.numpy(), [TABLE[0] + TABLE[4], 2 * TABLE[1]])


def test_no_number_reads_no_row() -> None:
    for shape in ((0,), (2, 0)):
        weight = mn.tensor(TABLE, requires_grad=True)
        rows = F.embedding(mn.zeros(*shape, dtype=mn.int64), weight)
        assert rows.shape == (*shape, 3)
        rows.sum().backward()
        assert weight.grad is not None
        assert not weight.grad.numpy().any()
    assert F.embedding(mn.zeros(0, dtype=mn.int64), mn.zeros(0, 3)).shape == (0, 3)


@pytest.mark.parametrize(
    ("places", "rows", "message"),
    [
        ([0, 5], 5, "embedding: input holds 0 to 5; expected 0 to 4, the rows of weight"),
        ([-1], 5, "embedding: input holds -1 to -1; expected 0 to 4, the rows of weight"),
        ([0], 0, "embedding: input holds 0 to 0; expected no number, because weight has no rows"),
    ],
)
def test_a_number_outside_the_table_is_named(places: list[int], rows: int, message: str) -> None:
    with pytest.raises(IndexError, match=f"^{message}$"):
        F.embedding(mn.tensor(places), mn.zeros(rows, 3))


@pytest.mark.parametrize("given", [1.0, "a", True])
def test_padding_idx_is_a_number_of_a_row(given: Any) -> None:
    with pytest.raises(TypeError, match=r"^embedding: padding_idx is .*; expected an int or None"):
        F.embedding(mn.tensor([0]), mn.tensor(TABLE), padding_idx=given)
    for layer in (nn.Embedding, nn.EmbeddingBag):
        with pytest.raises(TypeError, match=f"^{layer.__name__}: padding_idx is .*; expected an int or None"):
            layer(5, 3, padding_idx=given)
        with pytest.raises(
            ValueError, match=f"^{layer.__name__}: padding_idx is 5; expected the number of one of the 5 rows"
        ):
            layer(5, 3, padding_idx=5)


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_from_pretrained_takes_a_table(layer: Any) -> None:
    with pytest.raises(
        ValueError, match=rf"^{layer.__name__}.from_pretrained: embeddings is \(4,\); expected a Tensor of"
    ):
        layer.from_pretrained(mn.zeros(4))
