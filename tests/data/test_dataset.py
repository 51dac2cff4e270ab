"""Datasets give the samples of arrays, of subsets and of anything with a length and an index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minorm.data import DataLoader
from minorm.data.dataset import ArrayDataset, Subset, TensorDataset, random_split, read_batch, read_samples
from minorm.devices import dtypes
from minorm.tensor.tensor import Tensor

IMAGES = np.random.default_rng(0).integers(0, 256, (7, 2, 3, 3), dtype=np.uint8)
LABELS = np.arange(7)


class Squares:
    """The least that a dataset needs to have."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, i: int) -> tuple[Any, ...]:
        if not 0 <= i < 5:
            raise IndexError(i)
        return np.full((2,), i, np.float32), i * i, 0.5 * i


def test_samples_slices_and_batches_of_arrays() -> None:
    dataset = ArrayDataset(IMAGES, LABELS)
    assert len(dataset) == 7
    image, label = dataset[3]
    assert image.shape == (2, 3, 3)
    assert label == 3
    images, labels = dataset[2:5]
    assert np.array_equal(images, IMAGES[2:5])
    assert labels.tolist() == [2, 3, 4]
    images, labels = dataset.batch(np.array([6, 0, 6]))
    assert np.array_equal(images, IMAGES[[6, 0, 6]])
    assert labels.tolist() == [6, 0, 6]


def test_a_batch_is_a_copy() -> None:
    dataset = ArrayDataset(IMAGES.copy())
    dataset.batch(np.arange(7))[0][:] = 0
    assert np.array_equal(dataset.arrays[0], IMAGES)


def test_bytes_are_scaled_when_they_are_read() -> None:
    dataset = ArrayDataset(IMAGES, LABELS, scale=255)
    for images in (dataset[:][0], dataset.batch(np.arange(7))[0]):
        assert images.dtype == np.float32
        assert np.array_equal(images, IMAGES.astype(np.float32) / np.float32(255))
    assert dataset[0][0].dtype == np.float32
    assert dataset.arrays[0].dtype == np.uint8
    assert dataset[:][1].dtype == LABELS.dtype


def test_tensors_lists_and_big_endian_arrays_do() -> None:
    dataset = ArrayDataset(Tensor(np.ones((2, 1), np.float32)), [1, 2], np.array([3, 4], ">i4"))
    assert [array.dtype for array in dataset.arrays] == [np.float32, np.int64, dtypes.int32]
    assert dataset[1][2] == 4


@pytest.mark.parametrize("arrays", [(), (np.zeros(3), np.zeros(4)), (np.array(3),), (np.zeros(0), np.array(0))])
def test_arrays_of_different_lengths(arrays: Any) -> None:
    with pytest.raises(
        ValueError, match=r"ArrayDataset: the arrays have shapes .*expected at least one array, and the same"
    ):
        ArrayDataset(*arrays)


def test_arrays_that_no_tensor_holds() -> None:
    with pytest.raises(TypeError, match="dtype <U1 is not supported"):
        ArrayDataset(np.array(["a"]))


def test_a_subset_reads_like_its_dataset() -> None:
    subset = Subset(ArrayDataset(IMAGES, LABELS, scale=255), [5, 1, 3])
    assert len(subset) == 3
    assert [int(subset[i][1]) for i in (0, 1, 2, -1)] == [5, 1, 3, 3]
    assert subset[1:][1].tolist() == [1, 3]
    assert subset[:][0].shape == (3, 2, 3, 3)
    assert subset[:][0].dtype == np.float32
    assert Subset(subset, [2, 0])[:][1].tolist() == [3, 5]
    assert Subset(Squares(), [4, 2])[:][1].tolist() == [16, 4]
    assert Subset(Squares(), [4, 2])[1][1] == 4
    with pytest.raises(IndexError):
        subset[3]


@pytest.mark.parametrize("indices", [[7], [-1], [0, 99]])
def test_a_subset_of_samples_that_are_not_there(indices: list[int]) -> None:
    with pytest.raises(
        IndexError, match=r"Subset: indices lie between .* expected 0 to 6, because the dataset has 7 samples"
    ):
        Subset(ArrayDataset(LABELS), indices)


@settings(max_examples=50, deadline=None)
@given(count=st.integers(0, 50), fraction=st.floats(0, 1), seed=st.integers(0, 10))
def test_a_split_shares_nothing_and_loses_nothing(count: int, fraction: float, seed: int) -> None:
    dataset = ArrayDataset(np.arange(count))
    first, second = random_split(dataset, fraction, seed)
    assert len(first) == round(count * fraction)
    assert sorted([*first[:][0].tolist(), *second[:][0].tolist()]) == list(range(count))
    again, _ = random_split(dataset, fraction, seed)
    assert np.array_equal(first.indices, again.indices)


