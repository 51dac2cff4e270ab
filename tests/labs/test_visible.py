"""`check("1.1")` inside a notebook: a table, the student's exception, a refusal, or what was expected."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from minorm.labs import catalogue, visible
from minorm.labs.calling import submission
from minorm.labs.varied import rendering


def names(number: int, text: str | None = None) -> dict[str, Any]:
    return vars(submission.load(catalogue.notebook(catalogue.find(number)) if text is None else text, "x.py")[0])


def test_a_stub_refuses_by_its_task_in_one_line() -> None:
    with pytest.raises(NotImplementedError, match=r"^Task 1\.1: mean and population variance") as caught:
        visible.checker(1, names(1))("1.1")
    assert caught.value._render_traceback_() == [str(caught.value)]  # type: ignore[attr-defined]


def test_a_table_when_all_is_well() -> None:
    text = (catalogue.CHECKOUT / "solutions" / "lab01_forward.py").read_text()
    table = repr(visible.checker(1, names(1, text))("1.1"))
    assert "mean and variance   2 of 2    passed" in table
    assert "odd shapes" not in table  # hidden


def test_a_notebook_of_a_variant_is_checked_as_one() -> None:
    """It says which in the line VARIANT; another code, or none, is another lab."""
    lab = catalogue.find(1)
    variant = lab.variants.of(2027)
    text = (catalogue.CHECKOUT / "solutions" / "lab01_forward.py").read_text()
    mine = names(1, rendering.rendered(text, lab.variants, variant))
    assert re.search(r"xhat +2 of 2 +passed", repr(visible.checker(1, mine)("1.2")))
    for code in ("", lab.variants.of(2028).code):
        with pytest.raises(visible.CheckFailed, match=r"1\.2   xhat +0 of 2 +wrong"):
            visible.checker(1, {**mine, "VARIANT": code})("1.2")
    with pytest.raises(ValueError, match="lab01_forward has no variant 'ABC'"):
        visible.checker(1, {**mine, "VARIANT": "ABC"})("1.2")
    assert lab.variants.variant.code == ""


def test_a_wrong_answer_shows_what_was_expected_and_no_traceback_in_ipython() -> None:
    wrong = {"moments": lambda x, axes, centered=True: (x.mean(axes, keepdims=True), x.std(axes, keepdims=True))}
    with pytest.raises(visible.CheckFailed) as caught:
        visible.checker(1, wrong)("1.1")
    text = "\n".join(caught.value._render_traceback_())
    assert "expected  3.5 at [0, 0]" in text
    assert "got       1.87082869" in text


def test_the_students_own_exception_comes_through() -> None:
    def moments(x: Any, axes: Any, centered: bool = True) -> Any:
        return x.nothing

    with pytest.raises(AttributeError, match="nothing") as caught:
        visible.checker(1, {"moments": moments})("1.1")
    assert [entry.name for entry in caught.traceback][-1] == "moments"
    assert len(caught.traceback) == 3  # the test, check, the student


def test_a_function_that_is_not_there() -> None:
    with pytest.raises(NameError, match="there is no function moments"):
        visible.checker(1, {})("1.1")


def test_arguments_are_copies() -> None:
    def moments(x: Any, axes: Any, centered: bool = True) -> Any:
        x *= 0
        return x.mean(axes, keepdims=True), np.zeros(1)

    with pytest.raises(visible.CheckFailed, match="expected  3") as caught:
        visible.checker(1, {"moments": moments})("1.1")
    assert "note      moments changes its argument x in place" in str(caught.value)


def test_an_unknown_task_or_lab() -> None:
    with pytest.raises(ValueError, match=r"no visible checks for task '9\.9'; there are 1\.1"):
        visible.checker(1, {})("9.9")
    with pytest.raises(ValueError, match="there is no lab 99; expected one of 0, 1"):
        visible.checker(99, {})
