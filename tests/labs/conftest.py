"""Solutions with something changed, and what the judge makes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.labs import catalogue, judging, submission
from minorm.labs.report import Report
from minorm.labs.student import Here

SOLUTIONS = Path(__file__).resolve().parents[2] / "examples" / "labs" / "solutions"


def changed(number: int, *changes: tuple[str, str]) -> str:
    """The text of a solution with each first text replaced by its second; each must occur."""
    text = (SOLUTIONS / f"{catalogue.find(number).file}.py").read_text()
    for old, new in changes:
        assert old in text, f"lab {number} has no {old!r}"
        text = text.replace(old, new)
    return text


Judge = Callable[..., Report]


@pytest.fixture
def judge_changed(tmp_path: Path) -> Judge:
    """judge_changed(1, (old, new), ...): the report on lab 1's solution with that change."""

    def judge(number: int, *changes: tuple[str, str], **options: Any) -> Report:
        path = tmp_path / "mine.py"
        path.write_text(changed(number, *changes))
        return judging.judge(catalogue.find(number), path, **options)

    return judge


@pytest.fixture
def lost() -> Callable[..., set[str]]:
    """lost(1, (old, new), ..., seed=1): the titles of the checks that a changed solution does not pass.

    It runs in this process: wrong answers do no harm, and a process for each would take minutes.
    """

    def titles(number: int, *changes: tuple[str, str], seed: int = 1) -> set[str]:
        lab = catalogue.find(number)
        module, notes = submission.load(changed(number, *changes), "mine.py")
        assert not notes
        with np.errstate(all="ignore"):
            rows = lab.run(Here(module, lab.beside), seed)
        return {row.title for row in rows if row.status != "passed"}

    return titles
