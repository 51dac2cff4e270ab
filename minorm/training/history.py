"""log.csv: the scores of every epoch, written and read to the same bits."""

from __future__ import annotations

import csv
import io
import os
import reprlib
from collections.abc import Sequence
from typing import Any

from minorm import limits, opening
from minorm.documented import documented

Row = dict[str, Any]  # numbers by name; an accuracy is None where targets are no classes
LOG = "log.csv"
COLUMNS = ("epoch", "learning_rate", "train_loss", "train_accuracy", "test_loss", "test_accuracy")


def log(history: Sequence[Row]) -> str:
    """The scores of every epoch as CSV, with a header; numbers have the digits that read back to the same bits.

    What there is none of, an accuracy where targets are no classes, is an empty field.
    """
    lines = [",".join(COLUMNS)] + [
        ",".join("" if row[name] is None else repr(row[name]) for name in COLUMNS) for row in history
    ]
    return "\n".join(lines) + "\n"


@documented({}, path="a log.csv, or the folder of a run")
def read_log(path: str) -> list[Row]:
    """[{"epoch": 1, "train_loss": ...}, ...]: the rows of a log.csv, or of that in the folder of a run.

    ValueError, which names the file, where it is none.
    """
    name = os.path.join(path, LOG) if os.path.isdir(path) else path
    with opening.regular(name, "read_log") as file:
        raw = file.read(limits.LOG + 1)
    if len(raw) > limits.LOG:
        raise ValueError(f"read_log: {name} has more than {limits.LOG} bytes; expected a row for each epoch")
    text = raw.decode(errors="replace")
    reader = csv.DictReader(io.StringIO(text))
    try:
        columns = reader.fieldnames
    except csv.Error as error:
        raise ValueError(f"read_log: {name} is no log.csv: {error}") from error
    if tuple(columns or ()) != COLUMNS:
        raise ValueError(f"read_log: {name} has the columns {reprlib.repr(columns)}; expected {', '.join(COLUMNS)}")
    try:
        return [{key: _number(key, row[key]) for key in COLUMNS} for row in reader]
    except (ValueError, TypeError, csv.Error) as error:
        raise ValueError(f"read_log: {name} has a line that is no row of numbers: {error}") from error


def _number(name: str, text: str) -> float | int | None:
    if name == "epoch":
        return int(text)
    return None if text == "" else float(text)