def test_a_split_is_random() -> None:
    dataset = ArrayDataset(np.arange(100))
    splits = [tuple(random_split(dataset, 0.5, seed)[0].indices) for seed in range(5)]
    assert len(set(splits)) == 5
    with pytest.raises(ValueError, match=r"random_split: fraction=1.5; expected a number from 0 to 1"):
        random_split(dataset, 1.5, 0)


def test_single_samples_are_stacked() -> None:
    rows, squares, halves = read_batch(Squares(), np.array([3, 1]))
    assert rows.tolist() == [[3, 3], [1, 1]]
    assert squares.tolist() == [9, 1]
    assert squares.dtype == np.int64
    assert halves.dtype == np.float32, "Python floats become float32"
    assert np.array_equal(read_batch([Tensor(np.ones(2)), Tensor(np.zeros(2))], np.array([1, 0])), [[0, 0], [1, 1]])


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([(np.zeros(2), 1), (np.zeros(3), 1)], r"part 0 of the sample has shapes \[\(2,\), \(3,\)\] within one batch"),
        ([np.zeros(2), np.zeros((2, 1))], r"the sample has shapes \[\(2,\), \(2, 1\)\]"),
        ([(1, 2), (1,)], r"the samples of a batch have \[1, 2\] parts; expected the same number"),
    ],
)
def test_samples_that_do_not_stack(samples: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_batch(samples, np.array([0, 1]))


def test_no_indices_of_single_samples() -> None:
    with pytest.raises(ValueError, match="there are no indices"):
        read_batch(Squares(), np.array([], np.int64))


# Overrides


def plus(base: Any) -> Any:
    class Plus(base):  # type: ignore[misc]
        def __getitem__(self, i: Any) -> Any:
            a, b = super().__getitem__(i)
            return a + 100, b

    return Plus


@pytest.mark.parametrize(
    "dataset",
    [
        plus(TensorDataset)(Tensor(np.arange(3.0)), Tensor(LABELS[:3])),
        plus(ArrayDataset)(np.arange(3.0), LABELS[:3]),
        plus(Subset)(ArrayDataset(np.arange(3.0), LABELS[:3]), [0, 1, 2]),
        Subset(plus(ArrayDataset)(np.arange(3.0), LABELS[:3]), [0, 1, 2]),
        Subset(Subset(plus(ArrayDataset)(np.arange(5.0), LABELS[:5]), [0, 1, 2, 4]), [0, 1, 2]),
    ],
    ids=lambda dataset: type(dataset).__name__ + type(dataset).__base__.__name__,
)
def test_an_override_of_getitem_counts_in_a_batch(dataset: Any) -> None:
    assert read_batch(dataset, np.array([2, 0]))[0].tolist() == [102.0, 100.0]
    assert [a + b for a, b in read_samples(dataset, [2, 0])] == [104.0, 100.0]
    assert [x.tolist() for x in next(iter(DataLoader(dataset, 3)))] == [[100.0, 101.0, 102.0], [0, 1, 2]]
    loader = DataLoader(dataset, 3, collate_fn=lambda samples: [float(a) for a, _ in samples])
    assert next(iter(loader)) == [100, 101, 102]


def test_a_batch_of_ones_own_beside_getitem_counts() -> None:
    class Both(plus(ArrayDataset)):  # type: ignore[misc]
        def batch(self, indices: Any) -> Any:
            a, b = super().batch(indices)
            return a + 7, b

    assert read_batch(Both(np.arange(3.0), LABELS[:3]), np.array([1]))[0].tolist() == [8.0]


def test_getitems_of_pytorchs_datasets_is_asked_for_all_samples_at_once() -> None:
    asked = []

    class Many(Squares):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            asked.append(indices)
            return [(i * 10,) for i in indices]

    assert [batch[0].tolist() for batch in DataLoader(Many(), 3)] == [[0, 10, 20], [30, 40]]
    assert next(iter(DataLoader(Subset(Many(), [4, 1]), 2, collate_fn=list))) == [(40,), (10,)]
    assert asked == [[0, 1, 2], [3, 4], [4, 1]]


def test_an_attribute_called_batch_is_no_method() -> None:
    class Sized(Squares):
        def __init__(self) -> None:
            self.batch = 32

    assert next(iter(DataLoader(Sized(), 2)))[1].tolist() == [0, 1]
