"""Values in nests of tuples, lists and dicts."""

from __future__ import annotations

from typing import NamedTuple

from minorm.support.nested import mapped


class Pair(NamedTuple):
    left: object
    right: object


def test_each_value_of_the_kind_is_replaced_and_all_else_stays() -> None:
    nest = {"a": [1, "x"], "b": (2, Pair(3, None)), "c": 4.5}
    assert mapped(nest, int, lambda n: n * 10) == {"a": [10, "x"], "b": (20, Pair(30, None)), "c": 4.5}
    assert isinstance(mapped(Pair(1, 2), int, str), Pair)
    assert mapped(7, int, str) == "7"
    assert mapped(None, int, str) is None
