"""Decides which samples of a dataset come in which batch. The order is the DataLoader's own or that of a sampler.

own            0, 1, 2 ..., or a permutation drawn from (seed, epoch)
sampler        an iterable of positions, cut into batches
batch_sampler  an iterable of lists of positions; each list is a batch
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from minorm.data.dataset import Array, IterableDataset


class Order:
    """The order of a DataLoader's samples. The constructor checks that the arguments go together.

    Raises ValueError for arguments that contradict each other, and TypeError for a sampler that is not iterable.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None,
        shuffle: bool | None,
        sampler: Iterable[int] | None,
        batch_sampler: Iterable[Sequence[int]] | None,
        drop_last: bool,
    ) -> None:
        self.dataset, self.streams = dataset, isinstance(dataset, IterableDataset)
        self.given, self.batch_sampler = sampler, batch_sampler
        _check_kind(dataset, self.streams, shuffle, sampler, batch_sampler)
        _check_together(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.batch_size = None if batch_size is None or batch_sampler is not None else int(batch_size)
        self.single = self.batch_size is None and batch_sampler is None  # samples come one by one
        self.shuffle, self.drop_last = bool(shuffle), bool(drop_last)

    def __len__(self) -> int:
        """Return the number of batches per epoch; raise TypeError if the sampler or dataset has no length."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        count = len(self.dataset if self.given is None else self.given)  # type: ignore[arg-type]
        size = self.batch_size or 1
        return count // size if self.drop_last else -(-count // size)

    def positions(self, seed: int, epoch: int) -> Array:
        """Return the DataLoader's own order for an epoch."""
        count = len(self.dataset)
        return np.random.default_rng((seed, epoch)).permutation(count) if self.shuffle else np.arange(count)

    def epoch(self, seed: int, epoch: int) -> Iterator[Any]:
        """Return an epoch's positions, in batches or singly. For an IterableDataset, return the samples themselves."""
        if self.batch_sampler is not None:
            return iter(self.batch_sampler)
        if self.given is None and not self.streams:
            return self._slices(self.positions(seed, epoch))
        source: Iterator[Any] = iter(self.dataset) if self.given is None else map(int, self.given)
        return source if self.batch_size is None else batched(source, self.batch_size, self.drop_last)

    def _slices(self, order: Array) -> Iterator[Any]:
        size = self.batch_size
        return iter(order.tolist()) if size is None else (order[i * size : (i + 1) * size] for i in range(len(self)))


def batched(items: Iterable[Any], size: int, drop_last: bool) -> Iterator[list[Any]]:
    """Yield lists of `size` items; a shorter last list is left out if `drop_last` is True."""
    items = iter(items)
    while batch := list(itertools.islice(items, size)):
        if len(batch) == size or not drop_last:
            yield batch


def _check_kind(dataset: Any, streams: bool, shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    if streams:
        if shuffle or sampler is not None or batch_sampler is not None:
            raise ValueError(
                "DataLoader: dataset is an IterableDataset, which determines the order of its samples; expected no "
                "shuffle, sampler or batch_sampler"
            )
    elif not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise TypeError(
            f"DataLoader: dataset is a {type(dataset).__name__}; expected an object with len(dataset) and dataset[i]; "
            "put arrays into an ArrayDataset, and the samples of a generator into a list"
        )
    for name, given in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if given is not None and not hasattr(given, "__iter__"):
            raise TypeError(f"DataLoader: {name} is a {type(given).__name__}; expected an iterable of positions")


def _check_together(batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: Any) -> None:
    if batch_size is not None and (
        not isinstance(batch_size, (int, np.integer)) or isinstance(batch_size, bool) or batch_size < 1
    ):
        raise ValueError(f"DataLoader: batch_size={batch_size!r}; expected an int of at least 1")
    if sampler is not None and shuffle:
        raise ValueError(
            "DataLoader: got both sampler and shuffle=True; expected one of them, because both determine the order"
        )
    if batch_sampler is not None:
        others = {"batch_size": batch_size != 1, "shuffle": shuffle, "sampler": sampler is not None,
                  "drop_last": drop_last}  # fmt: skip
        if clash := [name for name, said in others.items() if said]:
            raise ValueError(f"DataLoader: got both batch_sampler and {', '.join(clash)}; expected only batch_sampler, "
                             "because it determines the batches")  # fmt: skip
    elif batch_size is None and drop_last:
        raise ValueError("DataLoader: batch_size=None with drop_last=True; expected a batch_size or drop_last=False, "
                         "because without a batch_size there is no last batch")  # fmt: skip
