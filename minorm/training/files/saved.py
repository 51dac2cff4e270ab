"""Read and check a run's checkpoint before it is used; if a part is damaged, raise a ValueError that names the part.

All parts are checked before a model is built or an object is changed.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from minorm.data.transforms import Normalize
from minorm.serialization import checkpoint
from minorm.training.data.images import FILES, PARTS, PATH, entry
from minorm.training.data.preparing import Preprocessing
from minorm.training.files.log_file import COLUMNS, Row
from minorm.training.model import model_building
from minorm.training.model.initial import Initial
from minorm.training.settings import Settings

RUN = ("settings", "model_facts", "model", "optimizer", "loader", "random", "epoch", "history")
ERRORS_OF_A_WRONG_STATE = (TypeError, KeyError, IndexError, AttributeError, ArithmeticError)


def read_run(path: str) -> dict[str, Any]:
    """Read and check all parts of a checkpoint that a Run wrote."""
    saved = checkpoint.load_training(path)
    if not {*RUN} <= saved.keys():
        raise ValueError(f"{path} was not written by a Run; it holds {', '.join(saved)}")
    saved["model_facts"] = model_building.checked(saved["model_facts"], path)
    _check_one_model(settings(saved, path).model, saved["model_facts"]["name"], path)
    if isinstance(saved["history"], list):
        saved["history"] = [Row.of(row) if isinstance(row, dict) else row for row in saved["history"]]
    _check_history(saved, path)
    if "preprocessing" in saved:
        preprocessing(saved, path)
    if "images" in saved:
        _check_images(saved["images"], path)
    _check_beginning(saved, path)
    return saved


def settings(saved: Mapping[str, Any], path: str) -> Settings:
    """Return the run's settings. A missing setting gets its default, and the folder of a model's FILE.py is removed."""
    found, known = saved["settings"], [field.name for field in fields(Settings)]
    if not isinstance(found, dict):
        raise ValueError(f"{path}: its settings are a {type(found).__name__}; expected a dict of values by name")
    if unknown := [name for name in found if name not in known]:
        raise ValueError(f"{path}: it has a setting {unknown[0]!r}; expected {', '.join(known)}")
    try:
        read = Settings(**found)
    except ValueError as error:
        raise ValueError(f"{path}: its setting {error}") from None
    return replace(read, model=os.path.basename(read.model))


def preprocessing(saved: Mapping[str, Any], path: str) -> Preprocessing:
    """Return the scaling of pixels and the class names; raise ValueError unless they fit the facts of the model."""
    found, facts, names = saved["preprocessing"], saved["model_facts"], [field.name for field in fields(Preprocessing)]
    if not isinstance(found, dict) or found.keys() != {*names}:
        raise ValueError(f"{path}: its preprocessing is {reprlib.repr(found)}; expected {', '.join(names)}")
    for name, count in (("classes", facts["classes"]), ("mean", facts["channels"]), ("std", facts["channels"])):
        kind = str if name == "classes" else float
        values = found[name]
        if not isinstance(values, list) or len(values) != count or not all(type(value) is kind for value in values):
            raise ValueError(f"{path}: {name} of its preprocessing is {reprlib.repr(values)}; expected {count} "
                             f"{'names' if kind is str else 'floats'}")  # fmt: skip
    for name in ("size", "channels"):
        if not _is(found[name], facts[name]):
            raise ValueError(f"{path}: {name} of its preprocessing is {reprlib.repr(found[name])}; expected "
                             f"{facts[name]}, that of its model")  # fmt: skip
    try:
        Normalize(found["mean"], found["std"])
    except ValueError as error:
        raise ValueError(f"{path}: its preprocessing: {error}") from None
    return Preprocessing(**found)


def initial(saved: Mapping[str, Any]) -> Initial | None:
    """Return where the initial weights came from; return None if they did not come from a file."""
    return Initial(**saved["initial"]) if "initial" in saved else None


def restore_part(path: str, part: str, take: Callable[[], Any]) -> None:
    """Call take(), which gives an object its part of the checkpoint; raise ValueError if the part does not fit."""
    try:
        take()
    except (ValueError, *ERRORS_OF_A_WRONG_STATE) as error:
        said = str(error) if isinstance(error, (ValueError, TypeError)) else f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}: the part {part!r} does not fit: {said}") from error


def _check_one_model(setting: str, name: str, path: str) -> None:
    """Check that settings and facts name the same model. In older runs, the name in the facts has a folder."""
    if setting != os.path.basename(name):
        raise ValueError(f"{path}: its setting model is {setting!r}; expected {name!r}, as in its model_facts")


def _check_history(saved: Mapping[str, Any], path: str) -> None:
    epoch, rows = saved["epoch"], saved["history"]
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
        raise ValueError(f"{path}: its epoch is {reprlib.repr(epoch)}; expected a whole number of at least 0")
    if not isinstance(rows, list) or len(rows) != epoch:
        count = len(rows) if isinstance(rows, list) else type(rows).__name__
        raise ValueError(f"{path}: its history has {count} rows; expected {epoch}, one for each finished epoch")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not {*COLUMNS} <= row.keys() or not _is(row["epoch"], number):
            raise ValueError(
                f"{path}: row {number} of its history is {reprlib.repr(row)}; expected {', '.join(COLUMNS)}"
            )
        for name in COLUMNS:
            if not (_is_number(row[name]) or (row[name] is None and name.endswith("accuracy"))):
                raise ValueError(f"{path}: {name} of row {number} of its history is {reprlib.repr(row[name])}; "
                                 "expected a number")  # fmt: skip


def _check_images(found: Any, path: str) -> None:
    """Check the form {"train": {"number": 48, "sha256": "..."}, "validation": ...}. Further keys are ignored."""
    for part in PARTS:
        there = entry(found, part) if isinstance(found, dict) else None
        if not (isinstance(there, dict) and type(there.get("number")) is int and there["number"] >= 0
                and isinstance(there.get("sha256", 0), (str, type(None))) and _are_names(there)):  # fmt: skip
            raise ValueError(f"{path}: its entry 'images' is {reprlib.repr(found)}; expected number "
                             f"and sha256 of {' and '.join(PARTS)}")  # fmt: skip
    if not isinstance(found.get(PATH, ""), str) or "\0" in found.get(PATH, ""):
        raise ValueError(f"{path}: the path of its images is {reprlib.repr(found[PATH])}; expected a text")


def _are_names(there: Mapping[str, Any]) -> bool:
    """Return whether the description of a part has a name for each file, or no names at all."""
    if FILES not in there:
        return True
    names = there[FILES]
    if not isinstance(names, np.ndarray) or names.dtype != np.uint8 or names.ndim != 1:
        return False
    return int(np.count_nonzero(names == 0)) + (names.size > 0) == there["number"]


def _check_beginning(saved: Mapping[str, Any], path: str) -> None:
    """Check the epoch from which `early_stopping` counts, and the description of the file of initial weights."""
    start, epoch = saved.get("patience_from", 0), saved["epoch"]
    if type(start) is not int or not 0 <= start <= epoch:
        raise ValueError(f"{path}: its patience_from is {reprlib.repr(start)}; expected an epoch of at most {epoch}")
    if "initial" not in saved:
        return
    found, kinds = saved["initial"], {"file": str, "sha256": str, "taken": int}
    fits = isinstance(found, dict) and {*found, "notes"} == {field.name for field in fields(Initial)}  # old: none
    if not fits or not all(
        type(value) is kinds[name] if name in kinds else isinstance(value, list) and all(type(v) is str for v in value)
        for name, value in found.items()
    ):
        raise ValueError(f"{path}: its entry 'initial' is {reprlib.repr(found)}; expected "
                         f"{', '.join(field.name for field in fields(Initial))}")  # fmt: skip


def _is(value: Any, number: int) -> bool:
    """Return whether `value` is the int `number`.

    A file may have an array in place of a number, and == of an array gives no bool.
    """
    return type(value) is int and value == number


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))
