"""Which samples come in which batch: PyTorch's DataLoader gives the same lists, and refuses the same arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.data import BatchSampler, DataLoader, IterableDataset, Sampler, SubsetRandomSampler, WeightedRandomSampler
from minorm.data.sample_order import batched


class Endless:
    """A sampler without a length."""

    def __iter__(self) -> Iterator[int]:
        return iter([4, 4, 0, 2, 1])


class Backwards(Sampler):
    """A sampler as programs write them."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count - 1, -1, -1))

    def __len__(self) -> int:
        return self.count


ORDERS: list[tuple[str, dict[str, Any]]] = [
    ("in order", {"batch_size": 3}),
    ("without the last", {"batch_size": 3, "drop_last": True}),
    ("one by one", {"batch_size": None}),
    ("one by one, sampled", {"batch_size": None, "sampler": [3, 1]}),
    ("a list", {"batch_size": 2, "sampler": [4, 2, 0]}),
    ("an array", {"batch_size": 2, "sampler": np.array([4, 2, 0])}),
    ("a list without the last", {"batch_size": 2, "sampler": [4, 2, 0], "drop_last": True}),
    ("a sampler", {"batch_size": 2, "sampler": Backwards(5)}),
    ("without a length", {"batch_size": 2, "sampler": Endless()}),
    ("batches", {"batch_sampler": [[0, 4], [1], [2, 3, 3]]}),
    ("an empty sampler", {"batch_size": 2, "sampler": []}),
]


@pytest.mark.parametrize("options", [options for _, options in ORDERS], ids=[name for name, _ in ORDERS])
def test_batches_are_pytorchs(options: dict[str, Any]) -> None:
    data = pytest.importorskip("torch.utils.data")
    samples = [np.float32(n) for n in (10, 11, 12, 13, 14)]
    ours, theirs = DataLoader(samples, **options), data.DataLoader(samples, **options)
    for _ in range(2):
        assert [batch.tolist() for batch in ours] == [np.asarray(batch).tolist() for batch in theirs]
    if not isinstance(options.get("sampler"), Endless):
        assert len(ours) == len(theirs)
    collected = [DataLoader(samples, collate_fn=list, **options) for DataLoader in (DataLoader, data.DataLoader)]
    if options.get("batch_size", 1) is not None:
        assert list(collected[0]) == list(collected[1])


CLASHES: list[tuple[dict[str, Any], str]] = [
    ({"sampler": [0], "shuffle": True}, r"got both sampler and shuffle=True"),
    ({"batch_sampler": [[0]], "batch_size": 2}, r"got both batch_sampler and batch_size; expected only batch_sampler"),
    ({"batch_sampler": [[0]], "shuffle": True, "drop_last": True}, r"got both batch_sampler and shuffle, drop_last"),
    ({"batch_sampler": [[0]], "sampler": [0]}, r"got both batch_sampler and sampler"),
    ({"batch_size": None, "drop_last": True}, r"batch_size=None with drop_last=True"),
    ({"num_workers": -1}, r"num_workers=-1; expected a number of at least 0"),
    ({"timeout": -1}, r"timeout=-1; expected a number of at least 0"),
    ({"prefetch_factor": 2}, r"prefetch_factor is for workers, but num_workers is 0"),
    ({"persistent_workers": True}, r"persistent_workers is for workers"),
    ({"multiprocessing_context": "spawn"}, r"multiprocessing_context is for workers"),
]


