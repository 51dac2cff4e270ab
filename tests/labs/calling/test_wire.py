"""Values come back as they went, and nothing else comes through."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm as mn
from minorm.labs.calling import wire

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(max_examples=50)
@given(VALUES)
def test_a_value_comes_back_as_it_went(value: Any) -> None:
    assert wire.copied(value) == value
    assert type(wire.copied(value)) is type(value)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.bool_, np.uint8])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3, 1)])
def test_arrays(dtype: Any, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    got, other = wire.copied((array, array.T))
    np.testing.assert_array_equal(got, array)
    np.testing.assert_array_equal(other, array.T)
    assert got.dtype == array.dtype
    got[...] = 0  # writable


def test_tensors_scalars_and_other_byte_orders_travel_as_arrays() -> None:
    np.testing.assert_array_equal(wire.copied(mn.tensor([1.0, 2.0])), np.float32([1, 2]))
    assert wire.copied(np.float64(0.1)) == 0.1
    assert wire.copied(np.array([1.5], ">f8"))[0] == 1.5
    assert np.isnan(wire.copied(float("nan")))


@pytest.mark.parametrize("value", [object(), {1: 2}, {1, 2}, np.array(["a"]), np.array([1j]), lambda: 0, np])
def test_what_cannot_travel_is_named(value: Any) -> None:
    with pytest.raises(wire.WireError, match=r"a|dict"):
        wire.encode(value)


@pytest.mark.parametrize(
    "text",
    [
        "", "[1]", "{}", '{"tuple": 3, "list": 4}', '{"set": []}', '{"array": "float64", "shape": [3]}',
        '{"array": "float64", "shape": [-1]}', '{"array": "object", "shape": []}', '{"array": "float64"}',
        '{"array": "float64", "shape": [99999999999999999999]}', '{"array": [], "shape": []}', '{"dict": [1]}',
        "[" * 100000,
    ],
)  # fmt: skip
def test_what_no_encoder_writes_is_refused(text: str) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(text.encode(), b"12345678")


def test_leaves_are_in_order_at_any_depth() -> None:
    array = np.arange(2)
    found = wire.leaves([1, (2, [array, ()], "ab"), {"a": [3]}])
    assert found[:2] == [1, 2]
    assert found[2] is array
    assert found[3:] == ["ab", {"a": [3]}]


def test_a_list_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(wire.WireError, match="deep"):
        wire.encode(value)


def test_a_deadline_holds_for_a_message_in_pieces() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(wire.HEADER.pack(10, 0) + b"12")
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            wire.Line(ours).receive(start + 0.2)
        assert time.monotonic() - start < 2


def test_a_message_that_claims_to_be_huge_is_refused_before_it_is_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(wire.HEADER.pack(1 << 60, 1 << 60))
        with pytest.raises(wire.WireError, match="MB"):
            wire.Line(ours).receive(time.monotonic() + 5)


def test_a_closed_line() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(wire.HEADER.pack(10, 0) + json.dumps("x").encode())
    theirs.close()
    with ours, pytest.raises(EOFError):
        wire.Line(ours).receive()
