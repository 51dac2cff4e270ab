"""Reads a data set or a folder of pictures for `minorm quantize`. Pictures have labels if the folders are classes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minorm.cli import sources
from minorm.cli.sources import Source
from minorm.cli.terminal import extras, output
from minorm.data import BrokenImage, Normalize, read_image
from minorm.data.listing import ENDINGS
from minorm.tensor.tensor import Tensor

BATCH = 32


@dataclass
class Images:
    """Batches of images in the form that the model takes; `labels` is None if the images have no known labels."""

    batches: list[Tensor]
    labels: Any = None

    @property
    def kind(self) -> str:
        """The name of the score: accuracy or, if labels are unknown, agreement with the float model."""
        return "accuracy" if self.labels is not None else "agreement"

    def score(self, outputs: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
        """Return the share of images that get the right class or, if labels are unknown, the float model's class."""
        found = classes(outputs)
        return float((found == (classes(wanted) if self.labels is None else self.labels)).mean())


def classes(outputs: Sequence[Tensor]) -> Any:
    """Return the most probable class of each image."""
    return np.concatenate([y.detach().cpu().array.argmax(1) for y in outputs])


def read(source: Source, args: argparse.Namespace) -> Images:
    """Read the images that the options name; raise ValueError if no picture can be read."""
    if args.calibrate is not None and not args.calibrate.endswith(".npz"):
        return _pictures(source, args)
    if args.calibrate is not None:
        args.path, args.data = args.calibrate, args.data or "numpy"
    chosen = sources.choose(source, args)
    train, val = chosen.sets()
    arrays, labels = [], []
    for images, targets in chosen.loaders(train, val)[1]:
        arrays.append(images.numpy())
        labels.append(targets.numpy())
        if sum(map(len, labels)) >= args.images:
            break
    return _batched(source, np.concatenate(arrays)[: args.images], np.concatenate(labels)[: args.images])


def _batched(source: Source, array: Any, labels: Any) -> Images:
    """Split the images into batches. If the model has a fixed batch size, all batches have this size."""
    shape = source.model.inputs[0].shape if source.kind == "onnx" and source.model.inputs else None
    fixed = shape[0] if shape and isinstance(shape[0], int) else None
    if fixed is not None and not 0 < fixed <= len(array):
        raise ValueError(
            f"{source.path} takes batches of {fixed} images, but there are only {len(array)} images; expected at least "
            f"{fixed}"
        )
    length = fixed or BATCH
    count = len(array) if fixed is None else len(array) // fixed * fixed
    batches = [Tensor(array[start : min(start + length, count)]) for start in range(0, count, length)]
    return Images(batches, None if labels is None else labels[:count])


def _pictures(source: Source, args: argparse.Namespace) -> Images:
    extras.need("PIL")
    found = source.preprocessing
    if found is None:
        raise ValueError(
            f"{source.path} does not say how images are scaled. This cannot be guessed, because the model's input is "
            "not N x C x size x size with C = 1 or 3; use minorm.quantization in Python"
        )
    scale, pixels, labels = Normalize(found.mean, found.std), [], []
    paths = list(_pictures_below(args.calibrate))
    for path in _evenly_spaced(paths, args.images):
        try:
            pixels.append(read_image(path, found.size, found.channels, args.max_bytes))
        except (BrokenImage, OSError) as error:
            output.note(f"minorm quantize: {str(error).removeprefix('read_image: ')}")
            continue
        labels.append(os.path.relpath(path, args.calibrate).split(os.sep)[0])
    if not pixels:
        raise ValueError(f"--calibrate {args.calibrate}: no picture can be read; expected at least one")
    floats = np.stack(pixels).astype(np.float32) / np.float32(255)
    array = np.asarray(scale(floats, np.random.default_rng(0)), np.float32)
    known = set(labels) <= set(found.classes)
    numbers = np.array([found.classes.index(label) for label in labels]) if known else None
    return _batched(source, array, numbers)


def _pictures_below(folder: str) -> Iterator[str]:
    """Yield the paths of all pictures below a folder in sorted order."""
    if not os.path.isdir(folder):
        raise ValueError(f"--calibrate {folder} is no folder; expected a folder with pictures, or a .npz file")
    for here, folders, files in os.walk(folder):
        folders.sort()
        yield from (os.path.join(here, name) for name in sorted(files) if name.lower().endswith(ENDINGS))


def _evenly_spaced(paths: list[str], most: int) -> list[str]:
    """Return at most `most` paths, evenly spread over the list."""
    if len(paths) <= most:
        return paths
    return [paths[place] for place in np.linspace(0, len(paths) - 1, most).astype(int)]
