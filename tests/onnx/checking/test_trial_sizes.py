"""Which sizes are tried: the example's own, others around it, and those of files that come without."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.onnx.checking import trial_sizes

FREE: trial_sizes.Labels = {"x": ["n", 3, "h", "w"]}


def lengths(sizes: list[trial_sizes.Size], place: int = 0) -> tuple[int, ...]:
    return tuple(sizes[place].inputs["x"][1])


def around(shape: tuple[int, ...], labels: trial_sizes.Labels = FREE, least: int = 1) -> list[list[trial_sizes.Size]]:
    return trial_sizes.around(labels, {"x": 1}, {"x": np.ones(shape, np.float32)}, least)


def test_three_groups_around_an_example() -> None:
    example, even, odd = around((2, 3, 64, 64))
    assert [lengths(example), lengths(even), lengths(odd)] == [(2, 3, 64, 64), (1, 3, 96, 128), (3, 3, 53, 67)]
    for size in [*even, *odd]:
        assert all(size.bound[name] != n for name, n in (("n", 2), ("h", 64), ("w", 64)))
        assert size.bound["h"] != size.bound["w"] or size.bound["h"] in (32, 16, 63, 62, 128, 192, 256)
    assert any(size.bound["h"] % 16 == 0 == size.bound["w"] % 16 for size in odd)  # for what takes multiples alone
    assert any(max(size.bound.values()) < 64 for size in odd)  # and for what takes nothing longer


def test_a_batch_alone_has_few_sizes_and_no_free_axis_has_one() -> None:
    groups = around((1, 3), {"x": ["n", 3]})
    assert [[lengths(g, i)[0] for i in range(len(g))] for g in groups] == [[1], [2, 4], [3, 5]]
    assert [len(group) for group in around((1, 3), {"x": [1, 3]})] == [1]
    assert lengths(around((4, 3), {"x": ["n", 3]}, least=2)[1]) == (2, 3)


def test_axes_that_share_a_name_have_one_length() -> None:
    arrays = {"x": np.ones((2, 8)), "y": np.ones((8, 2))}
    _, even, _ = trial_sizes.around({"x": ["n", "t"], "y": ["t", "n"]}, {"x": 11, "y": 11}, arrays)
    for size in even:
        assert size.inputs["x"][1] == size.inputs["y"][1][::-1]


def test_an_example_that_is_large_has_no_larger_ones() -> None:
    groups = around((2, 3, 1024, 1024))
    assert all(np.prod(size.inputs["x"][1]) <= 2 * 2 * 3 * 1024**2 for group in groups for size in group)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.bool_])
def test_values_are_those_of_the_example_or_less(dtype: Any) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    size = trial_sizes.Size({"x": (1, [5, 3])}, example={"x": array})
    found = size.arrays()["x"]
    assert (found.shape, found.dtype) == ((5, 3), array.dtype)
    assert (found[:, 2].astype(float) <= array[:, 2].astype(float).max()).all()
    np.testing.assert_array_equal(found, size.arrays()["x"])
    exact = trial_sizes.Size({"x": (1, [2, 3])}, example={"x": array}, exact=True)
    assert exact.arrays()["x"] is array


def test_sizes_without_an_example_are_drawn_as_the_other_process_draws_them() -> None:
    size = trial_sizes.Size({"x": (16, [2, 3]), "i": (7, [4])}, high=3)
    assert size.request() == {"inputs": {"x": (16, [2, 3]), "i": (7, [4])}, "high": 3}
    arrays = size.arrays()
    assert arrays["x"].dtype == ml_dtypes.bfloat16
    assert set(arrays["i"].tolist()) <= {0, 1, 2}
    assert str(size) == "x (2, 3), i (4,)"


def test_sizes_of_a_file_are_the_usual_ones() -> None:
    first, even, odd = trial_sizes.usual(FREE, {"x": 1})
    assert [lengths(first), lengths(even), lengths(odd)] == [(2, 3, 8, 8), (3, 3, 16, 16), (5, 3, 13, 19)]
    assert len(trial_sizes.usual({"x": [2, 3]}, {"x": 1})) == 1
