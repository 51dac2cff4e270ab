"""TopK, CumSum and GatherND, written at every opset that has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm.ops.reduction import CumSum, TopPlaces


@pytest.mark.parametrize("largest", [True, False])
def test_top_places(proved: Any, operators: Any, opset: int, largest: bool) -> None:
    x = mn.tensor(np.random.default_rng(0).permutation(24).reshape(2, 3, 4).astype(np.float32))

    def best(x: mn.Tensor) -> mn.Tensor:
        return x.gather(2, TopPlaces.apply(x, count=2, axis=2, largest=largest))

    if opset >= 11:
        assert operators(proved(best, x, opset=opset)) == ["TopK", "GatherElements"]


def test_cumulative_sums(proved: Any, opset: int, rng: np.random.Generator) -> None:
    x = mn.tensor(rng.normal(size=(2, 3, 4)).astype(np.float32))
    proved(lambda x: CumSum.apply(x, axis=1, exclusive=True, reverse=True), x, opset=opset)
    proved(lambda x: CumSum.apply(x.to(mn.int32), axis=2, exclusive=False, reverse=False), x, opset=opset)


def test_arrays_for_the_first_axes(proved: Any, operators: Any, opset: int) -> None:
    x = mn.tensor(np.arange(24.0, dtype=np.float32).reshape(2, 3, 4))
    rows, columns = np.array([[0], [1]]), np.array([2, -1, 0])
    if opset >= 11:
        proto = proved(lambda x: x[rows, columns] * 1.0, x, opset=opset, batches=(2,))
        assert operators(proto)[0] == "GatherND"


def test_more_than_there_are_is_an_error(one_node: Any) -> None:
    model = mo.load(one_node("TopK", [np.zeros((2, 3)), np.array([4])], 11, ["y", "z"], held=(1,)))
    with pytest.raises(ValueError, match="k is 4; expected 0 to 3"):
        model(mn.Tensor(np.zeros((2, 3))))


def test_top_k_of_a_long_weight_asks_for_its_room(one_node: Any) -> None:
    weight, k = np.ones(1 << 16, np.float32), np.array([1])
    model = mo.load(one_node("TopK", [weight, k], 11, outputs=["values", "places"], held=(0,)), max_bytes=1 << 19)
    with pytest.raises(ValueError, match=r"TopK.*would take 4194304 bytes"):
        model(mn.tensor(k))


COMPOSED: dict[str, Any] = {
    "unfold": lambda x: x.unfold(1, 3, 2),
    "diff": lambda x: (x.diff(), x.diff(n=2, prepend=x[:, :1])),
    "diff of bools": lambda x: (x > 0).diff(),
    "diag_embed": lambda x: (x.diag_embed(), x.diag_embed(-1, 0, 2)),
    "tensor_split": lambda x: (*x.tensor_split(4, 1), *x.tensor_split((2, -1), 1)),
    "column_stack": lambda x: mn.column_stack([x, x[:, 0]]),
    "nansum, nanmean": lambda x: (x.nansum(1), x.nanmean(1), x.nanmean(1, keepdim=True)),
    "var_mean, std_mean": lambda x: (*mn.var_mean(x, 1), *mn.std_mean(x, 1, correction=0, keepdim=True)),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_names_made_of_others(proved: Any, name: str, rng: np.random.Generator) -> None:
    numbers = rng.normal(size=(2, 6)).astype(np.float32)
    if name.startswith("nan"):
        numbers[0, ::2] = numbers[1] = np.nan
    proved(COMPOSED[name], mn.tensor(numbers), opset=13)
