"""Collates samples into a batch of the same structure. Values in the same position in every sample are stacked.

    samples  {"image": array (3, 8, 8), "box": (4.0, 2.0), "name": "cat"}, ...
    batch    {"image": Tensor (N, 3, 8, 8), "box": (Tensor (N), Tensor (N)), "name": ["cat", ...]}

The rules are those of torch.utils.data.default_collate with two exceptions. A tuple stays a tuple. Python floats become
float32, as in `minorm.tensor`.
"""

from __future__ import annotations

import copy
import numbers
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.support.argument_errors import is_foreign, kind_of
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

TEXT, PARTS = (str, bytes), (tuple, list)


@documented(
    {},
    samples="a list of samples: arrays, Tensors, numbers, texts, or dicts, tuples, named tuples or lists "
    "with such elements",
)
def default_collate(samples: Sequence[Any]) -> Any:
    """batch[...][n] = samples[n][...]: one batch of Tensors from a list of samples.

    Arrays, Tensors and numbers are stacked along a new first axis; texts and bytes become a list. Raises ValueError if
    shapes, lengths or keys differ between samples. Raises TypeError if types differ, or if a value is any other object.
    Both errors name the position in the sample.

    Example:
        >>> mn.data.default_collate([{"image": 1.0, "name": "cat"}, {"image": 2.0, "name": "dog"}])
        {'image': tensor([1., 2.]), 'name': ['cat', 'dog']}
    """
    return tensors(stacked(samples))


def stacked(samples: Sequence[Any], place: str = "the sample") -> Any:
    """Collate like `default_collate`, but return arrays. In error messages, `place` says which values are wrong."""
    if not samples:
        raise ValueError("DataLoader: there are no samples to collate; expected at least one")
    first = samples[0]
    if isinstance(first, Mapping):
        _check_types(samples, place, Mapping)
        _check_keys(samples, place)
        return _mapping_like(first, {key: stacked([s[key] for s in samples], f"{key!r} of {place}") for key in first})
    if isinstance(first, TEXT):
        _check_types(samples, place, TEXT)
        return list(samples)
    if isinstance(first, PARTS):
        _check_types(samples, place, PARTS)
        if len({len(sample) for sample in samples}) != 1:
            of = place.replace("the sample", "the samples of a batch")
            raise ValueError(f"DataLoader: {of} have {sorted({len(s) for s in samples})} parts; "
                             "expected the same number in each")  # fmt: skip
        columns = zip(*samples, strict=True)
        return _parts_like(first, [stacked(column, f"part {i} of {place}") for i, column in enumerate(columns)])
    return _stack(samples, place)


def tensors(batch: Any) -> Any:
    """Return the batch with a Tensor in place of every array and every list of numbers."""
    if isinstance(batch, np.ndarray):
        return Tensor(batch)
    if isinstance(batch, Mapping):
        return _mapping_like(batch, {key: tensors(part) for key, part in batch.items()})
    if isinstance(batch, PARTS) and not (isinstance(batch, list) and batch and isinstance(batch[0], numbers.Number)):
        return _parts_like(batch, [tensors(part) for part in batch])
    return batch if isinstance(batch, (Tensor, *TEXT)) else Tensor(np.asarray(batch))


def without_rows(batch: Any) -> Any:
    """Return an empty batch with the structure of `batch`. A rank that gets no samples takes this batch."""
    if isinstance(batch, Mapping):
        return _mapping_like(batch, {key: without_rows(part) for key, part in batch.items()})
    if isinstance(batch, PARTS) and not (isinstance(batch, list) and isinstance(batch[0], (numbers.Number, *TEXT))):
        return _parts_like(batch, [without_rows(part) for part in batch])
    return batch[:0]


def _parts_like(example: Any, parts: list[Any]) -> Any:
    """Return the parts as a list, a tuple or a named tuple, like the example."""
    if hasattr(example, "_fields"):
        return type(example)(*parts)
    return tuple(parts) if isinstance(example, tuple) else parts


def _mapping_like(example: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    """Return the values in a mapping of the example's type, or in a dict if that type cannot hold them."""
    if type(example) is dict:
        return values
    try:
        if isinstance(example, MutableMapping):
            result = copy.copy(example)  # it may have attributes besides its items, as a defaultdict has
            result.update(values)
            return result
        return type(example)(values)  # type: ignore[call-arg]
    except TypeError:
        return values


def _check_types(samples: Sequence[Any], place: str, types: Any) -> None:
    for sample in samples:
        if not isinstance(sample, types):
            raise TypeError(f"DataLoader: {place} is {kind_of(samples[0])} and {kind_of(sample)} within one batch; "
                            "expected the same type in every sample")  # fmt: skip


def _check_keys(samples: Sequence[Any], place: str) -> None:
    keys = samples[0].keys()
    for sample in samples:
        if sample.keys() != keys:
            raise ValueError(f"DataLoader: {place} has the keys {list(keys)} and {list(sample)} within one batch; "
                             "expected the same keys in every sample")  # fmt: skip


def _stack(leaves: Sequence[Any], place: str) -> Any:
    """Stack arrays, Tensors or numbers along a new first axis."""
    try:
        arrays = [np.asarray(leaf) for leaf in (map(_detached, leaves) if is_foreign(leaves[0]) else leaves)]
        dtype = dtypes.check(np.result_type(*{array.dtype for array in arrays}))
    except Exception as error:  # np.asarray of a foreign object may raise anything
        odd = next((leaf for leaf in leaves if not _is_stackable(leaf)), leaves[0])
        if isinstance(odd, Tensor) and odd.is_cuda:
            raise TypeError(f"DataLoader: {place} is on {odd.device}; expected a Tensor on the CPU, where batches are "
                            "made; call x.cpu() first") from None  # fmt: skip
        name = f"an array of {odd.dtype}" if isinstance(odd, (np.ndarray, np.generic)) else kind_of(odd)
        raise TypeError(f"DataLoader: {place} is {name}; expected an array, a Tensor, a number, a text, or a dict, a "
                        "tuple or a list with such elements") from error  # fmt: skip
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1:
        raise ValueError(f"DataLoader: {place} has shapes {sorted(shapes)} within one batch; "
                         "expected the same shape in every sample")  # fmt: skip
    if dtype == dtypes.float64 and not any(hasattr(leaf, "dtype") for leaf in leaves):
        dtype = dtypes.float32  # Python's floats, as in minorm.tensor
    return np.stack(arrays).astype(dtype, copy=False)


def _detached(leaf: Any) -> Any:
    """Return a PyTorch tensor without its graph, because NumPy refuses tensors that have a graph."""
    return leaf.detach() if hasattr(leaf, "detach") else leaf


def _is_stackable(leaf: Any) -> bool:
    try:
        dtypes.check(np.asarray(leaf).dtype)
    except Exception:  # noqa: BLE001  as above
        return False
    return True
