"""What an ONNX file's metadata says of classes and of the scaling of pixels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from minorm.data.transforms import Normalize
from minorm.training.data.preparing import Preprocessing
from minorm.training.settings import LARGEST

CLASSES, PREPROCESSING = "classes", "preprocessing"


def read(metadata: Mapping[str, Any]) -> Preprocessing | None:
    """What `minorm export` wrote; None where there is nothing, or something else."""
    try:
        found = Preprocessing(json.loads(metadata[CLASSES]), **json.loads(metadata[PREPROCESSING]))
        Normalize(found.mean, found.std)
        fits = all(isinstance(name, str) for name in found.classes) and found.channels in (1, 3)
        fits = fits and len(found.mean) == len(found.std) == found.channels
        return found if fits and isinstance(found.size, int) and 0 < found.size <= LARGEST else None
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def of_input(model: Any) -> Preprocessing | None:
    """Of a model that does not say it: pixels from 0 to 1, the size and channels of its input, classes by number.

    Classes that it names have their names.
    """
    shape = model.inputs[0].shape if model.inputs else None
    if shape is None or len(shape) != 4 or shape[1] not in (1, 3) or shape[2] != shape[3]:
        return None
    channels, size = int(shape[1]), shape[3]
    if not isinstance(size, int) or size < 1:
        return None
    return Preprocessing(classes(model.metadata), [0.0] * channels, [1.0] * channels, size, channels)


def classes(metadata: Mapping[str, Any]) -> list[str]:
    """The names of classes; none where the file says something else."""
    try:
        found = json.loads(metadata.get(CLASSES, "[]"))
    except (TypeError, ValueError, RecursionError):
        return []
    return found if isinstance(found, list) and all(isinstance(name, str) for name in found) else []
