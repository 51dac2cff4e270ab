"""The watcher names each argument that a function changes in place, and changes nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from minorm.labs import catalogue
from minorm.labs.beside import Beside
from minorm.labs.calling import submission
from minorm.labs.calling.student import Here
from minorm.labs.calling.watching import LARGEST, Watched, WatchedModule
from minorm.labs.remote import Remote

TEXT = """\
def double(x, by=2):
    x *= by
    return x


def many(*values, out):
    values[1][0] = 7
    out.append(object())
    return 1
"""
LAB = Beside("minorm.labs.beside.lab00_axes")


def test_arguments_that_a_function_changes() -> None:
    student = Here(submission.load(TEXT, "mine.py")[0], LAB)
    x = np.ones(3)
    student.double(x)
    student.double(2.0)
    student.double(np.zeros(3))  # 2 * 0 is 0: nothing has changed
    student.many(x, x, out=[1])
    assert student.remarks == [
        "double changes its argument x in place",
        "many changes its argument 2 in place",
        "many changes its argument out in place",
    ]
    assert x.tolist() == [1, 1, 1]  # it was a copy


def test_a_process_says_so_too() -> None:
    with Remote(TEXT, "mine.py", LAB, 0) as remote:
        remote.allow(20)
        assert remote.double(np.ones(2), by=3.0).tolist() == [3, 3]
        assert remote.remarks == ["double changes its argument x in place"]


def test_functions_that_the_lab_calls_are_watched(judge_changed: Any) -> None:
    """Lab 1's forward is called by a layer; the note stands at its checks alone, and costs nothing by itself."""
    report = judge_changed(1, ("    x4 = four(nest, x)\n", "    x4 = four(nest, x)\n    x[:] = x + 0.5\n"))
    noted = {row.task for row in report.outcomes if row.remark}
    assert noted == {"1.5"}
    assert "forward changes its argument x in place" in str(report)


def test_what_cannot_be_sent_or_is_large_is_left_alone() -> None:
    changed: list[list[str]] = []

    def spoil(model: Any, x: Any) -> Any:
        model.append(object())
        x += 1
        return model

    model = [object()]
    assert Watched(spoil, "spoil", changed)(model, np.zeros(LARGEST // 8 + 1)) is model
    assert not changed


def test_a_watched_module_is_the_module() -> None:
    text = (catalogue.CHECKOUT / "solutions" / "lab12_capstone.py").read_text()
    module, _ = submission.load(text, "mine.py")
    watched = WatchedModule(module, [])
    assert watched.everything.__globals__ is module.__dict__
    assert watched.mn is module.mn
    assert Path(watched.__file__).name == "mine.py"
