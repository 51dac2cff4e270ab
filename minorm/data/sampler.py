"""Samplers: which samples of a dataset come in which order, one at a time or a batch at a time.

All draw from minorm's generator, or from one that is handed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from minorm import random
from minorm.data.order import batched
from minorm.data.showing import Shown


class Sampler(Shown):
    """Base: a subclass writes `__iter__`, and `__len__` where it knows."""

    def __init__(self, data_source: Any = None) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class SequentialSampler(Sampler):
    """0, 1, 2 ..."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """All in random order; or num_samples of them, with replacement the same one perhaps several times."""

    def __init__(
        self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: Any = None
    ) -> None:
        super().__init__(data_source)
        self.replacement, self.generator = replacement, generator
        self.num_samples = len(data_source) if num_samples is None else num_samples
        if self.num_samples < 0:
            raise ValueError(f"RandomSampler: num_samples={num_samples}; expected at least 0")

    def __iter__(self) -> Iterator[int]:
        source, count = random.source(self.generator), len(self.data_source)
        if self.replacement:
            yield from source.integers(0, count, self.num_samples).tolist()
            return
        for start in range(0, self.num_samples, max(1, count)):
            yield from source.permutation(count)[: self.num_samples - start].tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """These indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        super().__init__()
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        order = random.source(self.generator).permutation(len(self.indices))
        return iter([int(self.indices[i]) for i in order])

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """num_samples draws of 0 to len(weights) - 1, each with the probability that its weight says."""

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None
    ) -> None:
        super().__init__()
        self.weights = np.asarray(weights, np.float64).reshape(-1)
        if not (self.weights >= 0).all() or not self.weights.sum() > 0:
            raise ValueError("WeightedRandomSampler: weights hold numbers below 0, or only zeros; expected weights")
        if num_samples < 1 or (not replacement and num_samples > np.count_nonzero(self.weights)):
            raise ValueError(f"WeightedRandomSampler: num_samples={num_samples} of {len(self.weights)} weights; "
                             "expected at least 1, and without replacement no more than there are")  # fmt: skip
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        source = random.source(self.generator)
        share = self.weights / self.weights.sum()
        return iter(source.choice(len(share), self.num_samples, self.replacement, share).tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of batch_size indices of another sampler; the last one may be shorter, or is left out with drop_last."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        super().__init__()
        if not isinstance(batch_size, (int, np.integer)) or isinstance(batch_size, bool) or batch_size < 1:
            raise ValueError(f"BatchSampler: batch_size={batch_size!r}; expected an int of at least 1")
        self.sampler, self.batch_size, self.drop_last = sampler, int(batch_size), drop_last

    def __iter__(self) -> Iterator[list[int]]:
        return batched(map(int, self.sampler), self.batch_size, self.drop_last)

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
