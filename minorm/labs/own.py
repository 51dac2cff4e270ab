"""Loads a teacher's own labs from a folder DIR, which `--lab-dir DIR` names, with a folder for each lab.

    DIR/lab20_averaging_weights/
        checks.py      LAB = Lab(20, "lab20_averaging_weights", ...) and its checks
        solution.py    the whole notebook, solved; the students' notebook is made from it (see stubs)
        beside.py      functions that run next to a student's module, if checks call them with `student.drive`
        mistakes.md    common mistakes, for `--hint`; a table like minorm/labs/judge/mistakes.md

A lab of the course has the same files, with longer names. The judge imports checks.py as part of a package, so that
checks.py may say `from .beside import state`. A student's process receives the text of beside.py, and sees none of
these files.
"""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from minorm.labs.lab import Lab
from minorm.support.safe_names import quoted

NAME = re.compile(r"lab(\d+)_\w+")
FILES = "a lab has the files checks.py and solution.py, and may have beside.py and mistakes.md"


def folders(lab_dir: Path) -> dict[int, Path]:
    """Return a dict from the number of each lab in `lab_dir` to the lab's folder.

    FileNotFoundError is raised if `lab_dir` does not exist, and ValueError if it has no labs.

    If a folder is a link, its name in `lab_dir` counts, not the name of the link's target.
    """
    if not lab_dir.is_dir():
        raise FileNotFoundError(
            f"labs: there is no folder {quoted(str(lab_dir))}; expected a folder with labs of your own"
        )
    found: dict[int, Path] = {}
    for folder in sorted(path for path in lab_dir.resolve().iterdir() if path.is_dir()):
        if named := NAME.fullmatch(folder.name):
            number = int(named[1])
            if number in found:
                raise ValueError(f"labs: {found[number].name} and {folder.name} are both lab {number}")
            found[number] = folder
    if not found:
        raise ValueError(f"labs: {quoted(str(lab_dir))} has no labs; expected folders such as lab20_title; {FILES}")
    return found


def load(folder: Path) -> Lab:
    """Load the lab in a folder. FileNotFoundError and ValueError say what is missing or wrong, and where."""
    place = f"labs: {folder.parent.name}/{folder.name}"
    path = folder / "checks.py"
    if not path.is_file():
        raise FileNotFoundError(f"{place}: checks.py is missing; {FILES}")
    module = _imported(folder, place)
    lab = getattr(module, "LAB", None)
    if not isinstance(lab, Lab):
        raise ValueError(f"{place}: checks.py has no LAB; expected LAB = Lab({_number(folder)}, {folder.name!r}, ...)")
    if (lab.number, lab.file) != (_number(folder), folder.name):
        raise ValueError(
            f"{place}: checks.py has Lab({lab.number}, {lab.file!r}, ...); expected the folder's number and name, "
            f"Lab({_number(folder)}, {folder.name!r}, ...)"
        )
    others = [task for task in lab.tasks if not re.fullmatch(rf"{lab.number}\.\d+", task)]
    if others or not lab.items:
        raise ValueError(
            f"{place}: checks.py has {f'task {others[0]!r}' if others else 'no checks'}; expected checks of tasks "
            f'"{lab.number}.1", "{lab.number}.2" and so on'
        )
    lab.module, lab.folder = module.__name__, folder
    _require_python(lab.beside.text, f"{place}/beside.py")
    return lab


def solution(lab: Lab) -> Path:
    """Return the path of the solved notebook; raise FileNotFoundError if it is missing, as in a folder for students."""
    assert lab.folder is not None
    path = lab.folder / "solution.py"
    if not path.is_file():
        raise FileNotFoundError(f"labs: {lab.folder.parent.name}/{lab.file}: solution.py is missing; {FILES}")
    return path


def _number(folder: Path) -> int:
    named = NAME.fullmatch(folder.name)
    assert named is not None
    return int(named[1])


def _imported(folder: Path, place: str) -> ModuleType:
    """Import the lab's checks.py as a module of a new package."""
    package = ModuleType(f"{__name__}.{folder.name}")
    package.__path__ = [str(folder)]
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{package.__name__}.")]:
        del sys.modules[name]
    sys.modules[package.__name__] = package
    importlib.invalidate_caches()  # a folder's time is too coarse to tell that a file is newer
    try:
        return importlib.import_module(f"{package.__name__}.checks")
    except Exception as error:
        raise ValueError(f"{place}: {_where(error, folder)}{type(error).__name__}: {error}") from error


def _where(error: Exception, folder: Path) -> str:
    """Return a text such as `checks.py, line 7: `.

    It names the last line in the lab's folder that the error passed through.
    """
    if isinstance(error, SyntaxError):
        return f"{Path(error.filename or '').name}, "  # it names its line
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == folder]
    return f"{Path(lines[-1].filename).name}, line {lines[-1].lineno}: " if lines else ""


def _require_python(text: str, name: str) -> None:
    try:
        compile(text, name, "exec")
    except SyntaxError as error:
        raise ValueError(f"{name}, line {error.lineno}: SyntaxError: {error.msg}") from error
