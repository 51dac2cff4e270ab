"""Defines a lab by its checks: task, points, and a function that calls the student's functions and compares.

    LAB = Lab(3, "lab03_backward", "Backward", "How does a gradient come through a mean and a variance?", minutes=90)

    @LAB.check("3.1", "the mean's part", points=2, visible=True)
    def mean_part(student, rng):
        g = rng.standard_normal((4, 6))
        close(student.through_mean(g, (1,)), g - g.mean(1, keepdims=True), "through_mean of 4x6 over (1,)")

A check earns all its points or none. `student.name(...)` runs the student's function, in this or another process. `rng`
is seeded with the check's name, so the numbers of a check do not depend on other checks. Visible checks also run in the
notebook, with other numbers than in grading.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from minorm.labs.beside import Beside
from minorm.labs.calling.allowance import DEADLINE
from minorm.labs.calling.student import Failure, Student
from minorm.labs.comparing import Wrong
from minorm.labs.judge import cascade, mutation
from minorm.labs.judge.recognizing import Failed, Recognizer, hinted
from minorm.labs.scores import Outcome
from minorm.labs.sealed.process import NotSealed
from minorm.labs.varied.choices import PLAIN, Variant, Variants

Question = Callable[[Any, np.random.Generator], None]  # (student, rng); `student` is Any, for its attributes are free
SECONDS = 10.0
PATH = os.pathsep.join([os.path.dirname(sys.executable), *os.get_exec_path()])  # compilers are there
PIP = {"sklearn": "scikit-learn"}  # if the name to install differs from the name to import


@dataclass(frozen=True)
class Check:
    """A check and its points. seconds: how long the student's functions may take in this check"""

    task: str
    title: str
    points: float
    visible: bool
    seconds: float
    ask: Question

    def run(self, student: Student, seed: int) -> list[Outcome]:
        """Run the check and return its row."""
        start = time.monotonic()
        row = Outcome(self.task, self.title, self.points, visible=self.visible)
        try:
            student.remarks.clear()
            student.calls.clear()
            student.allow(self.seconds)
            self.ask(student, generator(self.task, self.title, seed))
        except Wrong as wrong:
            row = row.but(status="wrong", what=wrong.what, expected=wrong.expected, got=wrong.got)
        except Failure as failure:
            row = row.but(status=failure.status, got=str(failure), cause=failure.__cause__)
        except (ImportError, NotSealed):  # a missing package or this machine's walls: not the student's mistake
            raise
        except Exception as error:  # noqa: BLE001  an answer that the check cannot even look at
            row = row.but(status="wrong", expected="another kind of answer", got=f"{type(error).__name__}: {error}")
        else:
            row = row.but(status="passed", earned=self.points)
        remark, seconds = "; ".join(dict.fromkeys(student.remarks)), time.monotonic() - start
        failures = []
        if row.status == "passed":
            student.right.extend(student.calls)
        elif row.status in ("wrong", "error"):
            failures = [Failed(list(student.calls), student.right)]
        return [row.but(remark=remark, failures=failures, seconds=seconds)]


