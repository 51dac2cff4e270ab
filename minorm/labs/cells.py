"""Reads and writes a notebook as a list of cells, in the percent format and as .ipynb.

The percent format is Python in which a line `# %%` begins a cell of code and `# %% [markdown]` a cell of text, whose
lines are comments; `# %% tags=["plot"]` gives a cell tags. jupytext and most editors know this format.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from dataclasses import dataclass
from typing import Any

MARK = re.compile(r"^# %%(?P<markdown> \[markdown\])?(?: tags=(?P<tags>\[.*\]))?(?P<rest>.*)$")
MAGIC = re.compile(r"^(\s*+)(?:[%!]|\?{1,2}\w|[\w.]+\?{1,2}\s*$)")
ASSIGNED = re.compile(r"^(\s*+[\w, ]++=\s*+)[%!]")  # without backtracking: a line may be a million spaces
HEADER = """\
# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---
"""


@dataclass(frozen=True)
class Cell:
    """One cell. line: the line of the file in which the cell's text begins, counted from 1"""

    text: str
    markdown: bool = False
    tags: tuple[str, ...] = ()
    line: int = 1


_NO_TAGS: tuple[str, ...] = ()


def read(text: str, name: str) -> list[Cell]:
    """Return the cells of the file `name`, which is a notebook if it ends in .ipynb, else Python.

    ValueError is raised if the file is broken.
    """
    return _read_notebook(text, name) if name.endswith(".ipynb") else read_percent(text)


def read_percent(text: str) -> list[Cell]:
    """Return the cells of a Python file; text before the first mark is a cell too, but jupytext's header is not."""
    cells: list[Cell] = []
    lines = text.splitlines()
    start = _after_header(lines)
    markdown, tags = False, _NO_TAGS
    body: list[str] = []
    first = start + 1

    def finish() -> None:
        content = [_uncommented(line) for line in body] if markdown else body
        joined = "\n".join(content).strip("\n")
        if joined.strip():
            skipped = next(i for i, line in enumerate(content) if line.strip())
            cells.append(Cell(joined, markdown, tags, first + skipped))

    for number, line in enumerate(lines[start:], start + 1):
        mark = MARK.match(line)
        if mark is None:
            body.append(line)
            continue
        finish()
        markdown, body, first = mark["markdown"] is not None, [], number + 1
        tags = _tags(mark["tags"], number) if mark["tags"] else ()
    finish()
    return cells


def to_notebook(cells: list[Cell]) -> str:
    """Return the cells as the text of an .ipynb file."""
    notebook = {
        "cells": [_as_json(number, cell) for number, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def without_magics(text: str) -> str:
    """Comment out IPython's `%magic`, `!command`, `help?` and `x = !command` lines, so that Python can read the rest.

    Text that Python can read does not change, because a line of such a text may begin with the operator %.
    """
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        ast.parse(text)
        return text
    return "\n".join(_without_magic(line) for line in text.split("\n"))


def place(found: list[Cell], line: int, name: str) -> str:
    """Name a line: `cell 3, line 7` in a notebook, `line 40` in a Python file.

    Cells of code are counted from 1, as Jupyter numbers the cells when it runs all of them in order.
    """
    code = [cell for cell in found if not cell.markdown and cell.line <= line]
    if not name.endswith(".ipynb") or not code:
        return f"line {line}"
    return f"cell {len(code)}, line {line - code[-1].line + 1}"


def _without_magic(line: str) -> str:
    if found := MAGIC.match(line):
        return f"{found[1]}pass  # {line.strip()}"
    if found := ASSIGNED.match(line):
        return f"{found[1]}None  # {line.strip()}"
    return line


def _tags(text: str, line: int) -> tuple[str, ...]:
    try:
        return tuple(map(str, json.loads(text)))
    except (ValueError, RecursionError):
        raise ValueError(f"line {line}: tags={text[:60]} is not a list of texts") from None


def _after_header(lines: list[str]) -> int:
    """Return how many lines the `# ---` header takes."""
    if lines and lines[0] == "# ---" and "# ---" in lines[1:]:
        return lines.index("# ---", 1) + 1
    return 0


def _uncommented(line: str) -> str:
    return line[2:] if line.startswith("# ") else line.removeprefix("#")


def _as_json(number: int, cell: Cell) -> dict[str, Any]:
    code: dict[str, Any] = {} if cell.markdown else {"execution_count": None, "outputs": []}
    return {
        "cell_type": "markdown" if cell.markdown else "code",
        "id": f"cell-{number}",
        "metadata": {"tags": list(cell.tags)} if cell.tags else {},
        "source": cell.text.splitlines(keepends=True),
        **code,
    }


def _read_notebook(text: str, name: str) -> list[Cell]:
    try:
        entries = json.loads(text)["cells"]
        cells, line = [], 1
        for entry in entries:
            source = "".join(entry["source"])
            tags = tuple(str(tag) for tag in entry.get("metadata", {}).get("tags", ()))
            cells.append(Cell(source, entry["cell_type"] != "code", tags, line))
            line += source.count("\n") + 1
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{name} is not a notebook: {type(error).__name__}: {error}") from None
    return cells
