"""DataLoader: a dataset in batches of Tensors, in an order that three integers decide.

Every random choice is a function of (seed, epoch, batch): the order of an epoch is drawn from a generator made
from (seed, epoch), the transforms of one batch from one made from (seed, epoch, batch). Nothing else is remembered,
so a run that stops anywhere goes on with the batches it would have seen.

The ranks of a distributed run share each batch: every one draws the order of the whole epoch, as any of them would, and
takes its rows. So all have the same number of steps, and no sample is left out or seen twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from minorm import random
from minorm.data.collate import tensors, without_rows
from minorm.data.dataset import Array, read_batch
from minorm.data.transforms import Transform
from minorm.mistakes import Checked


class DataLoader(Checked):
    """Iterates over a dataset in batches: `for images, labels in loader`. Each `iter` is a new epoch.

    dataset     an ArrayDataset, or any object with `len` and `dataset[i]`, whose samples are collated: arrays and
                numbers are stacked; dicts, tuples and lists of them come as dicts, tuples and lists of Tensors
    batch_size  samples a batch; the last one of an epoch may be smaller
    shuffle     a new random order each epoch
    drop_last   leave out the last batch if it is smaller
    transform   `transform(images, generator) -> images` on the first array of every batch (minorm.data.transforms);
                samples must not be dicts then
    seed        decides every order and transform; without it, it is drawn from `generator`, or from the generator
                that `manual_seed` sets
    shard       (rank, size) of a distributed run: of each batch of n samples the rows n * rank // size to
                n * (rank + 1) // size alone, which may be none. Shuffling and transforms need a seed then

    `state_dict()` holds the place reached: a batch counts as soon as it is handed out, so take the state between a
    training step and the next batch. After `load_state_dict` the next `iter` goes on from there.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        transform: Transform | None = None,
        seed: int | None = None,
        generator: np.random.Generator | None = None,
        shard: tuple[int, int] = (0, 1),
    ) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise TypeError(
                f"DataLoader: dataset is a {type(dataset).__name__}; expected an object with len(dataset) and "
                "dataset[i]; put arrays into an ArrayDataset, and what a generator yields into a list"
            )
        if not isinstance(batch_size, (int, np.integer)) or isinstance(batch_size, bool) or batch_size < 1:
            raise ValueError(f"DataLoader: batch_size={batch_size!r}; expected an int of at least 1")
        if seed is not None and (not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0):
            raise ValueError(f"DataLoader: seed={seed!r}; expected a non-negative int")
        if seed is not None and generator is not None:
            raise ValueError("DataLoader: got both seed and generator; expected one of them")
        if transform is not None and not callable(transform):
            raise TypeError(
                f"DataLoader: transform is {type(transform).__name__}; expected transform(images, generator)"
            )
        rank, size = _check_shard(shard)
        if size > 1 and seed is None and (shuffle or transform is not None):
            raise ValueError(
                f"DataLoader: shard={shard} with {'shuffle=True' if shuffle else 'a transform'} and seed=None: each "
                "rank would draw another order; expected a seed"
            )
        self.shard = (rank, size)
        self.dataset = dataset
        self.batch_size = int(batch_size)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.transform = transform
        if seed is None and (shuffle or transform is not None):
            seed = int((generator or random.generator()).integers(1 << 63))
        self.seed = 0 if seed is None else int(seed)
        self._place = (0, 0)  # (epoch, batch) that the iteration has reached
        self._next = (0, 0)  # (epoch, batch) that the next `iter` starts at

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.dataset) // self.batch_size if self.drop_last else -(-len(self.dataset) // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        epoch, first = self._next
        self._place = (epoch, first)
        self._next = (epoch + 1, 0)
        return self._batches(epoch, first)

    def _batches(self, epoch: int, first: int) -> Iterator[Any]:
        order = self._order(epoch)
        for index in range(first, len(self)):
            whole = order[index * self.batch_size : (index + 1) * self.batch_size]
            mine = self._rows(whole)
            batch = read_batch(self.dataset, mine if len(mine) else whole[:1])  # any sample shows the batch's form
            if self.transform is not None:
                rank, size = self.shard
                stream = (self.seed, epoch, index, rank) if size > 1 else (self.seed, epoch, index)
                batch = self._transformed(batch, np.random.default_rng(stream))
            self._place = (epoch, index + 1)
            yield tensors(batch if len(mine) else without_rows(batch))
        self._place = (epoch + 1, 0)

    def _rows(self, indices: Array) -> Array:
        """This rank's share of a batch."""
        rank, size = self.shard
        return indices[len(indices) * rank // size : len(indices) * (rank + 1) // size]

    def _order(self, epoch: int) -> Array:
        count = len(self.dataset)
        return np.random.default_rng((self.seed, epoch)).permutation(count) if self.shuffle else np.arange(count)

    def _transformed(self, batch: Any, generator: np.random.Generator) -> Any:
        assert self.transform is not None
        if isinstance(batch, Mapping):
            raise TypeError(
                f"DataLoader: transform changes the first array of a sample, and the samples are dicts with the keys "
                f"{list(batch)}; expected tuples; or transform in the dataset, or the batch after it was read"
            )
        if not isinstance(batch, (tuple, list)):
            return self.transform(batch, generator)
        images = self.transform(batch[0], generator)
        if hasattr(batch, "_fields"):
            return type(batch)(images, *batch[1:])
        return type(batch)((images, *batch[1:]))

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or, between two, the one that comes next; the first is 0."""
        return self._place[0]

    def state_dict(self) -> dict[str, int]:
        """The place that the iteration has reached, in plain integers."""
        epoch, batch = self._place
        return {
            "seed": self.seed,
            "epoch": epoch,
            "batch": batch,
            "batch_size": self.batch_size,
            "length": len(self.dataset),
        }

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from the place of `state_dict`: the next `iter` yields what is left of that epoch.

        In the middle of an epoch the dataset's length and the batch size must be the same as then.
        """
        expected = self.state_dict()
        sizes = all(isinstance(value, (int, np.integer)) and value >= 0 for value in state.values())
        if state.keys() != expected.keys() or not sizes:
            raise ValueError(f"DataLoader.load_state_dict: got {dict(state)}; "
                             f"expected non-negative ints for {list(expected)}")  # fmt: skip
        for name in ("batch_size", "length"):
            if state["batch"] and state[name] != expected[name]:
                raise ValueError(f"DataLoader.load_state_dict: the state was taken within an epoch with "
                                 f"{name}={state[name]}; this loader has {name}={expected[name]}")  # fmt: skip
        self.seed = int(state["seed"])
        epoch, batch = int(state["epoch"]), int(state["batch"])
        self._place = self._next = (epoch, batch) if batch < len(self) else (epoch + 1, 0)


def _check_shard(shard: Any) -> tuple[int, int]:
    whole = isinstance(shard, (tuple, list)) and all(isinstance(n, (int, np.integer)) for n in shard)
    if not whole or len(shard) != 2 or not 0 <= shard[0] < shard[1]:
        raise ValueError(f"DataLoader: shard={shard!r}; expected (rank, size) with 0 <= rank < size")
    return int(shard[0]), int(shard[1])
