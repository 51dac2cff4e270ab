"""A wrong function costs only its own task, and students get no points for functions that are not theirs."""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minorm.labs import catalogue
from minorm.labs.calling import submission
from minorm.labs.calling.student import Failure, Here
from minorm.labs.judge import cascade
from minorm.labs.lab import Lab
from minorm.labs.scores import Outcome
from tests.labs.conftest import changed

slow = pytest.mark.slow
LONG = (7, 8, 12)  # labs whose checks take some seconds
PROVIDED = [number for number in catalogue.numbers() if catalogue.find(number).provided]


class Replaceable(Here):
    """A student in this process, whose functions can be replaced; `hangs` are functions that never come back."""

    def __init__(self, module: Any, lab: str, hangs: tuple[str, ...] = ()) -> None:
        super().__init__(module, lab)
        self._theirs = dict(vars(module))
        self.hung = 0
        for name in hangs:
            self._theirs[name] = self._hang
        self.replace({}, lambda _: None)

    def _hang(self, *_: Any, **__: Any) -> Any:
        self.hung += 1
        raise Failure("too slow", "no answer within 10 s")

    def ask(self, request: dict[str, Any], *others: Any, **options: Any) -> Any:
        try:
            return super().ask(request, *others, **options)
        except Failure as failure:
            if isinstance(failure.__cause__, Failure):
                raise failure.__cause__ from None
            raise

    def replace(self, functions: Mapping[str, Callable[..., Any]], used: Callable[[str], None]) -> None:
        def told(name: str, *args: Any, **options: Any) -> Any:
            used(name)
            return functions[name](*args, **options)

        vars(self._module).update({**self._theirs, **{name: functools.partial(told, name) for name in functions}})


def rows(
    number: int, *changes: tuple[str, str], hangs: tuple[str, ...] = (), tasks: Collection[str] = ()
) -> list[Outcome]:
    """Return the rows of all tasks, or of some."""
    lab = catalogue.find(number)
    some = dataclasses.replace(lab, items=[item for item in lab.items if item.task in (tasks or lab.tasks)])
    module, _ = submission.load(changed(number, *changes), "mine.py")
    with np.errstate(all="ignore"):
        return some.run(Replaceable(module, lab.beside, hangs), 1)


def tasks_lost(found: list[Outcome]) -> set[str]:
    return {row.task for row in found if row.earned < row.points}


DDOF = ("np.square(x - mean).mean(axis=axes, keepdims=True)", "x.var(axis=axes, keepdims=True, ddof=1)")


@pytest.mark.parametrize(
    ("number", "change", "task", "builds_on_it"),
    [
        (1, DDOF, "1.1", {"1.2", "1.4", "1.5"}),
        (1, ("np.sqrt(var + eps)", "(np.sqrt(var) + eps)"), "1.2", {"1.4"}),
        (0, ("range(mask.bit_length())", "range(mask.bit_length() - 1)"), "0.2", {"0.6"}),
        (0, ("    return keep, reduce", "    return reduce, keep"), "0.5", {"0.6"}),
        (4, ("x.size // x.shape[1]", "x.shape[0]"), "4.1", {"4.4"}),
        (4, ("return var * m / (m - 1)", "return var"), "4.2", {"4.4"}),
        (4, ("return seen / (seen + 1)", "return 0.9"), "4.3", {"4.4"}),
        (9, ("(weight * (var + (mean - middle) ** 2)).sum(0)", "(weight * var).sum(0)"), "9.1", {"9.2", "9.5"}),
        # the opset for the version; the file against the defaults; one mean a channel; N - 1; one scale a channel
        (10, ("    return max(older)", "    return opsets[domain]"), "10.1", {"10.7"}),
        (10, ("return defaults | said", "return said | defaults"), "10.2", {"10.3", "10.7"}),
        (10, ('not found["is_test"]', 'found["is_test"]'), "10.3", {"10.7"}),
        (10, ("range(1 + len(scale_shape), len(x_shape))", "range(2, len(x_shape))"), "10.4", {"10.5", "10.7"}),
        (10, ("wide.var(axes)", "wide.var(axes, ddof=1)"), "10.5", {"10.7"}),
        (10, ("groups if version == 18 else channels", "channels"), "10.6", {"10.7"}),
        # steps in bytes; merged across a broadcast scale; one scale a row
        (13, ("strides[i] // itemsize)", "strides[i])"), "13.1", {"13.2", "13.5"}),
        (13, ("loops[-1][1:] == (count * data, count * param[axis])", "loops[-1][1] == count * data"),
         "13.2", {"13.5"}),
        (13, ("positions(reduce, 2))", "0 * positions(reduce, 2))"), "13.3", {"13.5"}),
        # nothing summed; a mean without 1/m; the last gradient wins
        (14, ("    dy = dy.sum(axis=tuple(range(dy.ndim - len(shape))))\n", "    return dy\n"),
         "14.1", {"14.2", "14.3", "14.4", "14.6"}),
        (14, ("dy / m, shape", "dy, shape"), "14.2", {"14.3", "14.4", "14.6"}),
        (14, ("one.grad = one.grad + gradient", "one.grad = gradient"), "14.3", {"14.4", "14.6"}),
        # eps outside the root
        (16, ("c / np.sqrt(var + eps)", "c / (np.sqrt(var) + eps)"), "16.1", {"16.2", "16.5"}),
        (16, ("x / np.sqrt(ms + eps)", "x / (np.sqrt(ms) + eps)"), "16.1", {"16.3", "16.4"}),
    ],
)  # fmt: skip
def test_a_wrong_function_costs_its_own_task(
    number: int, change: tuple[str, str], task: str, builds_on_it: set[str]
) -> None:
    _costs_its_own_task(number, change, task, builds_on_it)


