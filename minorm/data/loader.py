"""DataLoader yields a dataset in batches of Tensors, in an order that three integers determine.

Every random choice is a function of (seed, epoch, batch). The order of an epoch is drawn from a generator made from
(seed, epoch). The transforms of a batch draw from another generator, made from (seed, epoch, batch). There is no other
state, so a run that stops anywhere resumes with the batches that would have come next.

The ranks of a distributed run share each batch: every rank draws the same order for the epoch and takes its own rows.
So all ranks have the same number of steps, and no sample is left out or seen twice.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from textwrap import indent
from typing import Any

import numpy as np

from minorm.data import loader_options
from minorm.data.ahead import ahead
from minorm.data.collate import stacked, tensors, without_rows
from minorm.data.dataset import read_batch, read_samples
from minorm.data.sample_order import Order
from minorm.data.settings_repr import brief
from minorm.data.transforms.compose import applied
from minorm.data.transforms.transform import Transform
from minorm.data.turns import Turns
from minorm.devices import generators
from minorm.support.argument_errors import Checked, kind_of
from minorm.support.documented import documented

PREFETCH = 2  # batches that each worker reads ahead
DECIDED = frozenset({"dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"})
CHANGEABLE = frozenset(
    {*loader_options.WORKERS, "transform", "collate_fn", "worker_init_fn", "shard", "seed", "generator"}
)


@documented(
    {},
    dataset="an ArrayDataset, any object with `len` and `dataset[i]`, or an IterableDataset, which determines the "
    "order of its samples",
    batch_size="the number of samples per batch; the last batch of an epoch may be smaller. None gives single samples "
    "instead of batches",
    shuffle="True draws a new order for each epoch; None and False keep the dataset's order",
    sampler="an iterable of positions that decides the order of an epoch itself",
    batch_sampler="an iterable of lists of positions; each list makes a batch",
    num_workers="the number of threads that read batches ahead, at most 1024. It does not change the batches, because "
    "each batch has its own random numbers. With more than one, several threads read from the dataset at the same "
    "time",
    collate_fn="a function from a list of samples to a batch; None is default_collate",
    pin_memory="accepted, without effect: copies to a GPU always pass through page-locked buffers, and "
    "`mn.data.prefetch(loader)` copies ahead",
    drop_last="True leaves out the last batch if it is smaller",
    timeout="seconds to wait for a batch that is read ahead; 0 is no limit",
    worker_init_fn="a function that each thread calls first, as worker_init_fn(worker)",
    multiprocessing_context="accepted, without effect: workers are threads",
    generator="a minorm.Generator or NumPy generator that draws the seed; None is the generator that "
    "minorm.manual_seed sets",
    prefetch_factor="how many batches each worker reads ahead; None is 2",
    persistent_workers="accepted, without effect",
    pin_memory_device="accepted, without effect",
    in_order="accepted, without effect: batches always come in order",
    transform="a function `transform(images, generator) -> images` for the first array of every batch, such as one of "
    "minorm.data.transforms; samples must not be dicts",
    seed="the seed of all orders and transforms; None draws a seed from generator",
    shard="(rank, size) of a distributed run: of each batch of n samples this loader gives the rows from n * rank // "
    "size to n * (rank + 1) // size, which may be no rows. With size > 1, shuffling and transforms need a seed",
)
class DataLoader(Checked):
    """Yields a dataset in batches: `for images, labels in loader`. Each call of `iter(loader)` begins a new epoch.

    Samples are collated: arrays and numbers are stacked to Tensors; dicts, tuples and lists of them become dicts,
    tuples and lists of Tensors. Raises ValueError for arguments that contradict each other.

    `state_dict()` gives the current position in the epoch. A batch counts as soon as the loader yields it, so take the
    state between a training step and the next batch. After `load_state_dict`, the next `iter(loader)` resumes at that
    position. If the loader has a custom sampler, this sampler must give the same order again.

    Example:
        >>> dataset = mn.data.TensorDataset(mn.arange(5))
        >>> [x.tolist() for (x,) in mn.data.DataLoader(dataset, batch_size=2)]
        [[0, 1], [2, 3], [4]]
        >>> loader = mn.data.DataLoader(dataset, batch_size=2, shuffle=True, drop_last=True, seed=0)
        >>> len(loader), sorted(set(x.shape for (x,) in loader))
        (2, [(2,)])
    """

    @classmethod
    def _check_call(cls, args: tuple[Any, ...]) -> None:
        """Raise TypeError if images and labels are given in place of a dataset."""
        if len(args) > 1 and getattr(args[1], "shape", None):
            raise TypeError(f"DataLoader: batch_size is a {kind_of(args[1])} of shape {args[1].shape}; expected one "
                            "dataset, and then an int: DataLoader(TensorDataset(x, y), batch_size=32)")  # fmt: skip

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Transform | None = None,
        seed: int | None = None,
        shard: tuple[int, int] = (0, 1),
    ) -> None:
        self.order = Order(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last)
        loader_options.check_workers(num_workers, timeout, multiprocessing_context, prefetch_factor, persistent_workers)
        loader_options.check_functions(transform, collate_fn, worker_init_fn, self.order.single)
        self.shard = loader_options.check_shard(shard)
        draws = "shuffle=True" if shuffle else "a transform" if transform is not None else ""
        loader_options.check_seed(seed, generator, self.shard, draws)
        self.dataset, self.batch_size, self.shuffle = dataset, self.order.batch_size, self.order.shuffle
        self.batch_sampler, self.drop_last = batch_sampler, self.order.drop_last
        self.collate_fn, self.transform, self.generator = collate_fn, transform, generator
        self.num_workers, self.pin_memory, self.timeout = num_workers, pin_memory, timeout
        self.worker_init_fn, self.multiprocessing_context = worker_init_fn, multiprocessing_context
        self.prefetch_factor, self.persistent_workers = prefetch_factor, persistent_workers
        self.pin_memory_device, self.in_order = pin_memory_device, in_order
        seeded = seed is not None
        if seed is None and draws:
            seed = int(generators.source(generator).integers(1 << 63))
        self.seed = 0 if seed is None else int(seed)
        self._short = True  # whether samples take little time, as far as known (turns.py)
        self._place = (0, 0)  # (epoch, batch) that the iteration has reached
        self._next = (0, 0)  # (epoch, batch) at which the next `iter` starts
        self._seeded = seeded  # whether seed was given; from now on, changes of settings are checked

    def __setattr__(self, name: str, value: Any) -> None:
        if name in CHANGEABLE | DECIDED and "_seeded" in self.__dict__:
            self._change(name, value)
        else:
            object.__setattr__(self, name, value)

    def _change(self, name: str, value: Any) -> None:
        """Change a setting, and check all settings together, as the constructor does."""
        if name in DECIDED:
            raise ValueError(
                f"DataLoader.{name} = {brief(value)}: the order of samples is decided when the loader is made; "
                f"expected a new DataLoader with {name}={brief(value)}"
            )
        now = {key: self.__dict__[key] for key in CHANGEABLE} | {name: value}
        seed = now["seed"] if self._seeded or name == "seed" else None
        loader_options.check_workers(*(now[key] for key in loader_options.WORKERS))
        loader_options.check_functions(now["transform"], now["collate_fn"], now["worker_init_fn"], self.order.single)
        draws = "shuffle=True" if self.shuffle else "a transform" if now["transform"] is not None else ""
        shard = loader_options.check_shard(now["shard"])
        loader_options.check_seed(seed, now["generator"], shard, draws)
        drew = self.shuffle or self.transform is not None
        if seed is None and draws and (name in ("seed", "generator") or not drew):
            now["seed"] = int(generators.source(now["generator"]).integers(1 << 63))
        elif seed is None and name == "seed":
            now["seed"] = 0
        self.__dict__.update(now, shard=shard, _seeded=seed is not None)

    def __len__(self) -> int:
        """Return the number of batches per epoch; raise TypeError if a sampler has no length.

        If batch_size is None, the result is the number of samples.
        """
        return len(self.order)

    @property
    def sampler(self) -> Any:
        """The given sampler or, if no sampler was given, the positions of this epoch's samples in their order."""
        own = self.order.given is None and not self.order.streams
        return self.order.positions(self.seed, self.epoch) if own else self.order.given

    def __iter__(self) -> Iterator[Any]:
        epoch, first = self._next
        self._place = (epoch, first)
        self._next = (epoch + 1, 0)
        return self._batches(epoch, first)

    def _batches(self, epoch: int, first: int) -> Iterator[Any]:
        chosen = enumerate(itertools.islice(self.order.epoch(self.seed, epoch), first, None), first)
        turns = Turns(self._short) if self.num_workers else None
        tasks = (functools.partial(self._read, positions, epoch, index, turns) for index, positions in chosen)
        with contextlib.closing(self._results(tasks, turns)) as batches:
            for index, batch in enumerate(batches, first):
                self._place = (epoch, index + 1)
                self._short = turns is None or turns.taken
                yield batch
        self._place = (epoch + 1, 0)

    def _results(self, tasks: Iterator[Callable[[], Any]], turns: Turns | None) -> Generator[Any, None, None]:
        """Yield the results of the tasks in order. If there are workers, they run the tasks ahead."""
        if turns is None:
            yield from (task() for task in tasks)
            return
        workers = int(self.num_workers)
        depth = workers * (self.prefetch_factor or PREFETCH)
        yield from ahead(tasks, workers, depth, self.timeout, self.worker_init_fn, turns.turn)

    def _read(self, chosen: Any, epoch: int, index: int, turns: Turns | None) -> Any:
        with contextlib.nullcontext() if turns is None else turns.of(1 if self.order.single else len(chosen)):
            return self._single(chosen) if self.order.single else self._batch(chosen, epoch, index)

    def _sample(self, chosen: Any) -> Any:
        return chosen if self.order.streams else self.dataset[int(chosen)]

    def _single(self, chosen: Any) -> Any:
        return (self.collate_fn or tensors)(self._sample(chosen))

    def _batch(self, whole: Any, epoch: int, index: int) -> Any:
        mine = self._rows(whole)
        if self.collate_fn is not None:
            return self.collate_fn(
                list(mine) if self.order.streams else read_samples(self.dataset, list(map(int, mine)))
            )
        shown = mine if len(mine) else whole[:1]  # one sample shows the batch's form
        batch = stacked(shown) if self.order.streams else read_batch(self.dataset, np.asarray(shown))
        if self.transform is not None:
            rank, size = self.shard
            stream = (self.seed, epoch, index, rank) if size > 1 else (self.seed, epoch, index)
            batch = self._transformed(batch, np.random.default_rng(stream))
        return tensors(batch if len(mine) else without_rows(batch))

    def _rows(self, indices: Any) -> Any:
        """Return this rank's share of a batch."""
        rank, size = self.shard
        return indices[len(indices) * rank // size : len(indices) * (rank + 1) // size]

    def _transformed(self, batch: Any, generator: np.random.Generator) -> Any:
        assert self.transform is not None
        if isinstance(batch, Mapping):
            raise TypeError(
                "DataLoader: transform changes the first array of a sample, but the samples are dicts with the keys "
                f"{list(batch)}; expected tuples; for dicts, apply the transform in the dataset, or to the batches "
                "that the loader gives"
            )
        if not isinstance(batch, (tuple, list)):
            return applied(self.transform, batch, generator)
        images = applied(self.transform, batch[0], generator)
        if hasattr(batch, "_fields"):
            return type(batch)(images, *batch[1:])
        return type(batch)((images, *batch[1:]))

    @property
    def epoch(self) -> int:
        """The number of the current epoch, counted from 0. Between two epochs, it is the number of the next epoch."""
        return self._place[0]

    def state_dict(self) -> dict[str, int]:
        """Return the position that the iteration has reached, as a dict of integers."""
        epoch, batch = self._place
        return {
            "seed": self.seed,
            "epoch": epoch,
            "batch": batch,
            "batch_size": self.batch_size or 0,
            "length": len(self.dataset) if hasattr(self.dataset, "__len__") else 0,
        }

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Resume at the position in `state`: the next call of `iter(loader)` yields the rest of its epoch.

        If the position is within an epoch, the dataset's length and the batch size must not have changed since
        `state_dict` was called.
        """
        expected = self.state_dict()
        if not isinstance(state, Mapping):
            raise ValueError(f"DataLoader.load_state_dict: the state is a {kind_of(state)}; "
                             "expected a dict, as state_dict() gives")  # fmt: skip
        sizes = all(isinstance(value, (int, np.integer)) and value >= 0 for value in state.values())
        if state.keys() != expected.keys() or not sizes:
            raise ValueError(f"DataLoader.load_state_dict: got {dict(state)}; "
                             f"expected non-negative ints for {list(expected)}")  # fmt: skip
        for name in ("batch_size", "length"):
            if state["batch"] and state[name] != expected[name]:
                raise ValueError(f"DataLoader.load_state_dict: the state was taken within an epoch with "
                                 f"{name}={state[name]}; this loader has {name}={expected[name]}")  # fmt: skip
        epoch, batch = int(state["epoch"]), int(state["batch"])
        try:
            over = batch >= len(self)
        except TypeError:  # the length is unknown: the rest of the epoch may be empty
            over = False
        place = (epoch + 1, 0) if over else (epoch, batch)
        vars(self).update(seed=int(state["seed"]), _place=place, _next=place)  # in one step, which Ctrl-C cannot split

    def __repr__(self) -> str:
        order = self.order
        words = {"batch_size": self.batch_size, "shuffle": self.shuffle, "sampler": order.given,
                 "batch_sampler": self.batch_sampler, "drop_last": self.drop_last, "collate_fn": self.collate_fn,
                 "transform": self.transform, "shard": None if self.shard == (0, 1) else self.shard}  # fmt: skip
        said = [f"{name}={brief(value)}" for name, value in words.items() if value is not None and value is not False]
        if order.shuffle or self.transform is not None:
            said.append(f"seed={self.seed}")
        said.insert(0, brief(self.dataset))
        line = f"DataLoader({', '.join(said)})"
        if len(line) <= 100 and "\n" not in line:
            return line
        return "\n".join(["DataLoader(", *(indent(f"{part},", "    ") for part in said), ")"])
