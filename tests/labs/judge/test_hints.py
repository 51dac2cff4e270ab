"""Every row of the table of mistakes names an existing check, and a failed check gets its row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minorm.cli import main
from minorm.labs import catalogue
from minorm.labs.judge import hints, mutation
from minorm.labs.scores import Outcome


def titles(task: str) -> list[str]:
    """Return the titles of a task's rows in a report."""
    lab = catalogue.find(int(float(task)))
    found: list[str] = []
    for item in lab.items:
        if item.task == task:
            found += [f"bug: {name}" for name in item.bugs] if isinstance(item, mutation.Mutants) else [item.title]
    return found


def test_every_row_is_read() -> None:
    rows = [line for line in hints.TABLE.read_text().splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert len(hints.mistakes()) == len(rows) > 50
    assert {int(mistake.task.split(".")[0]) for mistake in hints.mistakes()} == set(catalogue.numbers())


@pytest.mark.parametrize("mistake", hints.mistakes(), ids=lambda mistake: f"{mistake.task} {mistake.words[:30]}")
def test_each_part_of_a_row_names_a_check_of_its_task(mistake: hints.Mistake) -> None:
    for part in mistake.checks:
        assert any(part in title or title in part for title in titles(mistake.task)), (part, titles(mistake.task))


@pytest.mark.parametrize(
    ("task", "title", "status", "said"),
    [
        ("1.1", "mean and variance", "wrong", "a common mistake here: `ddof=1`; the standard deviation"),
        (
            "6.6",
            "bug: eps in 16 bits",
            "wrong",
            "a common mistake here: the tests use a variance of 1 and the usual eps",
        ),
        (
            "4.1",
            "mean, var and m of a batch",
            "error",
            "common mistakes in task 4.1: the running statistics are changed",
        ),
        ("1.1", "mean and variance", "passed", ""),
        ("1.1", "mean and variance", "not done", ""),
        ("0.2", "a mask of axes", "wrong", ""),
    ],
)
def test_a_hint_is_for_an_answer_that_failed(task: str, title: str, status: str, said: str) -> None:
    hint = hints.hint(Outcome(task, title, 1.0, status=status))
    assert hint.startswith(said)
    assert bool(hint) == bool(said)


def test_the_command_names_a_mistake_and_an_autograder_only_where_it_is_asked_to(tmp_path: Path, capsys: Any) -> None:
    text = (catalogue.CHECKOUT / "solutions" / "lab01_forward.py").read_text()
    path = tmp_path / "mine.py"
    path.write_text(text.replace("np.sqrt(var + eps)", "(np.sqrt(var) + eps)"))
    for options, hinted in (([], True), (["--json"], False), (["--json", "--hint"], True)):
        assert main(["labs", "check", "1", str(path), *options]) == 1
        assert ("eps is added outside the root" in capsys.readouterr().out) == hinted
