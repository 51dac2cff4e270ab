"""order.py: views whose axes lie as in memory go to a formula, and its result is turned back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minorm.kernels.order import in_order, in_order_along, memory_order


class Rows(np.ndarray):
    """Arrays whose elementwise results lie row by row, as CuPy's do."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        given = [np.asarray(x) for x in inputs]
        return np.ascontiguousarray(getattr(ufunc, method)(*given, **options)).view(Rows)


def laid(values: np.ndarray, order: Any) -> Any:
    return np.ascontiguousarray(values.transpose(order)).transpose(np.argsort(order)).view(Rows)


@given(
    order=st.permutations(range(4)),
    other=st.permutations(range(4)),
    kept=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_results_lie_as_the_first_argument_that_is_not_in_rows(order: Any, other: Any, kept: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((2, 3, 4, 5))
    x, short = laid(a, order), laid(b, other)[tuple(slice(None) if keep else slice(1) for keep in kept)]
    y = in_order(np.subtract, x, short)
    np.testing.assert_array_equal(np.asarray(y), a - np.asarray(short))
    decides = x if order != [0, 1, 2, 3] or not all(kept) else short
    assert memory_order(y) == memory_order(decides)
    flipped = in_order(np.subtract, short, x)
    np.testing.assert_array_equal(np.asarray(flipped), np.asarray(short) - a)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_along_an_axis(axis: int) -> None:
    a = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    x = laid(a, (0, 2, 3, 1))
    y = in_order_along(axis, np.add.accumulate, x)
    np.testing.assert_array_equal(np.asarray(y), np.cumsum(a, axis))
    assert memory_order(y) == [0, 2, 3, 1]


def test_numpys_own_arrays_go_through_as_they_are() -> None:
    x = np.ones((2, 3)).T
    found: list[Any] = []
    in_order(lambda *given: found.extend(given) or x, x, 2 * x)
    assert found[0] is x
    assert in_order_along(1, lambda x, axis: (x, axis), x) == (x, 1)
