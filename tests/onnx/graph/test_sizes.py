from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("onnx")

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.sizes import Size, Symbols, broadcast, product, size_of

SYMBOLS = Symbols(("batch", "height"), (4, 16), ((6,), (32,)))
BATCH, HEIGHT = SYMBOLS.size(0), SYMBOLS.size(1)


def test_lengths_that_agree_in_all_runs_are_plain_ints() -> None:
    assert size_of([5, 5, 5]) == 5
    assert size_of([4, 6, 4]) == BATCH == Size((4, 6, 4))


def test_a_length_is_described_by_the_free_axes() -> None:
    assert SYMBOLS.describe(7) == 7
    assert SYMBOLS.describe(BATCH) == "batch"
    assert SYMBOLS.describe(BATCH * 16) == "16*batch"
    assert SYMBOLS.describe(BATCH * HEIGHT) == "batch*height"
    assert SYMBOLS.describe(HEIGHT - 2) == "height-2"
    assert SYMBOLS.describe(BATCH * 3 + 1) == "3*batch+1"


def test_a_length_that_follows_no_simple_formula_gets_a_name_of_its_own() -> None:
    halved = Size((8, 8, 15))
    assert SYMBOLS.formula(halved) is None
    assert SYMBOLS.describe(halved) == "dim_0"
    assert SYMBOLS.describe(Size((1, 1, 7))) == "dim_1"
    assert SYMBOLS.describe(Size((8, 8, 15))) == "dim_0"


def test_a_free_length_cannot_stand_where_a_number_must() -> None:
    with pytest.raises(RuleNotApplicable, match=r"needs a fixed length, .* it is 4 or 6"):
        range(BATCH)  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 9), min_size=3, max_size=3), st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_arithmetic_is_that_of_every_run(a: list[int], b: list[int]) -> None:
    x, y = size_of(a), size_of(b)
    assert x + y == size_of([p + q for p, q in zip(a, b, strict=True)])
    assert x * y == size_of([p * q for p, q in zip(a, b, strict=True)])
    assert x - y == size_of([p - q for p, q in zip(a, b, strict=True)])
    assert x // y == size_of([p // q for p, q in zip(a, b, strict=True)])
    assert product((x, y, 2)) == size_of([2 * p * q for p, q in zip(a, b, strict=True)])


def test_shapes_broadcast_as_in_numpy() -> None:
    assert broadcast((BATCH, 1, 3), (5, 1), ()) == (BATCH, 5, 3)
    with pytest.raises(ValueError, match="do not broadcast"):
        broadcast((BATCH,), (5,))
