"""Draws up to 512 images from a loader, shuffles them (the loader may sort by class), and makes new batches."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from minorm.data import DataLoader
from minorm.devices import dtypes, generators
from minorm.diagnosis.pytorch import arrays
from minorm.support.argument_errors import kind_of
from minorm.tensor.tensor import Tensor

MAX_IMAGES = 512  # images
LOOKED_AT = 4096  # images of a loader in a fixed order, from which MAX_IMAGES are drawn
BATCH = 128
NUMBERS = 1 << 22  # in the inputs of a batch, at most: large images come in smaller batches
SEED = 0
RANDOM, FREE_AXIS_LENGTH = 64, 32  # for noise: the number of images, and the length of an axis that a file leaves free


@dataclass(frozen=True)
class Images:
    """The drawn images: inputs (N, ...), and labels (N, ...) or None.

    batch_size    the median size of the loader's batches; None if one batch was given
    random        True if the inputs are noise instead of images
    """

    inputs: Any
    labels: Any
    batch_size: int | None
    random: bool = False

    def __len__(self) -> int:
        return len(self.inputs)

    def batches(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield pairs (slice, batch): the batches have nearly equal sizes, and batch = inputs[slice]."""
        most = max(2, min(BATCH, NUMBERS // max(1, self.inputs[0].size)))
        parts = -(-len(self) // most)
        ends = [len(self) * part // parts for part in range(parts + 1)]
        for start, end in pairwise(ends):
            yield slice(start, end), Tensor(self.inputs[start:end])

    @property
    def batch(self) -> int:
        """The number of images in the first batch; all batches are about as large."""
        return next(self.batches())[1].shape[0]


def drawn(loader: Any) -> Images:
    """Draw images from a loader, which stays unchanged, or from a single batch. Raise an error if there is no image."""
    batch = _is_batch(loader)
    if not batch and (not hasattr(loader, "__iter__") or hasattr(loader, "__next__")):
        raise TypeError(
            f"diagnose: loader is a {kind_of(loader)}; expected batches that can be read again: a DataLoader, or a "
            "list of (images, labels); or one batch"
        )
    if batch:
        return replace(_drawn([loader]), batch_size=None)
    with generators.kept(), arrays.random_kept():  # a sampler may draw random numbers
        return _drawn(_shuffled_copy(loader) if isinstance(loader, DataLoader) else loader)


def random(inputs: Sequence[Any]) -> Images:
    """Return noise for an ONNX file that declares one input of floats; raise ValueError for other inputs.

    The first axis is the batch; any other free axis gets the length FREE_AXIS_LENGTH.
    """
    fits = len(inputs) == 1 and inputs[0].form == "tensor" and dtypes.is_float(inputs[0].dtype)
    if not fits or not inputs[0].shape:
        said = ", ".join(map(str, inputs))
        raise ValueError(
            f"diagnose: loader is None and the graph takes {said}; expected batches: noise can replace them only for "
            "one input of floats"
        )
    shape = [length if isinstance(length, int) else FREE_AXIS_LENGTH for length in inputs[0].shape[1:]]
    noise = np.random.default_rng(SEED).standard_normal((RANDOM, *shape))
    return Images(noise.astype(inputs[0].dtype), None, None, True)


def _is_batch(given: Any) -> bool:
    """Return whether this is a batch, not a loader: an array, or a tuple of an array and the labels of its samples."""
    if not isinstance(given, tuple):
        return isinstance(given, np.ndarray) or _array(given) is not None
    x, y = (_array(part) for part in given) if len(given) == 2 else (None, None)
    return x is not None and y is not None and not dtypes.is_float(y.dtype) and y.shape[:1] == x.shape[:1]


def _shuffled_copy(loader: DataLoader) -> DataLoader:
    """Return a copy of the loader that shuffles, unless a sampler decides the order; the original does not change."""
    other = copy.copy(loader)
    other.order = copy.copy(loader.order)
    other.order.shuffle = True
    return other


def _drawn(loader: Any) -> Images:
    chance = np.random.default_rng(SEED)
    kept: list[Any] = []
    sizes: list[int] = []
    mixed = isinstance(loader, DataLoader) and loader.order.given is None and loader.batch_sampler is None
    mixed = mixed or type(getattr(loader, "sampler", None)).__name__ == "RandomSampler"  # of PyTorch's DataLoader
    most = MAX_IMAGES if mixed else LOOKED_AT
    for batch in loader:
        inputs, labels = _parts(batch)
        sizes.append(len(inputs))
        for row in range(len(inputs)):
            sample = inputs[row], None if labels is None else labels[row]
            seen = sum(sizes[:-1]) + row
            place = seen if seen < MAX_IMAGES else int(chance.integers(seen + 1))
            if seen < MAX_IMAGES:
                kept.append(sample)
            elif place < MAX_IMAGES:
                kept[place] = sample
        if sum(sizes) >= most:
            break
    if len(kept) < 2:
        raise ValueError(f"diagnose: the loader gave {len(kept)} images; expected at least 2, preferably {MAX_IMAGES}")
    shapes = {sample.shape for sample, _ in kept}
    if len(shapes) > 1:
        raise ValueError(f"diagnose: the loader's images have shapes {sorted(shapes)[:4]}; expected one shape")
    order = chance.permutation(len(kept))
    inputs = np.stack([kept[i][0] for i in order])
    labels = None if any(label is None for _, label in kept) else np.stack([kept[i][1] for i in order])
    return Images(inputs, labels, int(np.median(sizes)))


def _parts(batch: Any) -> tuple[Any, Any]:
    """Return the inputs and labels of a batch as arrays.

    A batch is x or (x, y, ...); labels that are not integers are returned as None.
    """
    parts = batch if isinstance(batch, (tuple, list)) else (batch,)
    arrays = [_array(part) for part in parts[:2]]
    if not arrays or arrays[0] is None or not arrays[0].ndim:
        raise TypeError(
            f"diagnose: a batch is a {kind_of(batch)}; expected x or (x, labels), where each is a Tensor of N samples"
        )
    labels = arrays[1] if len(arrays) > 1 else None
    classes = labels is not None and not dtypes.is_float(labels.dtype) and labels.shape[:1] == arrays[0].shape[:1]
    return arrays[0], labels if classes else None


def _array(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.cpu().array
    if arrays.is_tensor(value):
        return arrays.array(value)
    return value if isinstance(value, np.ndarray) else None
