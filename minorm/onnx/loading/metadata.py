"""Write and read minorm's entries in `metadata_props`, for facts that ONNX itself cannot express.

minorm.edited        the producer of a file that minorm loaded and wrote back; if the file now has another producer,
                     minorm ignores its entries
minorm.training      True if a layer was in training mode when the file was written
minorm.frozen        the paths of frozen modules
minorm.statistics    path of a layer -> how the layer keeps running statistics, if no operator can express this (an
                     InstanceNorm, momentum=None, an unbiased variance). In the graph, other nodes update these
                     statistics. After loading, the layer itself updates them, with the same bits as the layer that was
                     written
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from minorm.nn import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, Module
from minorm.nn.norm.base import RunningNorm
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.names import drop
from minorm.onnx.graph.node_layers import Statistics, StatisticsLayer

PREFIX = "minorm."
OURS = "minorm"  # producer_name
EDITED = f"{PREFIX}edited"
CLASSES = "classes"  # a list of names, which `minorm predict` reads


def written(module: Module, training: bool | None) -> dict[str, str]:
    """Return the entries for a module written for training (True), for inference (False), or as it is (None)."""
    if training is None:
        training = any(part.training and not part.frozen for part in module.modules())
    named = dict(module.named_modules())
    frozen = [path for path, part in named.items() if getattr(part, "frozen", False)]
    kept = {path: asdict(found) for path, part in named.items() if (found := _statistics(part)) is not None}
    entries = {"training": training, "frozen": frozen, "statistics": kept}
    return {f"{PREFIX}{key}": json.dumps(value) for key, value in entries.items() if key == "training" or value}


def rewrite(model: Any, module: Any, training: bool | None) -> None:
    """Update minorm's entries in a file.

    A file of another producer gets entries only if they differ from the default.
    """
    entries = written(module, training)
    if model.producer_name != OURS:
        news = len(entries) > 1 or len(model.graph.output) > len(module.output_names)
        entries = entries | {EDITED: model.producer_name} if news else {}
    drop(model.metadata_props, _is_our_entry)
    set_entries(model, module.metadata)
    for key, value in entries.items():
        model.metadata_props.add(key=key, value=value)


def drop_stale_classes(model: Any) -> str:
    """Drop the class names if the first output has another number of classes.

    Return a sentence with the reason, or "" if the class names stay.
    """
    shape = [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim]
    try:
        names = json.loads(entries_of(model).get(CLASSES, ""))
    except (ValueError, RecursionError):
        return ""
    if not isinstance(names, list) or len(shape) != 2 or shape[1] in (0, len(names)):
        return ""
    drop(model.metadata_props, lambda entry: entry.key == CLASSES)
    return (
        f"metadata {CLASSES!r} names {len(names)} classes and the output has {shape[1]}, so the names are "
        f"left out; to give others, write model.metadata[{CLASSES!r}] = [...]"
    )


def set_entries(model: Any, given: Mapping[str, Any]) -> None:
    """Set the entries that are not minorm's own; unchanged entries stay in their order."""
    if clash := [key for key in given if not isinstance(key, str) or key.startswith(PREFIX)]:
        raise ValueError(
            f"export: metadata has the key {clash[0]!r}; expected keys that are texts and do not begin with {PREFIX!r}"
        )
    before = entries_of(model)
    drop(model.metadata_props, lambda entry: entry.key in before and entry.key not in given)
    for entry in model.metadata_props:
        if entry.key in given and given[entry.key] != before.get(entry.key):
            entry.value = _text(given[entry.key])
    for key, value in given.items():
        if key not in before:
            model.metadata_props.add(key=key, value=_text(value))


def entries_of(model: Any) -> dict[str, Any]:
    """Return the entries of a file as texts (class names, say), without the entries that minorm wrote for itself."""
    texts = [entry for entry in model.metadata_props if isinstance(entry.key, str) and isinstance(entry.value, str)]
    return {entry.key: entry.value for entry in texts if not _is_our_entry(entry)}


def _text(value: Any) -> str:
    """Return a text unchanged, and any other value as JSON."""
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"export: metadata has a {type(value).__name__}; expected a text, or a JSON value") from error


def _is_our_entry(entry: Any) -> bool:
    return isinstance(entry.key, str) and entry.key.startswith(PREFIX)  # a key that is not UTF-8 is bytes, and not ours


def is_ours(model: Any) -> bool:
    """Return True if minorm was the last tool that wrote the file, as its producer or after loading it."""
    edited = (entry.value for entry in model.metadata_props if entry.key == EDITED)
    return model.producer_name == OURS or model.producer_name in edited


def _statistics(module: Module) -> Statistics | None:
    if isinstance(module, StatisticsLayer):
        return module.statistics
    if not isinstance(module, RunningNorm):
        return None
    per_sample = isinstance(module, (InstanceNorm1d, InstanceNorm2d, InstanceNorm3d))
    usual = not per_sample and module.momentum is not None and not module.unbiased_running_var
    if module.running_mean is None or usual:
        return None
    return Statistics(
        per_sample, None if module.momentum is None else float(module.momentum), module.unbiased_running_var
    )


def frozen(model: Any) -> list[str]:
    """Return the paths of the modules that were frozen when minorm exported the model."""
    paths = _entry(model, "frozen", [])
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise LoadError(f"load: metadata minorm.frozen is {str(paths)[:80]!r}; expected a list of names")
    return paths


def statistics(model: Any) -> dict[str, Statistics]:
    """Map the path of each layer to its Statistics, which say how the layer keeps running statistics."""
    given = _entry(model, "statistics", {})
    try:
        found = {path: Statistics(**fields) for path, fields in given.items()}
        if not all(map(_legal, found.values())):
            raise ValueError
    except (AttributeError, TypeError, ValueError):
        raise LoadError(
            f"load: metadata minorm.statistics is {str(given)[:80]!r}; "
            "expected per_sample, momentum and unbiased for each layer"
        ) from None
    return found


def _legal(found: Statistics) -> bool:
    momentum = found.momentum
    number = momentum is None or (isinstance(momentum, (int, float)) and 0 <= momentum <= 1)
    return number and isinstance(found.per_sample, bool) and isinstance(found.unbiased, bool)


def _entry(model: Any, key: str, default: Any) -> Any:
    """Return the value of an entry, or the text itself if the text is not JSON."""
    entry = next((entry for entry in model.metadata_props if entry.key == PREFIX + key), None)
    if entry is None or not is_ours(model):
        return default
    try:
        return json.loads(entry.value)
    except (ValueError, RecursionError):
        return entry.value
