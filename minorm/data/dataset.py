"""Datasets. A dataset is any object with `len(dataset)` and `dataset[i]`; datasets of arrays also read whole batches.

`read_batch` calls the dataset's method `batch(indices)`, which is faster than a Python loop over samples. If there is
no such method, `read_batch` reads single samples and collates them. It also reads single samples if a subclass
overrides only `__getitem__`, because the inherited `batch` would then give other samples.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from minorm.data.collate import stacked
from minorm.data.settings_repr import Shown, brief
from minorm.devices import dtypes, generators
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
FilePath: TypeAlias = str | os.PathLike[str]


OF_CLASSES = ("classes", "class_to_idx")  # attributes that a Subset takes from its dataset

SampleT_co = TypeVar("SampleT_co", covariant=True)


class Dataset(Shown, Generic[SampleT_co]):
    """Base class of datasets: a subclass defines `__getitem__` and `__len__`. Any class with these methods works.

    Example:
        >>> class Squares(mn.data.Dataset):
        ...     def __getitem__(self, index):
        ...         return index**2
        ...
        ...     def __len__(self):
        ...         return 4
        >>> [batch.tolist() for batch in mn.data.DataLoader(Squares(), batch_size=2)]
        [[0, 1], [4, 9]]
    """

    def __getitem__(self, index: Any) -> SampleT_co:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[SampleT_co]):
    """Base class of datasets that are read from beginning to end: a subclass defines `__iter__`.

    Example:
        >>> class Squares(mn.data.IterableDataset):
        ...     def __iter__(self):
        ...         return (index**2 for index in range(4))
        >>> [batch.tolist() for batch in mn.data.DataLoader(Squares(), batch_size=2)]
        [[0, 1], [4, 9]]
    """

    def __iter__(self) -> Iterator[SampleT_co]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


@documented(
    {},
    arrays="arrays or Tensors with the same first axis, such as images N x C x H x W and labels N",
    scale="the number by which batches of the first array are divided, as float32; None does not divide. With "
    "scale=255, images stay bytes in memory, a quarter of the memory of float32, and batches lie between 0 and 1",
)
class ArrayDataset(Dataset[tuple[Any, ...]]):
    """dataset[i] = (arrays[0][i], arrays[1][i], ...): sample i of arrays of the same length.

    `i` may be a slice: `images, labels = dataset[:]`. Raises ValueError for arrays of different lengths.

    Example:
        >>> dataset = mn.data.ArrayDataset(mn.zeros(10, 1, 8, 8), mn.arange(10))
        >>> image, label = dataset[3]
        >>> len(dataset), image.shape, int(label)
        (10, (1, 8, 8), 3)
    """

    def __init__(self, *arrays: Any, scale: float | None = None) -> None:
        self._arrays = _of_one_length(type(self).__name__, arrays)
        self.scale = scale

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays. You may assign other arrays, all with the same length."""
        return self._arrays

    @arrays.setter
    def arrays(self, arrays: Iterable[Any]) -> None:
        self._arrays = _of_one_length(type(self).__name__, arrays)

    @property
    def scale(self) -> np.float32 | None:
        """The number by which the first array is divided; None if it is not divided."""
        return self._scale

    @scale.setter
    def scale(self, scale: float | None) -> None:
        self._scale = None if scale is None else np.float32(scale)

    def __len__(self) -> int:
        return self.arrays[0].shape[0]

    def __repr__(self) -> str:
        said = [brief(array) for array in self.arrays] + ([] if self.scale is None else [f"scale={self.scale:g}"])
        return f"{type(self).__name__}({', '.join(said)})"

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return self._scaled([array[index] for array in self.arrays])

    def batch(self, indices: Array) -> tuple[Any, ...]:
        """Return the samples at `indices`; make one copy of each array."""
        # NumPy's take accepts only intp, which has 32 bits in a browser.
        places = np.asarray(indices).astype(np.intp, copy=False, casting="same_kind")
        return self._scaled([array.take(places, axis=0) for array in self.arrays])

    def _scaled(self, entries: list[Any]) -> tuple[Any, ...]:
        if self.scale is not None:
            scaled = np.divide(np.asarray(entries[0]), self.scale, dtype=np.float32)
            entries[0] = Tensor(np.asarray(scaled)) if isinstance(entries[0], Tensor) else scaled
        return tuple(entries)


