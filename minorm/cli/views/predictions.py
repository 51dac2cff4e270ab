"""Prints or writes the predictions of `minorm predict` row by row as a table, JSON or CSV, and keeps no row in memory.

Each view has `add(row)` and `end()`.
"""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Sequence
from typing import Any

from minorm.cli.terminal import output
from minorm.support.safe_names import for_spreadsheet, printable

Row = dict[str, Any]


class Table:
    """Prints lines with aligned columns."""

    def __init__(self, files: Sequence[str], labels: Sequence[str]) -> None:
        self.widths = [max((len(printable(name)) for name in names), default=1) for names in (files, labels)]

    def add(self, row: Row) -> None:
        """Print a line."""
        cells = [f"{printable(row['file']):{self.widths[0]}}"]
        for one in (row, *row.get("top", ())[1:]):
            cells += [f"{printable(one['label']):{self.widths[1]}}", f"{100 * one['probability']:6.2f} %"]
        output.say("  ".join(cells))

    def end(self) -> None:
        """Do nothing."""


class Json:
    """Prints one list of objects, object by object."""

    def __init__(self) -> None:
        self.begun = False

    def add(self, row: Row) -> None:
        """Print the row as an object."""
        text = textwrap.indent(output.json_text(row), "  ")
        output.show(f"{',' if self.begun else '['}\n{text}", end="")
        self.begun = True

    def end(self) -> None:
        """Close the list."""
        output.show("\n]" if self.begun else "[]")


class Csv:
    """Writes comma-separated lines with a header.

    Names are escaped so that a spreadsheet cannot read them as formulas.
    """

    def __init__(self, file: Any) -> None:
        self.writer = csv.writer(file, lineterminator="\n")
        self.begun = False

    def add(self, row: Row) -> None:
        """Write a line, and the header before the first line."""
        others = row.get("top", ())[1:]
        self._begin(len(others))
        cells = [(one["label"], one["probability"]) for one in (row, *others)]
        shown = [cell for label, probability in cells for cell in (for_spreadsheet(label), probability)]
        self.writer.writerow([for_spreadsheet(row["file"]), *shown])

    def end(self) -> None:
        """Write the header if no line was written."""
        self._begin(0)

    def _begin(self, others: int) -> None:
        if not self.begun:
            names = [f"{name}_{i}" for i in range(2, others + 2) for name in ("label", "probability")]
            self.writer.writerow(["file", "label", "probability", *names])
        self.begun = True
