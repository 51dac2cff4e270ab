"""The images that are drawn: how many, in which order, in which batches, and what becomes of the loader."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm as mn
from minorm import random
from minorm.data import ArrayDataset, DataLoader, RandomSampler
from minorm.diagnosis import image_batches
from minorm.diagnosis.image_batches import Images


def numbered(count: int) -> ArrayDataset:
    return ArrayDataset(np.arange(count, dtype=np.float32).reshape(-1, 1), np.arange(count))


@given(st.integers(2, 1200), st.integers(1, 64))
def test_up_to_512_different_images_with_their_labels(count: int, batch_size: int) -> None:
    found = image_batches.drawn(DataLoader(numbered(count), batch_size))
    assert len(found) == min(count, 512)
    assert len(np.unique(found.labels)) == len(found)
    np.testing.assert_array_equal(found.inputs[:, 0], found.labels)


def test_images_come_from_all_over_the_loader() -> None:
    batches = [(mn.tensor(x), mn.tensor(y)) for x, y in (numbered(4096)[i : i + 64] for i in range(0, 4096, 64))]
    for loader in (batches, DataLoader(numbered(4096), 64)):
        found = image_batches.drawn(loader)
        assert len(found) == 512
        assert 1700 < found.labels.mean() < 2400
        assert (np.diff(found.labels) < 0).any()


def test_a_loader_stays_where_it_is() -> None:
    loader = DataLoader(numbered(100), 8, shuffle=True, seed=3)
    running = iter(loader)
    next(running)
    state = loader.state_dict()
    image_batches.drawn(loader)
    assert loader.state_dict() == state
    rest = [x for x, _ in running]
    assert len(rest) == 12
    assert not DataLoader(numbered(10), 2).shuffle


def test_a_sampler_decides_and_its_random_numbers_come_back() -> None:
    dataset = numbered(600)
    loader = DataLoader(dataset, 50, sampler=RandomSampler(dataset))
    before = random.get_state()
    assert len(image_batches.drawn(loader)) == 512
    assert random.get_state() == before
    halves = [list(range(300)), list(range(300, 600))]
    assert image_batches.drawn(DataLoader(dataset, batch_sampler=halves)).labels.max() > 400


def test_the_batch_size_is_the_median() -> None:
    sizes = [8, 8, 8, 1]
    assert image_batches.drawn([mn.zeros(n, 2) for n in sizes]).batch_size == 8
    assert image_batches.drawn([mn.zeros(1, 2)] * 5).batch_size == 1


@given(st.integers(2, 512), st.integers(1, 1 << 20))
def test_batches_are_of_nearly_one_size_and_never_of_one_image(count: int, numbers: int) -> None:
    inputs = np.broadcast_to(np.float32(0), (count, numbers))
    sizes = [places.stop - places.start for places, _ in Images(inputs, None, 1).batches()] if numbers < 9999 else []
    if sizes:
        assert sum(sizes) == count
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= (1 if count > 2 else 2)
        assert max(sizes) <= image_batches.BATCH


def test_large_images_come_in_small_batches() -> None:
    large = Images(np.broadcast_to(np.float32(0), (64, 3, 512, 512)), None, 1)
    assert large.batch <= 6


@pytest.mark.parametrize(
    ("labels", "expected"), [(mn.arange(4), True), (mn.zeros(4), False), (mn.arange(3), False), (None, False)]
)
def test_labels_are_integers_one_a_sample(labels: Any, expected: bool) -> None:
    batch = mn.zeros(4, 2) if labels is None else (mn.zeros(4, 2), labels)
    assert (image_batches.drawn([batch]).labels is not None) is expected
