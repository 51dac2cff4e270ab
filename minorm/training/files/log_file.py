"""Read and write log.csv, the scores of every epoch. Numbers that are read have the same bits as those written."""

from __future__ import annotations

import csv
import io
import os
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from minorm.serialization import limits, opening
from minorm.support.documented import documented

LOG = "log.csv"
COLUMNS = ("epoch", "learning_rate", "train_loss", "train_accuracy", "val_loss", "val_accuracy")
EARLIER = {"val_loss": "test_loss", "val_accuracy": "test_accuracy"}  # their names in older files and programs


class Row(dict[str, Any]):
    """The numbers of an epoch by name; an accuracy is None if the targets are not classes.

    The names of scores on validation images, by which the best epoch is chosen, begin with `val_`. Older names that
    begin with `test_` work too: row["test_loss"] is row["val_loss"].
    """

    def __missing__(self, name: str) -> Any:
        for new, old in EARLIER.items():
            if name == old and new in self:
                return self[new]
        raise KeyError(name)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Row:
        """Return the row with the numbers in `found`. Older names of numbers are replaced by the present names."""
        new = {old: new for new, old in EARLIER.items()}
        return cls({new.get(name, name): value for name, value in found.items()})


def log(history: Sequence[Row]) -> str:
    """Return the scores of every epoch as CSV with a header; numbers have all the digits that determine their bits.

    A missing number is an empty field. For example, there is no accuracy if targets are not classes.
    """
    lines = [",".join(COLUMNS)] + [
        ",".join("" if row[name] is None else repr(row[name]) for name in COLUMNS) for row in history
    ]
    return "\n".join(lines) + "\n"


@documented({}, path="a log.csv, or the folder of a run")
def read_log(path: str) -> list[Row]:
    """Read the rows of a log.csv, or of the log.csv in a run's folder: [{"epoch": 1, "train_loss": ...}, ...].

    Raises ValueError, which names the file, if the file is not a log.
    """
    name = os.path.join(path, LOG) if os.path.isdir(path) else path
    with opening.regular(name, "read_log") as file:
        raw = file.read(limits.LOG + 1)
    if len(raw) > limits.LOG:
        raise ValueError(
            f"read_log: {name} has more than {limits.LOG} bytes; expected a log, which has one short row for each epoch"
        )
    text = raw.decode(errors="replace")
    reader = csv.DictReader(io.StringIO(text))
    try:
        columns = reader.fieldnames
    except csv.Error as error:
        raise ValueError(f"read_log: {name} is no log.csv: {error}") from error
    earlier = tuple(EARLIER.get(name, name) for name in COLUMNS)
    if tuple(columns or ()) not in (COLUMNS, earlier):
        raise ValueError(f"read_log: {name} has the columns {reprlib.repr(columns)}; expected {', '.join(COLUMNS)}")
    try:
        return [Row.of({key: _number(key, row[key]) for key in columns or ()}) for row in reader]
    except (ValueError, TypeError, csv.Error) as error:
        raise ValueError(f"read_log: {name} has a line that is no row of numbers: {error}") from error


def _number(name: str, text: str) -> float | int | None:
    if name == "epoch":
        return int(text)
    return None if text == "" else float(text)
