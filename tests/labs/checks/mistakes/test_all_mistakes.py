"""Each typical mistake is named in a solution that makes it, and the class that the mistakes change is right.

Beside this file, lab by lab, lie solutions with one mistake, written in another way than the classes that recognize it.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from minorm.labs import catalogue
from minorm.labs.checks import mistakes

HERE = Path(__file__).parent
NUMBERS = {int(path.stem[3:5]): path.stem for path in sorted(HERE.glob("lab*.py"))}
MADE = {number: importlib.import_module(f"tests.labs.checks.mistakes.{file}").MADE for number, file in NUMBERS.items()}
# The task whose functions the mistakes concern; the lab's other tasks take long.
TASK = {15: "15.4"}
# Checks that want more than functions of numbers, which is all that the right class has.
BEYOND = {
    13: {"13.5 your forward in BatchNorm", "13.5 in Layer-, Group- and InstanceNorm"},
    14: {
        "14.3 each Var passes its gradient on once, when all of it has come",
        "14.6 gradients come to every parameter through your graph",
    },
}


def module_of(number: int) -> Any:
    return importlib.import_module(f"{mistakes.__name__}.{NUMBERS[number]}")


@pytest.fixture
def hinted(hints: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """hinted(1, ...): as hints(1, ...), with the checks of TASK alone."""

    def found(number: int, *changes: Any) -> dict[str, str]:
        lab = catalogue.find(number)
        if number in TASK:
            monkeypatch.setattr(lab, "items", lab.of_task(TASK[number]).items)
        return hints(number, *changes)

    return found


def test_every_lab_with_mistakes_has_solutions_that_make_them() -> None:
    there = {path.stem for path in Path(mistakes.__file__).parent.glob("lab*.py")}
    assert set(NUMBERS.values()) == there


@pytest.mark.parametrize("number", NUMBERS)
def test_right_answers_pass_every_check(hinted: Any, number: int) -> None:
    """The class that the mistakes change is right by the lab's own checks."""
    assert set(hinted(number, module_of(number).Right())) == BEYOND.get(number, set())


@pytest.mark.parametrize("number", NUMBERS)
def test_every_mistake_has_a_solution_that_makes_it(number: int) -> None:
    names = {name.split(maxsplit=1)[0] for name in MADE[number]}
    assert names == {mistake.__name__ for mistake in module_of(number).RECOGNIZER.mistakes}


@pytest.mark.parametrize(
    ("number", "mistake"), [(number, mistake) for number, made in MADE.items() for mistake in made]
)
def test_it_is_named(hinted: Any, number: int, mistake: str) -> None:
    words = " ".join(getattr(module_of(number), mistake.split(maxsplit=1)[0]).__doc__.split())
    said = {hint for hint in hinted(number, *MADE[number][mistake]).values() if hint}
    assert said == {f"this is what you get when {words}"}
