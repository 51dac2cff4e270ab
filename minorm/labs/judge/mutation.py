"""Grading tests by planting bugs: a good test passes on the right implementation and fails on a wrong one.

The student's tests get an implementation whose functions run in the judge's process, so they cannot look at its code.
Each implementation meets them in a fresh process, in an order that nobody knows, and the right one comes several times:
tests that remember answers, or count implementations, learn nothing. A bug counts as found where the tests fail twice,
so tests that fail at random find next to none. Tests that find none at all get no point for passing on the right one
either: an empty one would. Nor is there anything to compare with: the library's normalizations, torch and the like are
closed in that process, and say so.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from minorm.labs.calling.student import TESTS, Failure, Student
from minorm.labs.scores import Outcome

Implementation = Mapping[str, Callable[..., object]]
Planted = Mapping[str, Implementation] | Callable[[], Mapping[str, Implementation]]
RIGHT = "your tests pass on the right implementation"
REPEATS = 3  # of the right one
FAILS = 2  # times that a bug must be found
_NAMELESS = ""  # the right one's place among the names of the bugs


@dataclass(frozen=True)
class Mutants:
    """A right implementation and wrong ones by name; a point for each, and one for passing the right one."""

    task: str
    right: Implementation
    planted: Planted  # or a function that gives those of the variant
    visible: bool
    seconds: float  # for one run of all tests

    @property
    def points(self) -> float:
        """One for the right implementation, which needs a bug found as well, and one for each bug."""
        return 1.0 + len(self.bugs)

    @property
    def bugs(self) -> Mapping[str, Implementation]:
        """The wrong ones, of the variant that is asked."""
        return self.planted() if callable(self.planted) else self.planted

    def run(self, student: Student, _seed: int) -> list[Outcome]:
        """A row for the right implementation and one for each bug, in an order that follows from nothing."""
        right = Outcome(self.task, RIGHT, 1.0, visible=self.visible)
        planted = self.bugs
        bugs = {name: Outcome(self.task, f"bug: {name}", 1.0, visible=self.visible) for name in planted}
        order = [*list(planted) * FAILS, *[_NAMELESS] * REPEATS]
        random.SystemRandom().shuffle(order)
        for name in order:
            if name == _NAMELESS:
                right = self._on_right(student, right)
            elif bugs[name].status in ("not run", "passed"):  # once missed, a bug is missed
                bugs[name] = self._on_bug(student, bugs[name], planted[name])
            undone = next((row for row in (right, *bugs.values()) if row.status == "not done"), None)
            if undone is not None:
                right = right.but(status=undone.status, earned=0.0, got=undone.got, cause=undone.cause)
            if right.status not in ("not run", "passed"):
                break
        if right.status != "passed":
            said = "nothing: the tests must pass on the right implementation first"
            none = Outcome("", "", 0.0, 0.0, "wrong", expected="a test that fails", got=said)
            blame = right if right.status == "not done" else none
            bugs = {
                name: row.but(status=blame.status, earned=0.0, expected=blame.expected, got=blame.got, cause=None)
                for name, row in bugs.items()
            }
        elif all(row.status == "wrong" for row in bugs.values()):
            right = right.but(status="wrong", earned=0.0, expected="tests that also find a bug", got="they find none")
        return [right, *bugs.values()]

    def _on_right(self, student: Student, row: Outcome) -> Outcome:
        start = time.monotonic()
        try:
            failed = self._failed(student, self.right)
        except Failure as failure:
            return row.but(status=failure.status, earned=0.0, got=str(failure), cause=failure.__cause__)
        row = row.but(seconds=row.seconds + time.monotonic() - start)
        if failed:
            return row.but(status="wrong", earned=0.0, expected="every test passes", got=failed)
        return row.but(status="passed", earned=row.points)

    def _on_bug(self, student: Student, row: Outcome, implementation: Implementation) -> Outcome:
        start = time.monotonic()
        try:
            failed = self._failed(student, implementation)
        except Failure as failure:
            return row.but(status=failure.status, earned=0.0, got=str(failure), cause=failure.__cause__)
        row = row.but(seconds=row.seconds + time.monotonic() - start)
        if not failed:
            return row.but(status="wrong", earned=0.0, expected="a test that fails", got="every test passes")
        return row.but(status="passed", earned=row.points)

    def _failed(self, student: Student, implementation: Implementation) -> str:
        """The test that failed and what it said, or an empty text."""
        student.fresh(TESTS)
        student.allow(self.seconds, TESTS)
        for result in student.tests(implementation):
            if result["error"] is not None:
                return f"{result['name']} fails: {result['error']}"[:400]
        return ""
