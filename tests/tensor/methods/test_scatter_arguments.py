"""scatter, index_add, index_put and similar methods refuse wrong arguments by name, with and without a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn

LINE = mn.tensor([0, 2])
INDEX = mn.tensor([[0, 1, 2, 0]])
ROW = mn.ones(1, 4)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.scatter(0, INDEX), TypeError, "scatter: src and value are both None; expected exactly one"),
        (lambda x: x.scatter(0, INDEX, ROW, value=1), TypeError,
            "scatter: src and value are both given; expected exactly one"),
        (lambda x: x.scatter(0, INDEX, np.ones((1, 4))), TypeError, "scatter: src is ndarray; expected a Tensor"),
        (lambda x: x.scatter(0, [[0]], ROW), TypeError, "scatter: index is list; expected a Tensor"),
        (lambda x: x.scatter(0, [[0]], 1.0), TypeError, "scatter: index is list; expected a Tensor"),
        (lambda x: x.scatter("a", INDEX, ROW), TypeError, "scatter: dim='a'; expected an int"),
        (lambda x: x.scatter(0, INDEX + 1, ROW), ValueError, "scatter: index holds 3; expected -3 to 2"),
        (lambda x: x.scatter(0, INDEX, ROW[:, :3]), ValueError, r"scatter: index has shape \(1, 4\), src \(1, 3\)"),
        (lambda x: x.scatter(0, INDEX, ROW, reduce="mean"), ValueError, "scatter: reduce is 'mean'; expected None,"),
        (lambda x: x.scatter_add(0, INDEX, 1.0), TypeError, "scatter_add: src is float; expected a Tensor"),
        (lambda x: x.scatter_add(0, INDEX, None), TypeError, "scatter_add: src is NoneType; expected a Tensor"),
        (lambda x: x.scatter_add(0, INDEX, ROW.double()), TypeError, "scatter_add: x is float32, src is float64"),
        (lambda x: x.scatter_reduce(0, INDEX == 0, ROW, "sum"), TypeError, "scatter_reduce: index is bool; expected"),
        (lambda x: x.index_add(0, LINE, mn.ones(2, 3)), ValueError,
         r"index_add: source has shape \(2, 3\), index \(2,\), x \(3, 4\); expected source of shape \(2, 4\)"),
        (lambda x: x.index_copy(0, LINE, mn.ones(3, 4)), ValueError, r"index_copy: .* of shape \(2, 4\), a slice"),
        (lambda x: x.index_add(0, INDEX, mn.ones(4, 4)), ValueError, r"index_add: index has shape \(1, 4\); expected"),
        (lambda x: x.index_add(0, [0], ROW), TypeError, "index_add: index is list; expected a Tensor"),
        (lambda x: x.index_add(0, LINE, np.ones((2, 4))), TypeError, "index_add: source is ndarray; expected a Tensor"),
        (lambda x: x.index_copy(0, LINE, mn.ones(2, 4).long()), TypeError, "index_copy: x is float32, source is int64"),
        (lambda x: x.index_fill(0, LINE + 1, 1.0), IndexError, "index_fill: index holds 3; expected -3 to 2"),
        (lambda x: x.index_fill(0, mn.tensor([True] * 3), 1.0), TypeError, "index_fill: index is bool; expected int"),
        (lambda x: x.index_fill(0, INDEX, 1.0), ValueError, r"index_fill: index has shape \(1, 4\); expected one axis"),
        (lambda x: x.index_fill(0, LINE, mn.ones(2)), ValueError, r"index_fill: value has shape \(2,\); expected"),
        (lambda x: x.index_put(LINE, ROW), TypeError, "index_put: indices is Tensor; expected a tuple with a Tensor"),
        (lambda x: x.index_put(None, ROW), TypeError, "index_put: indices is NoneType; expected a tuple"),
        (lambda x: x.index_put((LINE,) * 3, mn.ones(2)), IndexError, "index_put: indices are for 3 axes or more; ex"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_named(
    call: Callable[[Any], Any], error: type[Exception], message: str, gradient: bool
) -> None:
    x = mn.zeros(3, 4, requires_grad=gradient)
    with pytest.raises(error, match=f"^{message}"):
        call(x)
    assert not x.detach().numpy().any()


@pytest.mark.parametrize(
    ("call", "of_x", "of_source"),
    [
        (lambda x, v, i: x.index_put((i,), v), [0, 0, 30], [10, 10, 20]),
        (lambda x, v, i: x.scatter(0, i, v), [0, 0, 30], [10, 10, 20]),
        (lambda x, v, i: x.index_copy(0, i, v), [0, 0, 30], [10, 10, 20]),
        (lambda x, v, i: x.index_put((i,), v, accumulate=True), [10, 20, 30], [10, 10, 20]),
        (lambda x, v, i: x.scatter_add(0, i, v), [10, 20, 30], [10, 10, 20]),
        (lambda x, v, i: x.index_add(0, i, v, alpha=2), [10, 20, 30], [20, 20, 40]),
    ],
)
def test_every_element_for_a_repeated_place_gets_its_gradient(call: Any, of_x: Any, of_source: Any) -> None:
    """As in PyTorch, also where the last one alone is kept."""
    x, source = mn.ones(3, requires_grad=True), mn.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (call(x, source, mn.tensor([0, 0, 1])) * mn.tensor([10.0, 20.0, 30.0])).sum().backward()
    assert x.grad is not None
    assert source.grad is not None
    assert (x.grad.tolist(), source.grad.tolist()) == (of_x, of_source)