@documented({}, tensors="Tensors with the same first axis")
class TensorDataset(ArrayDataset):
    """dataset[i] = (tensors[0][i], tensors[1][i], ...): sample i of Tensors of the same length.

    Raises ValueError for Tensors of different lengths.

    Example:
        >>> mn.data.TensorDataset(mn.zeros(10, 2), mn.arange(10))[3]
        (tensor([0., 0.]), tensor(3))
    """

    def __init__(self, *tensors: Any) -> None:
        super().__init__(*tensors)
        self._tensors = tensors

    @property
    def tensors(self) -> tuple[Any, ...]:
        """The Tensors. You may assign other Tensors, all with the same length."""
        return self._tensors

    @tensors.setter
    def tensors(self, tensors: Iterable[Any]) -> None:
        tensors = tuple(tensors)
        self.arrays = tensors
        self._tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(self._scaled([tensor[index] for tensor in self._tensors]))


@documented({}, datasets="the datasets, with a length")
class ConcatDataset(Dataset[Any]):
    """Several datasets, one after another, as one dataset.

    Raises ValueError for an empty list.

    Example:
        >>> dataset = mn.data.ConcatDataset([[10, 11], [20, 21]])
        >>> len(dataset), dataset[2]
        (4, 20)
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    @property
    def datasets(self) -> list[Any]:
        """The datasets in their order. You may assign other datasets."""
        return self._datasets

    @datasets.setter
    def datasets(self, datasets: Iterable[Any]) -> None:
        datasets = list(datasets)
        if not datasets:
            raise ValueError("ConcatDataset: datasets is empty; expected at least one")
        self.cumulative_sizes = np.cumsum([len(dataset) for dataset in datasets]).tolist()
        self._datasets = datasets

    def __len__(self) -> int:
        return int(self.cumulative_sizes[-1])

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"ConcatDataset: index {index} is out of range; it has {len(self)} samples")
        place = index % len(self)
        which = bisect_right(self.cumulative_sizes, place)
        return self.datasets[which][place - (self.cumulative_sizes[which - 1] if which else 0)]


@documented({}, dataset="any dataset with a length", indices="the indices of the samples, in the order of the subset")
class Subset(Dataset[Any]):
    """subset[i] = dataset[indices[i]]: some samples of another dataset.

    If the dataset has `classes` and `class_to_idx`, the subset has the same ones.

    Raises IndexError for indices that the dataset lacks.

    Example:
        >>> subset = mn.data.Subset([10, 11, 12], indices=[2, 0])
        >>> subset[0], subset[1]
        (12, 10)
    """

    def __init__(self, dataset: Any, indices: Sequence[int] | Array) -> None:
        self.dataset = dataset
        self.indices = indices

    @property
    def indices(self) -> Array:
        """The positions of the samples in the dataset. You may assign other positions."""
        return self._indices

    @indices.setter
    def indices(self, indices: Sequence[int] | Array) -> None:
        chosen, count = np.asarray(indices, dtype=np.int64).reshape(-1), len(self.dataset)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < count):
            raise IndexError(f"Subset: indices lie between {chosen.min()} and {chosen.max()}; expected 0 to "
                             f"{count - 1}, because the dataset has {count} samples")  # fmt: skip
        self._indices = chosen

    def __len__(self) -> int:
        return len(self.indices)

    def __getattr__(self, name: str) -> Any:  # called only after the normal look-up failed
        dataset = vars(self).get("dataset")  # None in an object that is being copied
        if name in OF_CLASSES and hasattr(dataset, name):
            return getattr(dataset, name)
        known = not name.startswith("_") and hasattr(dataset, name)
        there = f"; its dataset has this attribute: use subset.dataset.{name}" if known else ""
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{there}", name=name, obj=self)

    def __getitem__(self, index: Any) -> Any:
        chosen = self.indices[index]
        return self.dataset[int(chosen)] if chosen.ndim == 0 else self.batch(np.arange(len(self))[index])

    def batch(self, indices: Array) -> Any:
        """Return the samples at the positions `indices` of the subset."""
        return read_batch(self.dataset, self.indices[indices])


@documented(
    {},
    dataset="any dataset with a length",
    lengths="a list of ints whose sum is len(dataset), or of shares whose sum is 1; None if fraction is given",
    generator="a minorm.Generator or NumPy generator to draw from; None is the generator that minorm.manual_seed sets",
    fraction="the share of the samples in the first of two Subsets, which keep the dataset's order; None if lengths "
    "are given",
    seed="the seed of the draw if fraction is given: the same seed gives the same Subsets",
)
def random_split(
    dataset: Any, lengths: Any = None, generator: Any = None, *, fraction: Any = None, seed: Any = None
) -> Any:
    """Split a dataset at random into Subsets of the given lengths, or into a `fraction` of the samples and the rest.

    Raises ValueError for lengths that do not add up.

    Example:
        >>> train, test = mn.data.random_split(list(range(10)), fraction=0.8, seed=0)
        >>> len(train), len(test)
        (8, 2)
        >>> [len(part) for part in mn.data.random_split(list(range(10)), [5, 3, 2])]
        [5, 3, 2]
    """
    if isinstance(lengths, (list, tuple)):
        return _split(dataset, list(lengths), generator)
    fraction = lengths if fraction is None else fraction
    seed = generator if seed is None else seed
    if not 0 <= fraction <= 1:
        raise ValueError(f"random_split: fraction={fraction}; expected a number from 0 to 1")
    order = np.random.default_rng(seed).permutation(len(dataset))
    first = round(len(dataset) * fraction)
    return Subset(dataset, np.sort(order[:first])), Subset(dataset, np.sort(order[first:]))


def _split(dataset: Any, lengths: list[Any], generator: Any) -> list[Subset]:
    count = len(dataset)
    if all(isinstance(n, float) for n in lengths) and abs(sum(lengths) - 1) < 1e-6:
        lengths = [int(count * share) for share in lengths]
        for i in range(count - sum(lengths)):  # samples left over by rounding, one each, as in PyTorch
            lengths[i % len(lengths)] += 1
    if sum(lengths) != count or min(lengths, default=0) < 0:
        raise ValueError(f"random_split: lengths are {lengths}; expected their sum to be {count}, the dataset's length")
    order = generators.source(generator).permutation(count)
    ends = np.cumsum(lengths).tolist()
    return [Subset(dataset, order[end - n : end]) for n, end in zip(lengths, ends, strict=True)]


def read_batch(dataset: Any, indices: Array) -> Any:
    """Return the samples at `indices` as one batch of arrays, with the structure that collate.py describes."""
    if _reads_batches(dataset):
        return dataset.batch(indices)
    if not len(indices):
        raise ValueError(
            "read_batch: there are no indices; expected at least one, because the dataset has no batch method"
        )
    return stacked(read_samples(dataset, indices.tolist()))


def read_samples(dataset: Any, indices: list[int]) -> list[Any]:
    """Return the samples at `indices`: all at once if the dataset has PyTorch's `__getitems__`, otherwise singly."""
    if isinstance(dataset, Subset) and type(dataset).__getitem__ is Subset.__getitem__:
        return read_samples(dataset.dataset, dataset.indices[indices].tolist())
    many = getattr(type(dataset), "__getitems__", None)
    return [dataset[i] for i in indices] if many is None else list(many(dataset, indices))


