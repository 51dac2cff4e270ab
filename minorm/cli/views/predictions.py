"""Predictions as `minorm predict` prints or writes them, row by row: a table, JSON, or CSV. None of them keeps a row.

Each has `add(row)` and `end()`.
"""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Sequence
from typing import Any

from minorm.cli.terminal import output
from minorm.support.masking import for_spreadsheet, printable

Row = dict[str, Any]


class Table:
    """Lines of equal columns."""

    def __init__(self, files: Sequence[str], labels: Sequence[str]) -> None:
        self.widths = [max((len(printable(name)) for name in names), default=1) for names in (files, labels)]

    def add(self, row: Row) -> None:
        """Print a line."""
        cells = [f"{printable(row['file']):{self.widths[0]}}"]
        for one in (row, *row.get("top", ())[1:]):
            cells += [f"{printable(one['label']):{self.widths[1]}}", f"{100 * one['probability']:6.2f} %"]
        output.say("  ".join(cells))

    def end(self) -> None:
        """Nothing."""


class Json:
    """One list of objects, printed as it grows."""

    def __init__(self) -> None:
        self.begun = False

    def add(self, row: Row) -> None:
        """Print an object."""
        text = textwrap.indent(output.json_text(row), "  ")
        output.show(f"{',' if self.begun else '['}\n{text}", end="")
        self.begun = True

    def end(self) -> None:
        """Close the list."""
        output.show("\n]" if self.begun else "[]")


class Csv:
    """Comma-separated, with a header; names of files and classes cannot become formulas."""

    def __init__(self, file: Any) -> None:
        self.writer = csv.writer(file, lineterminator="\n")
        self.begun = False

    def add(self, row: Row) -> None:
        """Write a line, before the first of them the header."""
        others = row.get("top", ())[1:]
        self._begin(len(others))
        cells = [(one["label"], one["probability"]) for one in (row, *others)]
        shown = [cell for label, probability in cells for cell in (for_spreadsheet(label), probability)]
        self.writer.writerow([for_spreadsheet(row["file"]), *shown])

    def end(self) -> None:
        """Write the header where there is no line."""
        self._begin(0)

    def _begin(self, others: int) -> None:
        if not self.begun:
            names = [f"{name}_{i}" for i in range(2, others + 2) for name in ("label", "probability")]
            self.writer.writerow(["file", "label", "probability", *names])
        self.begun = True
