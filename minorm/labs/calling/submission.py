"""Loads a student's file as a module, without the statements that fail.

Cells run one after the other, as in the notebook, but each statement runs separately: if a statement fails, the notes
say so and the other statements still run. So a missing package or a broken cell costs only its own task. Cells tagged
"check" or "plot" belong to the lab and are left out.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from minorm.labs import cells

LEFT_OUT = {"check", "plot"}
QUICK = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)  # statements that take no time of the student's
_CELLS: dict[str, list[cells.Cell]] = {}  # of each file that was loaded, to say where in it a line stands
NAME = "submission"


def load(text: str, file: str, running: Callable[[str], Any] | None = None) -> tuple[ModuleType, list[str]]:
    """Run the text as a module. Return the module, and a line for each statement that failed.

    Before each statement that may take long, `running` is called with the statement's place in the file.
    """
    module = ModuleType(NAME)
    module.__file__ = file
    sys.modules[NAME] = module
    notes: list[str] = []
    _CELLS[file] = cells.read(text, file)
    code = [cell for cell in _CELLS[file] if not cell.markdown and not LEFT_OUT & set(cell.tags)]
    _show_in_tracebacks(code, file)
    for cell in code:
        try:
            tree = ast.parse(cells.without_magics(cell.text), file)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = cell.line - 1 + (getattr(error, "lineno", None) or 1)
            where = place(file, line)
            notes.append(f"{where}: {type(error).__name__}: {getattr(error, 'msg', error)}; the cell is left out")
            continue
        ast.increment_lineno(tree, cell.line - 1)
        for statement in tree.body:
            if running is not None and not isinstance(statement, QUICK):
                running(place(file, statement.lineno))
            try:
                exec(compile(ast.Module([statement], []), file, "exec"), module.__dict__)
            except BaseException as error:  # noqa: BLE001  sys.exit as well: it ends a statement here, not the grader
                notes.append(f"{place(file, statement.lineno)}: {describe(error)}")
    return module, notes


def imports(text: str) -> list[str]:
    """Return the names of the modules that the file imports anywhere; the file may be a notebook in JSON."""
    names = re.findall(r"(?:^|\\n|[\"\s])(?:import|from)\s+([A-Za-z_][\w.]*)", text)
    return [name for name in dict.fromkeys(names) if all(part.isidentifier() for part in name.split("."))]


def describe(error: BaseException) -> str:
    """Return `ValueError: its message` on one short line."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  an exception class of the student's
        text = "(its message cannot be shown)"
    return " ".join(f"{type(error).__name__}: {text}".split())[:400].removesuffix(":")


def place(file: str, line: int) -> str:
    """Return `cell 3, line 7` or `line 40` of a loaded file."""
    return cells.place(_CELLS.get(file, []), line, file)


def place_of(error: BaseException, file: str) -> str:
    """Return the last place in the student's file that the error passed through; empty if there is no such place."""
    line = line_of(error, file)
    return "" if line is None else place(file, line)


def line_of(error: BaseException, file: str) -> int | None:
    """Return the last line of the student's file that the error passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == file), None)


def _show_in_tracebacks(code: list[Any], file: str) -> None:
    """Give the lines of a student's file to linecache, so that tracebacks show the lines if there is no such file."""
    lines: list[str] = []
    for cell in code:
        lines += ["\n"] * (cell.line - 1 - len(lines))
        lines += [line + "\n" for line in cell.text.split("\n")]
    linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
