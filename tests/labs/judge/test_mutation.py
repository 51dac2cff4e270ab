"""Tests that know the order, or fail by chance, find next to nothing; a stub costs one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.labs.calling.student import Failure, Student
from minorm.labs.judge.mutation import FAILS, REPEATS, RIGHT, Mutants

MUTANTS = Mutants(
    "3.5", {"f": lambda: 0}, {f"bug {n}": {"f": lambda n=n: n} for n in range(1, 6)}, visible=False, seconds=1.0
)
Verdict = Callable[[int, int], bool]


class Fake(Student):
    """Tests whose verdict is a function of the implementation's answer and of how many came before."""

    def __init__(self, fails: Verdict) -> None:
        self.notes, self.remarks = [], []
        self.fails, self.seen, self.begun = fails, 0, 0

    def fresh(self, where: Any = None) -> None:
        self.begun += 1

    def tests(self, implementation: Any) -> list[dict[str, Any]]:
        self.seen += 1
        return [{"name": "test", "error": "no" if self.fails(implementation["f"](), self.seen - 1) else None}]


def earned(fails: Verdict) -> tuple[float, Fake]:
    student = Fake(fails)
    rows = MUTANTS.run(student, 1)
    assert rows[0].title == RIGHT
    assert len(rows) == 6
    return sum(row.earned for row in rows), student


def test_right_tests_find_all_each_in_a_fresh_process() -> None:
    points, student = earned(lambda n, _: n > 0)
    assert points == MUTANTS.points == 6
    assert student.begun == student.seen == REPEATS + FAILS * 5


def test_some_bugs() -> None:
    assert earned(lambda n, _: n in (2, 4))[0] == 3


def test_nothing_and_everything_and_the_place_alone() -> None:
    assert earned(lambda *_: False)[0] == 0
    assert earned(lambda *_: True)[0] == 0
    for place in range(REPEATS + FAILS * 5):
        assert earned(lambda _, seen, place=place: seen == place)[0] == 0  # a bug must be found twice


def test_the_order_is_another_each_time() -> None:
    orders = set()
    for _ in range(8):
        order: list[int] = []
        earned(lambda n, _, order=order: order.append(n) or n > 0)  # type: ignore[func-returns-value]
        orders.add(tuple(order))
    assert len(orders) > 1


def test_a_stub_is_asked_once() -> None:
    class Stub(Fake):
        def tests(self, implementation: Any) -> list[dict[str, Any]]:
            self.seen += 1
            raise Failure("not done", "Task 3.5: tests")

    student = Stub(lambda *_: False)
    rows = MUTANTS.run(student, 1)
    assert {row.status for row in rows} == {"not done"}
    assert student.seen == 1