SHUFFLED = ("8.4", "8.5", "8.6")


@pytest.mark.parametrize(
    ("number", "change", "task", "builds_on_it", "tasks"),
    [
        # the last batches count most; in evaluation mode nothing is gathered
        (5, ("        layer.momentum = None\n", ""), "5.3", {"5.4"}, ("5.3", "5.4")),
        pytest.param(5, ("    model.train()\n    with mn.no_grad():\n", "    model.eval()\n    with mn.no_grad():\n"),
                     "5.3", {"5.4"}, (), marks=slow),
        # x^2 for c^2; the schedule stands still
        (12, ("(c * c).mean(axis=(2, 3), keepdims=True)", "(x4 * x4).mean(axis=(2, 3), keepdims=True)"),
         "12.1", {"12.2"}, ("12.1", "12.2")),
        pytest.param(12, ("            run.scheduler.step()\n", ""), "12.2", {"12.6"}, ("12.2", "12.6"), marks=slow),
        # a sum that forgets its end; the distance of chunks' means
        pytest.param(7, ("        total += x[i]\n        i += 1", "        i += 1"), "7.2", {"7.3"}, (), marks=slow),
        pytest.param(7, (" + delta * delta * n1 * n2 / (n1 + n2)", ""), "7.4", {"7.5"}, (), marks=slow),
        # only one thread of a warp gets the sum; a wrong d
        pytest.param(8, ("__shfl_xor_sync", "__shfl_down_sync"), "8.4", {"8.5", "8.6"}, SHUFFLED, marks=slow),
        pytest.param(8, ("d[blockIdx.x] = rest", "d[blockIdx.x] = 1"), "8.5", {"8.6"}, SHUFFLED, marks=slow),
        # a part of a checkpoint; what cannot learn any more; hardly trained
        pytest.param(12, ('("model", "optimizer", "scheduler", "loader")', '("model",)'),
                     "12.3", {"12.6"}, ("12.3", "12.6"), marks=slow),
        pytest.param(12, ("mn.onnx.load(path)\n", "mn.onnx.load(path).freeze()\n"),
                     "12.4", {"12.6"}, ("12.4", "12.6"), marks=slow),
        pytest.param(12, ("epochs=12, lr=0.02", "epochs=12, lr=1e-4"),
                     "12.5", {"12.6"}, ("12.5", "12.6"), marks=slow),
    ],
)  # fmt: skip
def test_a_wrong_kernel_or_loop_costs_its_own_task(
    number: int, change: tuple[str, str], task: str, builds_on_it: set[str], tasks: tuple[str, ...]
) -> None:
    _costs_its_own_task(number, change, task, builds_on_it, tasks)


def _costs_its_own_task(
    number: int, change: tuple[str, str], task: str, builds_on_it: set[str], tasks: tuple[str, ...] = ()
) -> None:
    if lacking := catalogue.find(number).missing():
        pytest.skip(lacking)
    found = rows(number, change, tasks=tasks)
    assert tasks_lost(found) == {task}
    remarked = {
        row.task for row in found if f"passes if the functions of {task} are replaced by right ones" in row.remark
    }
    assert remarked == builds_on_it
    assert all(row.status == "passed" for row in found if row.remark.startswith("passes if"))


def test_without_it_the_penalty_cascades() -> None:
    """`Here` replaces nothing, so the penalty still cascades; this shows that the tests above test something."""
    lab = catalogue.find(1)
    module, _ = submission.load(changed(1, DDOF), "mine.py")
    assert tasks_lost(lab.run(Here(module, lab.beside), 1)) == {"1.1", "1.2", "1.4", "1.5"}


def test_two_wrong_functions_cost_two_tasks_and_both_are_named() -> None:
    found = rows(1, DDOF, ("np.sqrt(var + eps)", "(np.sqrt(var) + eps)"))
    assert tasks_lost(found) == {"1.1", "1.2"}
    assert {row.remark for row in found if row.task == "1.4"} == {
        "passes if the functions of 1.2 are replaced by right ones"
    }  # normalize calls moments
    assert {row.remark for row in found if row.task == "1.5"} == {
        "passes if the functions of 1.1 are replaced by right ones"
    }


