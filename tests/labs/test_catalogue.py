"""The order of a course follows from the labs that each lab needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from minorm.labs import catalogue
from minorm.labs.lab import Lab

CHECKS = """
from minorm.labs.lab import Lab
LAB = Lab({number}, "lab{number}_x", "X", "?", minutes=1, needs={needs})
LAB.check("{number}.1", "x")(lambda student, rng: None)
"""


def folder(where: Path, needs: dict[int, tuple[int, ...]]) -> Path:
    """Write a folder of labs, each with the labs that it needs."""
    for number, needed in needs.items():
        (where / f"lab{number}_x").mkdir()
        (where / f"lab{number}_x" / "checks.py").write_text(CHECKS.format(number=number, needs=needed))
    return where


def order(where: Path, needs: dict[int, tuple[int, ...]]) -> list[int]:
    return [lab.number for lab in catalogue.course(folder(where, needs))]


def test_every_lab_stands_behind_those_that_it_needs() -> None:
    labs = [lab.number for lab in catalogue.course()]
    assert sorted(labs) == catalogue.numbers()
    for number in labs:
        needed = [lab.number for lab in catalogue.before(catalogue.find(number))]
        assert all(labs.index(before) < labs.index(number) for before in needed)
    assert labs.index(2) < labs.index(6)
    assert 14 not in labs or labs.index(14) == labs.index(3) - 1
    assert catalogue.find(3).needs == (1, 14)


def test_by_number_where_nothing_else_is_said(tmp_path: Path) -> None:
    assert order(tmp_path, {23: (), 20: (), 21: ()}) == [20, 21, 23]


def test_what_a_lab_needs_is_pulled_in_front_of_it(tmp_path: Path) -> None:
    assert order(tmp_path, {20: (), 21: (20, 29), 22: (), 28: (20,), 29: (28,)}) == [20, 28, 29, 21, 22]


def test_a_lab_that_is_not_there_holds_up_nothing(tmp_path: Path) -> None:
    assert order(tmp_path, {20: (77,), 21: (20,)}) == [20, 21]


def test_a_circle(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the needs of labs form a circle: lab 21 needs 22 needs 21"):
        order(tmp_path, {20: (21,), 21: (22,), 22: (21,)})


def test_a_lab_of_ones_own_may_need_labs_of_the_course(tmp_path: Path) -> None:
    where = folder(tmp_path, {30: (), 31: (30, 4, 77)})
    found = catalogue.before(catalogue.find(31, where))
    assert [(lab.number, lab.title) for lab in found] == [(4, "Running statistics"), (30, "X")]


def test_nothing_comes_before_a_lab_that_needs_nothing() -> None:
    lab: Lab = replace(catalogue.find(3), needs=())
    assert catalogue.before(lab) == []
