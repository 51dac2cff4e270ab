"""Finds labs and their notebooks, which lie beside the package in a wheel and in examples/labs in a checkout.

If `lab_dir` is given, the functions find the labs of a teacher's own folder instead (see own).
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

from minorm.labs import checks, own
from minorm.labs.lab import Lab
from minorm.labs.stubs import stub
from minorm.labs.varied import rendering

PACKAGED = Path(__file__).resolve().parent / "notebooks"
CHECKOUT = Path(__file__).resolve().parents[2] / "examples" / "labs"


def numbers(lab_dir: str | Path | None = None) -> list[int]:
    """Return the numbers of all labs."""
    return sorted(_modules() if lab_dir is None else own.folders(Path(lab_dir)))


def find(number: int, lab_dir: str | Path | None = None) -> Lab:
    """Return the lab with this number; raise ValueError if there is no such lab."""
    there = numbers(lab_dir)
    if number not in there:
        raise ValueError(f"there is no lab {number}; expected one of {', '.join(map(str, there))}")
    if lab_dir is not None:
        return own.load(own.folders(Path(lab_dir))[number])
    module = f"{checks.__name__}.{_modules()[number]}"
    lab = importlib.import_module(module).LAB
    assert isinstance(lab, Lab)
    lab.module = module
    return lab


def course(lab_dir: str | Path | None = None) -> list[Lab]:
    """Return all labs in the order of a course: by number, but each after the labs that it needs.

    ValueError is raised if labs need each other in a circle.
    """
    labs = {number: find(number, lab_dir) for number in numbers(lab_dir)}
    placed: dict[int, Lab] = {}

    def place(number: int, waiting: tuple[int, ...]) -> None:
        if number in waiting:
            circle = " needs ".join(map(str, [*waiting[waiting.index(number) :], number]))
            raise ValueError(f"labs: the needs of labs form a circle: lab {circle}")
        if number in labs and number not in placed:
            for needed in sorted(labs[number].needs):
                place(needed, (*waiting, number))
            placed[number] = labs[number]

    for number in labs:
        place(number, ())
    return list(placed.values())


def before(lab: Lab) -> list[Lab]:
    """Return the labs that this lab needs; a needed number without a lab is left out.

    If a teacher's folder and the course both have a lab with a needed number, the lab in the folder is returned.
    """
    own_numbers = [] if lab.lab_dir is None else numbers(lab.lab_dir)
    there = numbers()
    wanted = sorted(number for number in lab.needs if number in own_numbers or number in there)
    return [find(number, lab.lab_dir if number in own_numbers else None) for number in wanted]


def notebook(lab: Lab) -> str:
    """Return the text of the lab's file with stubs, in the percent format; raise FileNotFoundError if it is missing."""
    return rendering.rendered(_plain_notebook(lab), lab.variants, lab.variant)


def _plain_notebook(lab: Lab) -> str:
    """Return the text of the plain lab's notebook. The notebook of a variant is made from this text."""
    if lab.folder is not None:
        path = own.solution(lab)
        try:
            return stub(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"labs: {path.parent.parent.name}/{lab.file}/solution.py: {error}") from None
    for folder in (PACKAGED, CHECKOUT):
        path = folder / f"{lab.file}.py"
        if path.exists():
            return path.read_text(encoding="utf-8")
    raise FileNotFoundError(f"lab {lab.number}: {lab.file}.py is neither in {PACKAGED} nor in {CHECKOUT}")


def reference(lab: Lab) -> Path | None:
    """Return the path of the solved lab; None if there is no such file, as in an installed package."""
    path = CHECKOUT / "solutions" / f"{lab.file}.py" if lab.folder is None else lab.folder / "solution.py"
    return path if path.exists() else None


def _modules() -> dict[int, str]:
    """Return a dict from the number of each lab to the name of the module with its checks."""
    found = (re.fullmatch(r"lab(\d+)_\w+", module.name) for module in pkgutil.iter_modules(checks.__path__))
    return {int(match[1]): match[0] for match in found if match}
