"""The labs there are, and where their notebooks lie: beside the package in a wheel, in examples/labs in a checkout.

With `lab_dir`, they are those of a teacher's own folder instead (see own).
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
    """The numbers of all labs."""
    return sorted(_modules() if lab_dir is None else own.folders(Path(lab_dir)))


def find(number: int, lab_dir: str | Path | None = None) -> Lab:
    """The lab with this number; ValueError where there is none."""
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


def notebook(lab: Lab) -> str:
    """The text of the lab's file with stubs, in the percent format. FileNotFoundError where it is not here."""
    return rendering.rendered(_plain_notebook(lab), lab.variants, lab.variant)


def _plain_notebook(lab: Lab) -> str:
    """The text without a variant."""
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
    """The solved lab, which earns full marks; None in an installed package, which has no solutions."""
    path = CHECKOUT / "solutions" / f"{lab.file}.py" if lab.folder is None else lab.folder / "solution.py"
    return path if path.exists() else None


def _modules() -> dict[int, str]:
    """Number -> name of the module of checks."""
    found = (re.fullmatch(r"lab(\d+)_\w+", module.name) for module in pkgutil.iter_modules(checks.__path__))
    return {int(match[1]): match[0] for match in found if match}
