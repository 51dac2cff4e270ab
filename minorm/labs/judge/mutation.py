"""Grades tests by planting bugs: a good test passes on the right implementation and fails on a wrong one.

The student's tests get an implementation whose functions run in the judge's process, so the tests cannot look at its
code. The implementations run in a secret random order, each in a fresh process, and the right one runs several times.
So tests that remember answers or count implementations learn nothing. A bug counts as found if the tests fail on it
twice, so tests that fail at random find hardly any bugs. Tests that find no bug get no point for the right
implementation, because an empty test passes too. Tests cannot compare with another library: minorm's normalizations,
torch and similar packages are closed in the tests' process and raise an error that says so.
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
REPEATS = 3  # runs of the right implementation
FAILS = 2  # times that a bug must be found
_RIGHT_NAME = ""  # the right implementation's place among the names of the bugs


@dataclass(frozen=True)
class Mutants:
    """A right implementation, and wrong ones by name.

    The student's tests get a point for each wrong implementation that they find, and one for passing the right one.
    """

    task: str
    right: Implementation
    planted: Planted  # or a function that returns those of the variant
    visible: bool
    seconds: float  # for one run of all tests

    @property
    def points(self) -> float:
        """The points: one for each bug, and one for passing the right implementation, if a bug is found."""
        return 1.0 + len(self.bugs)

    @property
    def bugs(self) -> Mapping[str, Implementation]:
        """The wrong implementations of the current variant."""
        return self.planted() if callable(self.planted) else self.planted

    def run(self, student: Student, _seed: int) -> list[Outcome]:
        """Run the student's tests on all implementations in a random order.

        Return a row for the right implementation and a row for each bug.
        """
        right = Outcome(self.task, RIGHT, 1.0, visible=self.visible)
        planted = self.bugs
        bugs = {name: Outcome(self.task, f"bug: {name}", 1.0, visible=self.visible) for name in planted}
        order = [*list(planted) * FAILS, *[_RIGHT_NAME] * REPEATS]
        random.SystemRandom().shuffle(order)
        for name in order:
            if name == _RIGHT_NAME:
                right = self._on_right(student, right)
            elif bugs[name].status in ("not run", "passed"):  # once missed, a bug is missed
                bugs[name] = self._on_bug(student, bugs[name], planted[name])
            undone = next((row for row in (right, *bugs.values()) if row.status == "not done"), None)
            if undone is not None:
                right = right.but(status=undone.status, earned=0.0, got=undone.got, cause=undone.cause)
            if right.status not in ("not run", "passed"):
                break
        if right.status != "passed":
            said = "not run, because the tests must first pass on the right implementation"
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
        """Return the first test that failed and its message; return an empty text if all tests passed."""
        student.fresh(TESTS)
        student.allow(self.seconds, TESTS)
        for result in student.tests(implementation):
            if result["error"] is not None:
                return f"{result['name']} fails: {result['error']}"[:400]
        return ""
