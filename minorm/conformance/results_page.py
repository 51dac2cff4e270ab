"""Write the page of the documentation with the result of each runtime for each case, the date and the versions.

python -m minorm.conformance.results_page docs/conformance.md    runs all runtimes, and writes the results between the
                                                                 page's marks
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from minorm.conformance.framework_cases import PREFIXES
from minorm.conformance.report import Report, conform
from minorm.conformance.runtimes import RUNTIMES
from minorm.conformance.verdict import RIGHT, UNSUPPORTED, WRONG, Cell, counted
from minorm.serialization import atomic

BEGIN = "<!-- conformance: python -m minorm.conformance.results_page docs/conformance.md -->"
END = "<!-- end of conformance -->"
TITLES = {name: runtime.title for name, runtime in RUNTIMES.items()}


def text(report: Report, date: dt.date) -> str:
    """Return the text that stands between the marks BEGIN and END of the page."""
    names = list(dict.fromkeys(cell.runtime for cell in report.cells))
    found = ", ".join(f"{name} {version or 'not installed'}" for name, version in report.versions.items())
    cells = [cell for cell in report.cells if not cell.case.startswith(PREFIXES)]
    parts = [f"Measured on {date.isoformat()}: {found}.", matrix(cells, names)]
    of_frameworks = [cell for cell in report.cells if cell.case.startswith(PREFIXES)]
    if of_frameworks:
        asked = [name for name in names if any(cell.runtime == name for cell in of_frameworks)]
        parts += ["### Gradients, masks and plain averages", matrix(of_frameworks, asked), causes(of_frameworks)]
    extra = [name for name in names if name in RUNTIMES and RUNTIMES[name].extra]
    if extra:
        parts += ["### What the others do", causes([cell for cell in cells if cell.runtime in extra])]
    names = [name for name in names if name not in extra]
    cells = [cell for cell in cells if cell.runtime in names]
    parts += ["### By version", totals(cells, names)]
    for operator, of in itertools.groupby(sorted(cells, key=lambda c: c.operator), lambda c: c.operator):
        parts.append(f"### {operator}")
        parts += _operator([*of], names)
    return "\n\n".join(parts)


def matrix(cells: Sequence[Cell], names: Sequence[str]) -> str:
    """Return a table with a row per runtime and a column per operator: counts of verdicts, and the worst error."""
    operators = sorted({cell.operator for cell in cells})
    lines = _head(["runtime", *(operator.removesuffix("alization") for operator in operators)])
    for name in names:
        of = [[cell for cell in cells if (cell.runtime, cell.operator) == (name, operator)] for operator in operators]
        lines.append(_row([TITLES.get(name, name), *map(_square, of)]))
    return "\n".join(lines)


def _square(cells: Sequence[Cell]) -> str:
    right, wrong, unsupported, _ = counted(cells)
    if not wrong:
        return f"{right} / 0 / {unsupported}"
    errors = [cell.error for cell in cells if cell.verdict == WRONG]
    worst = "no number" if None in errors else f"{max(error for error in errors if error is not None):.0e}"
    return f"{right} / **{wrong}** / {unsupported}: {worst}"


def totals(cells: Iterable[Cell], names: Sequence[str]) -> str:
    """Return a table with a row for each version of an operator.

    An entry counts a runtime's right, wrong and unsupported cells, and gives the fewest right digits in float32.
    """
    rows: dict[tuple[str, int], dict[str, list[Cell]]] = {}
    for cell in cells:
        rows.setdefault((cell.operator, cell.opset), {}).setdefault(cell.runtime, []).append(cell)
    lines = _head(["operator", *(TITLES.get(name, name) for name in names)])
    for (operator, opset), of in sorted(rows.items()):
        lines.append(_row([f"{operator} {opset}", *(_count(of[name]) for name in names)]))
    return "\n".join(lines)


def causes(cells: Sequence[Cell]) -> str:
    """Return a table of errors, with a row for each kind of error that a runtime makes.

    A row has the number of cells with this error, their operators, and an example.
    """
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.verdict == WRONG:
            said = f"{cell.said.partition(' is off by ')[0]} is wrong" if " is off by " in cell.said else cell.said
            what = linked(cell) if cell.defect else f"{said} (no known cause)"
            found.setdefault((TITLES[cell.runtime], what), []).append(cell)
    lines = _head(["runtime", "what it does", "cells", "operators", "for example"])
    for (title, what), of in found.items():
        operators = ", ".join(dict.fromkeys(cell.operator.removesuffix("alization") for cell in of))
        worst = max(of, key=lambda cell: math.inf if cell.error is None else cell.error)
        example = f"{worst.operator} {worst.opset}, {worst.case}: {worst.said}"
        lines.append(_row([title, what, str(len(of)), operators, example]))
    return "\n".join(lines)


def _count(cells: Sequence[Cell]) -> str:
    right, wrong, unsupported, digits = counted(cells)
    words = [f"{right} right" + ("" if digits is None else f" ({digits:.1f})")] if right else []
    words += [f"**{wrong} wrong**"] if wrong else []
    words += [f"{unsupported} unsupported"] if unsupported else []
    return ", ".join(words)


def _operator(cells: Sequence[Cell], names: Sequence[str]) -> list[str]:
    """Return the table of an operator with a row for each case, and a list of the notes that the entries refer to."""
    notes: dict[str, int] = {}
    by_case: dict[str, list[Cell]] = {}
    for cell in cells:
        by_case.setdefault(cell.case, []).append(cell)
    lines = _head(["case", "versions", *(TITLES.get(name, name) for name in names)])
    for case, of in by_case.items():
        opsets = _opsets(of)
        shown = [_versions([cell for cell in of if cell.runtime == name], opsets, notes) for name in names]
        lines.append(_row([case, opsets, *shown]))
    return ["\n".join(lines), "\n".join(f"{number}. {note}" for note, number in notes.items())]


def _opsets(cells: Iterable[Cell]) -> str:
    return ", ".join(map(str, dict.fromkeys(cell.opset for cell in cells)))


def _versions(cells: Sequence[Cell], opsets: str, notes: dict[str, int]) -> str:
    """Return the entry for one runtime and case.

    If the result differs between versions, each result is shown with its versions. `notes` collects the texts of notes.
    """
    told: dict[str, list[Cell]] = {}
    for cell in cells:
        told.setdefault(_shown(cell, notes), []).append(cell)
    return "; ".join(f"{_opsets(of)}: {what}" if _opsets(of) != opsets else what for what, of in told.items())


def _shown(cell: Cell, notes: dict[str, int]) -> str:
    who = TITLES.get(cell.runtime, cell.runtime)
    if cell.verdict == RIGHT:
        return f"{cell.digits:.0f}"
    if cell.verdict == UNSUPPORTED:
        return f"- [{_number(notes, f'{who} refuses: {_code(cell.said)}')}]"
    if " is off by " in cell.said:
        amount = f"{cell.error:.1g}"
    else:
        amount = "NaN" if "NaN" in cell.said else "wrong"
    note = f"{who} {linked(cell)}" if cell.defect else f"{who}: {cell.said} (no known defect)"
    return f"**{amount}** [{_number(notes, note)}]"


def linked(cell: Cell) -> str:
    """Return the known defect of a cell, with a link to its page."""
    return f"[{cell.defect}](conformance/{cell.cause}.md)" if cell.cause else cell.defect


def _number(notes: dict[str, int], note: str) -> int:
    return notes.setdefault(note, len(notes) + 1)


def _code(said: str) -> str:
    return f"`{said.replace('`', chr(39))}`"


def _head(names: Sequence[str]) -> list[str]:
    return [_row(names), "|" + "---|" * len(names)]


def _row(words: Sequence[str]) -> str:
    return f"| {' | '.join(word.replace('|', chr(92) + '|') for word in words)} |"


def page(old: str, new: str) -> str:
    """Return the page `old` with the text `new` between its marks BEGIN and END."""
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{new}\n\n{END}{after}"


def main(path: str) -> None:
    """Run all runtimes, and write their results into the page at `path`."""
    new = page(Path(path).read_text(encoding="utf-8"), text(conform(), dt.date.today()))
    with atomic.replacing(path, "conform") as file:
        file.write(new.encode())


if __name__ == "__main__":
    main(sys.argv[1])
