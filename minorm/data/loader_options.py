"""Checks the DataLoader's arguments, except those that decide the order.

PyTorch's DataLoader starts processes that read ahead. This DataLoader starts threads (ahead.py), so arguments for
processes are checked as in PyTorch, but have no effect.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MOST_WORKERS = 1024  # each is a thread
WORKERS = ("num_workers", "timeout", "multiprocessing_context", "prefetch_factor", "persistent_workers")


def check_workers(
    num_workers: Any, timeout: Any, multiprocessing_context: Any, prefetch_factor: Any, persistent_workers: Any
) -> None:
    """Raise ValueError for numbers below 0, and for settings of workers if num_workers=0. PyTorch does so too."""
    for name, value in (("num_workers", num_workers), ("timeout", timeout)):
        if not isinstance(value, (int, float, np.number)) or isinstance(value, bool) or value < 0:
            raise ValueError(f"DataLoader: {name}={value!r}; expected a number of at least 0")
    if not isinstance(num_workers, (int, np.integer)):
        raise ValueError(f"DataLoader: num_workers={num_workers!r}; expected an int of at least 0")
    if num_workers > MOST_WORKERS:
        raise ValueError(f"DataLoader: num_workers={num_workers}; expected at most {MOST_WORKERS}")
    if prefetch_factor is not None and (not isinstance(prefetch_factor, (int, np.integer)) or prefetch_factor < 1):
        raise ValueError(f"DataLoader: prefetch_factor={prefetch_factor!r}; expected an int of at least 1")
    words = {
        "prefetch_factor": prefetch_factor is not None,
        "persistent_workers": persistent_workers,
        "multiprocessing_context": multiprocessing_context is not None,
    }
    for name, said in words.items():
        if said and num_workers == 0:
            raise ValueError(f"DataLoader: {name} is for workers, but num_workers is 0; expected num_workers above 0")


def check_functions(transform: Any, collate_fn: Any, worker_init_fn: Any, single: bool) -> None:
    """Check that the arguments are functions.

    Raises TypeError for an argument that is not a function. Raises ValueError if a transform is given but the loader
    does not collate samples itself.
    """
    if transform is not None and not callable(transform):
        raise TypeError(
            f"DataLoader: transform is {type(transform).__name__}; expected a function transform(images, generator)"
        )
    for name, given in (("collate_fn", collate_fn), ("worker_init_fn", worker_init_fn)):
        if given is not None and not callable(given):
            raise TypeError(f"DataLoader: {name} is {type(given).__name__}; expected a function")
    if transform is not None and (collate_fn is not None or single):
        other = "collate_fn" if collate_fn is not None else "batch_size=None"
        raise ValueError(f"DataLoader: got both transform and {other}; expected one of them, because transform needs "
                         "batches that the loader collates; apply the transform in the dataset or in collate_fn "
                         "instead")  # fmt: skip


def check_seed(seed: Any, generator: Any, shard: tuple[int, int], draws: str) -> None:
    """Check the seed.

    Raises ValueError if it is invalid, if a generator is given too, or if it is missing although several ranks must
    draw the same order.
    """
    if seed is not None and (not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0):
        raise ValueError(f"DataLoader: seed={seed!r}; expected a non-negative int")
    if seed is not None and generator is not None:
        raise ValueError("DataLoader: got both seed and generator; expected one of them")
    if shard[1] > 1 and seed is None and draws:
        raise ValueError(
            f"DataLoader: shard={shard} with {draws} and seed=None; expected a seed, because each rank would draw "
            "other numbers"
        )


def check_shard(shard: Any) -> tuple[int, int]:
    """Return (rank, size) as ints; raise ValueError for anything else."""
    whole = isinstance(shard, (tuple, list)) and all(isinstance(n, (int, np.integer)) for n in shard)
    if not whole or len(shard) != 2 or not 0 <= shard[0] < shard[1]:
        raise ValueError(f"DataLoader: shard={shard!r}; expected (rank, size) with 0 <= rank < size")
    return int(shard[0]), int(shard[1])