@pytest.mark.parametrize(("options", "message"), CLASHES)
def test_contradictions_are_refused_as_in_pytorch(options: dict[str, Any], message: str) -> None:
    data = pytest.importorskip("torch.utils.data")
    with pytest.raises(ValueError):
        data.DataLoader([1, 2], **options)
    with pytest.raises(ValueError, match=f"DataLoader: {message}"):
        DataLoader([1, 2], **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": 3}, r"DataLoader: sampler is a int; expected an iterable of positions"),
        ({"batch_sampler": 3}, r"DataLoader: batch_sampler is a int; expected an iterable"),
        ({"collate_fn": 3}, r"DataLoader: collate_fn is int; expected a function"),
        ({"worker_init_fn": 3}, r"DataLoader: worker_init_fn is int; expected a function"),
    ],
)
def test_wrong_types(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        DataLoader([1, 2], **options)


def test_words_to_workers_are_taken() -> None:
    loader = DataLoader(
        [1, 2, 3], 2, num_workers=4, pin_memory=True, timeout=3, worker_init_fn=print, prefetch_factor=2,
        persistent_workers=True, pin_memory_device="cuda", in_order=True,
    )  # fmt: skip
    assert [batch.tolist() for batch in loader] == [[1, 2], [3]]
    assert (loader.num_workers, loader.pin_memory, loader.prefetch_factor) == (4, True, 2)


def test_a_transform_needs_batches_of_the_loader() -> None:
    for options, name in (({"collate_fn": list}, "collate_fn"), ({"batch_size": None}, "batch_size=None")):
        with pytest.raises(ValueError, match=f"got both transform and {name}"):
            DataLoader([1, 2], transform=lambda images: images, **options)


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        return iter([(np.ones(2) * i, i) for i in range(5)])


def test_an_iterable_dataset() -> None:
    for _ in range(2):
        assert [labels.tolist() for _, labels in DataLoader(Stream(), 2)] == [[0, 1], [2, 3], [4]]
    assert [labels.tolist() for _, labels in DataLoader(Stream(), 2, drop_last=True)] == [[0, 1], [2, 3]]
    assert [int(label.item()) for _, label in DataLoader(Stream(), None)] == [0, 1, 2, 3, 4]
    assert [len(batch) for batch in DataLoader(Stream(), 3, collate_fn=list)] == [3, 2]
    doubled = DataLoader(Stream(), 5, transform=lambda images, generator: images * 2)
    assert next(iter(doubled))[0].tolist() == [[2.0 * i] * 2 for i in range(5)]
    for options in ({"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}):
        with pytest.raises(
            ValueError, match=r"dataset is an IterableDataset, which determines the order of its samples"
        ):
            DataLoader(Stream(), **options)
    with pytest.raises(TypeError, match="has no len"):
        len(DataLoader(Stream(), 2))


def test_the_sampler_that_decides() -> None:
    samples = list(range(5))
    weighted = WeightedRandomSampler([1, 0, 0, 0, 1], 8)
    loader = DataLoader(samples, 4, sampler=weighted)
    assert loader.sampler is weighted
    assert {n for batch in loader for n in batch.tolist()} <= {0, 4}
    shuffled = DataLoader(samples, 5, shuffle=True, seed=3)
    assert len(shuffled.sampler) == 5
    assert shuffled.sampler.tolist() == next(iter(shuffled)).tolist()
    assert DataLoader(samples).sampler.tolist() == samples


def test_a_run_goes_on_within_an_epoch_of_a_sampler() -> None:
    samples = list(range(10))
    loader = DataLoader(samples, 2, sampler=Backwards(10))
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [batch.tolist() for batch in batches]
    again = DataLoader(samples, 2, sampler=Backwards(10))
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == rest
    assert next(batch.tolist() for batch in again) == [9, 8]


def test_ranks_share_the_batches_of_a_sampler() -> None:
    loaders = [DataLoader(list(range(7)), 4, sampler=Backwards(7), shard=(rank, 2)) for rank in range(2)]
    assert [[batch.tolist() for batch in loader] for loader in loaders] == [[[6, 5], [2]], [[4, 3], [1, 0]]]


def test_generators_of_minorm_draw() -> None:
    def drawn(make: Any) -> Any:
        return list(make(mn.Generator().manual_seed(3)))

    for make in (
        lambda g: SubsetRandomSampler(range(20), generator=g),
        lambda g: WeightedRandomSampler([1.0] * 9, 20, generator=g),
        lambda g: mn.data.RandomSampler(range(20), generator=g),
        lambda g: mn.data.random_split(range(20), [10, 10], generator=g)[0],
        lambda g: [batch.tolist() for batch in DataLoader(range(20), 5, shuffle=True, generator=g)],
    ):
        assert drawn(make) == drawn(make)


def test_lists_of_a_size() -> None:
    assert list(batched(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(batched(range(5), 2, True)) == list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    assert list(batched([], 2, False)) == []