@dataclass
class Lab:
    """A lab: its name, what it asks, and its checks in order.

    file     the name of the notebook, without its ending: examples/labs/FILE.py
    minutes  how long a student works on the lab
    needs    numbers of the labs that come before this lab; they determine the order of a course (see catalogue)
    packages  the packages that solutions and checks import, beside NumPy
    programs  names of programs, of which solutions and checks need one
    writes   whether solutions write files: compiled libraries, checkpoints
    memory   MB of address space that a submission may use; 0 means no limit (CUDA reserves far more than it uses)
    deadline  seconds for loading a submission and all checks together
    variants  the differences from year to year; variant: the current variant, by default the plain lab
    """

    number: int
    file: str
    title: str
    question: str
    minutes: int
    needs: tuple[int, ...] = ()
    items: list[Check | mutation.Mutants] = field(default_factory=list)
    packages: Sequence[str] = ()
    programs: Sequence[str] = ()
    writes: bool = False
    memory: int = 4096
    deadline: float = DEADLINE
    variants: Variants = field(default_factory=Variants)
    variant: Variant = PLAIN
    module: str = ""  # where the checks stand; the catalogue fills it in
    folder: Path | None = None  # the folder of a teacher's own lab; own fills it in
    provided: dict[str, cascade.Functions] = field(default_factory=dict)  # right ones, by task
    recognizer: Recognizer | None = None  # of typical mistakes

    def check(
        self, task: str, title: str, points: float = 1, visible: bool = False, seconds: float = SECONDS
    ) -> Callable[[Question], Question]:
        """Return a decorator that adds a function (student, rng) to the lab as a check."""

        def declare(ask: Question) -> Question:
            self.items.append(Check(task, title, points, visible, seconds, ask))
            return ask

        return declare

    def mutants(
        self,
        task: str,
        right: mutation.Implementation,
        planted: mutation.Planted,
        visible: bool = False,
        seconds: float = SECONDS,
    ) -> None:
        """Grade the student's test_ functions: a point for passing the right implementation, one for each bug found.

        An implementation is a dict of functions by name, and the tests get an object with these functions. If variants
        have different bugs, `planted` is a function that returns the current variant's bugs. Each variant has the same
        number of bugs.
        """
        self.items.append(mutation.Mutants(task, right, planted, visible, seconds))

    def provide(self, task: str, **functions: Callable[..., Any]) -> None:
        """Provide right functions for this task, under the names of the students' functions; `cascade` uses them.

        Wrap a function in `Sent` if it takes a model or another object that a message cannot hold.
        """
        self.provided[task] = functions

    def missing(self) -> str:
        """Return a text that names what the lab needs but this machine does not have; "" if nothing is missing."""
        lacking = [PIP.get(name, name) for name in self.packages if importlib.util.find_spec(name) is None]
        words = [f"{' and '.join(lacking)} (pip install {' '.join(lacking)})"] if lacking else []
        if self.programs and not any(shutil.which(program, path=PATH) for program in self.programs):
            words.append(f"a compiler, {' or '.join(self.programs)}")
        return f"lab {self.number} needs {' and '.join(words)}, which this machine lacks" if words else ""

    def require(self) -> None:
        """Raise ImportError if this machine lacks something that the lab needs.

        Without it, right answers would count as wrong.
        """
        if lacking := self.missing():
            raise ImportError(lacking)

    @property
    def beside(self) -> Beside:
        """The module whose functions run beside the student's code, if the lab has one."""
        if self.folder is None:
            return Beside(f"minorm.labs.beside.{self.file}")
        path = self.folder / "beside.py"
        return Beside(f"minorm.labs.own.{self.file}.beside", path.read_text("utf-8") if path.is_file() else "")

    @property
    def lab_dir(self) -> Path | None:
        """The folder with a teacher's own labs, if this lab is one of them; None for a lab of the course."""
        return self.folder and self.folder.parent

    @property
    def seconds(self) -> float:
        """The seconds that a submission has in all: the deadline, or the longest check's limit if that is more."""
        return max([self.deadline, *(item.seconds for item in self.items)])

    @property
    def points(self) -> float:
        """The number of points that a submission can earn."""
        return sum(item.points for item in self.items)

    @property
    def tasks(self) -> list[str]:
        """The tasks, in order."""
        return list(dict.fromkeys(item.task for item in self.items))

    def of_task(self, task: str) -> Lab:
        """Return the same lab with the checks of one task only; raise ValueError if there is no such task."""
        if task not in self.tasks:
            raise ValueError(f"lab {self.number} has no task {task!r}; expected one of {', '.join(self.tasks)}")
        return replace(self, items=[item for item in self.items if item.task == task])

    def of_variant(self, variant: Variant) -> Lab:
        """Return the same lab with the constants, layouts and bugs of a variant."""
        return replace(self, variant=variant)

    def run(self, student: Student, seed: int) -> list[Outcome]:
        """Run all checks."""
        with self.variants.using(self.variant):
            return hinted(cascade.run(self.items, student, seed, self.provided), self.recognizer)


def generator(task: str, title: str, seed: int) -> np.random.Generator:
    """Return the random generator of one check."""
    return np.random.default_rng([seed, zlib.crc32(f"{task} {title}".encode())])