def _reads_batches(dataset: Any) -> bool:
    """Return whether `batch` and `__getitem__` give the same samples.

    They do not if there is no method `batch`, or if a subclass overrides only `__getitem__`.
    """
    for kind in type(dataset).__mro__:
        own = vars(kind)
        if "batch" in own:
            return callable(own["batch"])
        if "__getitem__" in own or "__getitems__" in own:
            break
    return callable(getattr(dataset, "__dict__", {}).get("batch"))


def _of_one_length(name: str, arrays: Iterable[Any]) -> tuple[Array, ...]:
    """Return the arrays; raise ValueError if there is no array, or if the lengths of their first axes differ."""
    given = list(arrays)
    for number, array in enumerate(given):
        if isinstance(array, Tensor) and array.is_cuda:
            raise TypeError(f"{name}: arrays[{number}] is on {array.device}; expected a Tensor on the CPU, where "
                            "batches are made; call x.cpu() first")  # fmt: skip
    found = tuple(_native(np.asarray(array)) for array in given)
    lengths = [array.shape[0] if array.ndim else None for array in found]
    if not lengths or None in lengths or len(set(lengths)) != 1:
        raise ValueError(f"{name}: the arrays have shapes {[array.shape for array in found]}; expected at least one "
                         "array, and the same first axis in all arrays")  # fmt: skip
    return found


def _native(array: Array) -> Array:
    """Return the array in the machine's byte order; raise TypeError if no Tensor can hold it."""
    return array.astype(dtypes.check(array.dtype), copy=False)
