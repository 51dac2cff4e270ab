"""Samplers decide the order of a dataset's samples, one at a time or a batch at a time.

Random samplers draw from minorm's generator, or from the `generator` argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from minorm.data.argument_texts import SAMPLER
from minorm.data.sample_order import batched
from minorm.data.settings_repr import Shown
from minorm.devices import generators
from minorm.support.documented import documented


@documented(SAMPLER)
class Sampler(Shown):
    """Base class of samplers: a subclass defines `__iter__` and, if the length is known, `__len__`.

    Example:
        >>> class Backwards(mn.data.Sampler):
        ...     def __iter__(self):
        ...         return reversed(range(len(self.data_source)))
        >>> list(Backwards([7, 8, 9]))
        [2, 1, 0]
    """

    def __init__(self, data_source: Any = None) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


@documented(SAMPLER)
class SequentialSampler(Sampler):
    """Yields the indices 0, 1, 2 ... in order.

    Example:
        >>> list(mn.data.SequentialSampler([7, 8, 9]))
        [0, 1, 2]
    """

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


@documented(SAMPLER, num_samples="the number of indices to draw; None is the number of samples")
class RandomSampler(Sampler):
    """Yields all indices, or num_samples indices, in random order. With replacement=True an index may be repeated.

    Example:
        >>> sorted(mn.data.RandomSampler([7, 8, 9]))
        [0, 1, 2]
    """

    def __init__(
        self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: Any = None
    ) -> None:
        super().__init__(data_source)
        self.replacement, self.generator = replacement, generator
        self.num_samples = num_samples

    @property
    def num_samples(self) -> int:
        """The number of indices to yield. If you assign None, it becomes the number of samples."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    @num_samples.setter
    def num_samples(self, num_samples: int | None) -> None:
        if num_samples is not None and num_samples < 0:
            raise ValueError(f"RandomSampler: num_samples={num_samples}; expected at least 0")
        self._num_samples = num_samples

    def _made_with(self, name: str, value: Any) -> dict[str, Any]:
        return {**super()._made_with(name, value), "_num_samples": self._num_samples}

    def __iter__(self) -> Iterator[int]:
        source, count = generators.source(self.generator), len(self.data_source)
        if self.replacement:
            yield from source.integers(0, count, self.num_samples).tolist()
            return
        for start in range(0, self.num_samples, max(1, count)):
            yield from source.permutation(count)[: self.num_samples - start].tolist()

    def __len__(self) -> int:
        return self.num_samples


@documented(SAMPLER, indices="the indices")
class SubsetRandomSampler(Sampler):
    """Yields the given indices in random order.

    Example:
        >>> sorted(mn.data.SubsetRandomSampler([4, 2]))
        [2, 4]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        super().__init__()
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        order = generators.source(self.generator).permutation(len(self.indices))
        return iter([int(self.indices[i]) for i in order])

    def __len__(self) -> int:
        return len(self.indices)


@documented(SAMPLER, weights="a number of at least 0 for each index", num_samples="the number of draws, at least 1")
class WeightedRandomSampler(Sampler):
    """Yields num_samples indices from 0 to len(weights) - 1; index i has the probability weights[i] / sum(weights).

    If a sample's weight is 1 / (count of its class), rare classes come as often as frequent ones. Raises ValueError for
    negative weights. Raises ValueError if replacement=False and fewer than num_samples weights are above 0.

    Example:
        >>> list(mn.data.WeightedRandomSampler([0.0, 1.0], num_samples=3))
        [1, 1, 1]
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None
    ) -> None:
        super().__init__()
        self.weights = np.asarray(weights, np.float64).reshape(-1)
        if not (self.weights >= 0).all() or not self.weights.sum() > 0:
            raise ValueError(
                "WeightedRandomSampler: weights has numbers below 0, or only zeros; expected numbers of "
                "at least 0, with a sum above 0"
            )
        if num_samples < 1 or (not replacement and num_samples > np.count_nonzero(self.weights)):
            raise ValueError(f"WeightedRandomSampler: num_samples={num_samples} of {len(self.weights)} weights; "
                             "expected at least 1, and without replacement at most the number of weights "
                             "above 0")  # fmt: skip
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        source = generators.source(self.generator)
        share = self.weights / self.weights.sum()
        return iter(source.choice(len(share), self.num_samples, self.replacement, share).tolist())

    def __len__(self) -> int:
        return self.num_samples


@documented(
    {},
    sampler="gives the indices",
    batch_size="the number of indices in a list, at least 1",
    drop_last="True leaves out the last list if it is shorter",
)
class BatchSampler(Sampler):
    """Yields lists of batch_size indices of another sampler; the last list may be shorter.

    Example:
        >>> list(mn.data.BatchSampler(range(5), batch_size=2))
        [[0, 1], [2, 3], [4]]
    """

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