def test_a_mistake_of_ones_own_stays_one_beside_a_right_function() -> None:
    found = rows(1, DDOF, ("eps, centered=False)", "eps, centered=True)"))
    assert tasks_lost(found) == {"1.1", "1.4"}


def test_a_stub_is_a_wrong_function_too() -> None:
    found = rows(4, ("return var * m / (m - 1)", 'raise NotImplementedError("Task 4.2: the unbiased estimate")'))
    assert tasks_lost(found) == {"4.2"}
    assert {row.status for row in found if row.task == "4.2"} == {"not done"}


def test_a_function_that_never_comes_back_costs_its_own_task_and_one_limit_of_time() -> None:
    lab = catalogue.find(1)
    module, _ = submission.load(changed(1), "mine.py")
    student = Replaceable(module, lab.beside, hangs=("moments",))
    found = lab.run(student, 1)
    assert tasks_lost(found) == {"1.1"}
    assert student.hung == 1
    mine = [(row.status, row.got) for row in found if row.task == "1.1"]
    assert mine[0] == ("too slow", "no answer within 10 s")
    assert set(mine[1:]) == {("not run", "task 1.1 did not return in an earlier check")}
    assert all(row.seconds < 5 for row in found)


def test_a_right_solution_is_asked_once() -> None:
    class Counting(Lab):
        asked = 0

    lab = Counting(1, "lab", "", "", 60)

    @lab.check("1.1", "one")
    def one(student: Any, rng: Any) -> None:
        Counting.asked += 1

    lab.provide("1.1", f=abs)
    module, _ = submission.load("", "mine.py")
    assert [row.status for row in lab.run(Replaceable(module, ""), 1)] == ["passed"]
    assert Counting.asked == 1


def provided_functions() -> Iterator[Any]:
    for number in PROVIDED:
        for task, functions in catalogue.find(number).provided.items():
            marks = [slow] if number in LONG else []
            yield pytest.param(number, task, functions, id=f"lab {number}, task {task}", marks=marks)


@pytest.mark.parametrize(("number", "task", "functions"), list(provided_functions()))
def test_what_is_provided_passes_its_own_task(number: int, task: str, functions: cascade.Functions) -> None:
    """In place of a solution's functions nothing may be lost, the task's own checks included."""
    lab = catalogue.find(number)
    if lacking := lab.missing():
        pytest.skip(lacking)
    module, _ = submission.load(changed(number), "mine.py")
    assert functions.keys() <= vars(module).keys()
    vars(module).update(functions)
    assert not tasks_lost(lab.run(Here(module, lab.beside), 1))


@pytest.mark.parametrize(
    ("words", "text"), [([], ""), (["1.1"], "1.1"), (["1.1", "1.2"], "1.1 and 1.2"), (["1", "2", "3"], "1, 2 and 3")]
)
def test_tasks_are_listed_in_words(words: list[str], text: str) -> None:
    assert cascade._listed(words) == text


class Recording:
    """A student that notes, for each process, the solved tasks that it got and the tasks that it was asked about."""

    def __init__(self, wrong: Collection[str], lost: Collection[str]) -> None:
        self.wrong, self.lost = wrong, lost
        self.processes: list[tuple[set[str], set[str]]] = []  # tasks that were solved for it, tasks asked about
        self.notes: list[str] = []
        self.remarks: list[str] = []
        self.calls: deque[Any] = deque()
        self.right: deque[Any] = deque()
        self.replace({}, lambda _: None)

    def replace(self, functions: Mapping[str, Callable[..., Any]], used: Callable[[str], None]) -> None:
        self.processes.append((set(functions), set()))

    def allow(self, seconds: float, where: Any = None) -> None:
        """Set no limit."""

    def asked(self, task: str) -> None:
        self.processes[-1][1].add(task)
        if task in self.lost:
            raise Failure("too slow", "")
        assert task not in self.wrong


@given(
    order=st.lists(st.sampled_from("abcde"), min_size=1, max_size=12),
    provided=st.sets(st.sampled_from("abcde")),
    wrong=st.sets(st.sampled_from("abcde")),
    lost=st.sets(st.sampled_from("abcde")),
)
def test_nobody_is_asked_about_a_task_whose_right_function_was_given(
    order: list[str], provided: set[str], wrong: set[str], lost: set[str]
) -> None:
    """Whatever the order of the checks: else it could be copied, or kept for later."""
    lab = Lab(1, "lab", "", "", 60)
    for number, task in enumerate(order):
        lab.check(task, str(number))(lambda student, _rng, task=task: student.asked(task))
    for task in provided:
        lab.provide(task, **{task: abs})
    student = Recording(wrong, lost)
    found = lab.run(student, 1)  # type: ignore[arg-type]
    assert [row.task for row in found] == order
    for given_to_it, asked in student.processes:
        assert not given_to_it & asked
    assert tasks_lost(found) == (wrong | lost) & set(order)
