"""Read and write the classes and the scaling of pixels in an ONNX file's metadata.

Files of Ultralytics are read too. They have `names`, such as `{0: 'cat', 1: 'dog'}`, and `imgsz`, such as `[224, 224]`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from minorm.data.transforms import Normalize
from minorm.training.data.preparing import Preprocessing
from minorm.training.settings import LARGEST

CLASSES, PREPROCESSING = "classes", "preprocessing"
NAMES, SIZES = "names", "imgsz"
LONGEST = 1 << 20  # characters of an entry that is read as a Python literal


def description(found: Preprocessing) -> dict[str, str]:
    """Return classes and preprocessing as entries of an ONNX file's metadata. `read` reads these entries."""
    scaling = {key: value for key, value in asdict(found).items() if key != CLASSES}
    return {CLASSES: json.dumps(found.classes), PREPROCESSING: json.dumps(scaling)}


def read(metadata: Mapping[str, Any]) -> Preprocessing | None:
    """Read the metadata entries that `description` makes. Return None if these entries are missing or malformed."""
    try:
        found = Preprocessing(json.loads(metadata[CLASSES]), **json.loads(metadata[PREPROCESSING]))
        Normalize(found.mean, found.std)
        fits = all(isinstance(name, str) for name in found.classes) and found.channels in (1, 3)
        fits = fits and len(found.mean) == len(found.std) == found.channels
        return found if fits and isinstance(found.size, int) and 0 < found.size <= LARGEST else None
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def of_input(model: Any) -> Preprocessing | None:
    """Return the defaults for a model whose file has no description.

    Pixels are from 0 to 1, images have the size of the model's input, and classes are numbered.

    If the metadata has names of classes, these are used. If height and width of the input are free, the entry `imgsz`
    may give them.
    """
    shape = model.inputs[0].shape if model.inputs else None
    if shape is None or len(shape) != 4 or shape[1] not in (1, 3):
        return None
    lengths = list(shape[2:])
    if not any(isinstance(length, int) for length in lengths):
        lengths = _literal(model.metadata, SIZES)
    fits = isinstance(lengths, list) and len(lengths) == 2 and all(type(length) is int for length in lengths)
    if not fits or lengths[0] != lengths[1] or not 0 < lengths[0] <= LARGEST:
        return None
    channels = int(shape[1])
    return Preprocessing(classes(model.metadata), [0.0] * channels, [1.0] * channels, lengths[0], channels)


def classes(metadata: Mapping[str, Any]) -> list[str]:
    """Return the names of the classes; return an empty list if the names are missing or malformed."""
    try:
        found = json.loads(metadata.get(CLASSES, "[]"))
    except (TypeError, ValueError, RecursionError):
        return []
    if not found:
        numbered = _literal(metadata, NAMES)
        found = [numbered.get(i) for i in range(len(numbered))] if isinstance(numbered, dict) else numbered
    return found if isinstance(found, list) and all(isinstance(name, str) for name in found) else []


def _literal(metadata: Mapping[str, Any], key: str) -> Any:
    """Return an entry that is a Python literal, read without running code; return None if there is no such entry."""
    text = metadata.get(key)
    if not isinstance(text, str) or len(text) > LONGEST:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
