"""Lets checks call a student's functions: `student.moments(x, (0, 2))` calls the student's `moments`.

`Remote` (minorm/labs/remote.py) calls the function in another process, behind walls and within limits. `Here` calls the
function in this process, for checks in a notebook. Both pass arguments and answers through `wire`, so a check gets the
same values from both. Any error becomes a Failure. Layers, ranks and clocks stay in the judge's process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from minorm.labs.beside import Beside
from minorm.labs.calling import objects, submission, wire, worker
from minorm.labs.ranks import Rank
from minorm.support import safe_names

Implementation = Mapping[str, Callable[..., Any]]  # what a student's code may ask for: functions by name
MOST = 200  # the number of calls that are kept, the latest ones
MAIN, TESTS, NATIVE, YARDSTICK = "main", "tests", "native", "yardstick"


@dataclass
class Call:
    """One call of a student's function: its arguments, and its answer.

    If the call failed, `error` has the text of the error.
    """

    name: str
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    answer: Any = None
    error: str = ""


class Failure(Exception):
    """The student's function gave no answer. status: "not done", "error", "too slow", "died", "not run" or "not tried".

    kind  the class of the student's exception, if there was one
    """

    def __init__(self, status: str, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class Student:
    """The base of `Remote` and `Here`, with the methods that checks call."""

    notes: list[str]  # about statements of the file that failed
    remarks: list[str]  # about arguments that calls changed in place; the check that asks empties it
    calls: deque[Call]  # the last ones, with their answers; the check that asks empties it
    right: deque[Call]  # those of checks that passed; a new one where functions are replaced
    compiles_again = False  # a notebook's kernels are compiled already, and stay as they are

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **options: self._recorded(Call(name, args, options))

    def _recorded(self, call: Call) -> Any:
        """Call the student's function. Keep the call in `calls`, with its arguments and its answer."""
        self.calls.append(call)
        try:
            call.answer = self.call(call.name, call.args, dict(call.options))
        except Failure as failure:
            call.error = str(failure)
            raise
        return call.answer

    def call(
        self, name: str, args: tuple[Any, ...], options: dict[str, Any], serving: Implementation | None = None
    ) -> Any:
        """Call one of the student's functions.

        If the function in turn calls a function of the judge's, that function is looked up in `serving`.
        """
        return self.ask({"do": "call", "name": name, "args": args, "options": options}, serving)

    def drive(self, function: str, /, **options: Any) -> Any:
        """Run `function(module, **options)` of minorm.labs.beside in the process that has the student's module."""
        return self.ask({"do": "drive", "name": function, "options": options})

    def native(self, kind: str, pieces: tuple[str, ...], function: str, /, where: str = NATIVE, **options: Any) -> Any:
        """Run `function(compiled, **options)` of minorm.labs.beside in a process without the student's Python.

        kind  the language of the pieces, "cython" or "cuda"; with "counted", Cython also counts what each thread does
        """
        request = {"do": "native", "kind": kind, "pieces": list(pieces), "name": function, "options": options}
        return self.ask(request, where=where)

    def yardstick(self, kind: str, pieces: tuple[str, ...], function: str, /, **options: Any) -> Any:
        """Compile and run `pieces`, which are the judge's own text, in a separate process.

        Checks compare the student's kernel with the result.
        """
        return self.native(kind, pieces, function, where=YARDSTICK, **options)

    def at(self, rank: Rank) -> OfRank:
        """Return the student's functions on this rank. Each function gets the rank as its first argument."""
        return OfRank(self, rank)

    def tests(self, implementation: Implementation) -> list[dict[str, Any]]:
        """Run the student's test_ functions, which call the functions of `implementation`.

        Return [{"name": ..., "error": ... or None}, ...].
        """
        results = self.ask({"do": "tests"}, implementation, TESTS)
        if not isinstance(results, list) or not all(
            isinstance(r, dict) and {"name", "error"} <= r.keys() for r in results
        ):
            raise Failure("error", "the tests gave no list of results")
        return [{"name": printable(r["name"]), "error": r["error"] and printable(r["error"])} for r in results]

    def allow(self, seconds: float, where: Any = MAIN) -> None:
        """Limit the total time for all questions from now on."""

    def fresh(self, where: Any = MAIN) -> None:
        """Start a new process that remembers no earlier call. In a notebook this does nothing."""

    def with_changed_kernels(self, change: Callable[[str], str]) -> AbstractContextManager[None]:
        """In the block, call the student's functions in a fresh process; `change(text)` replaces a kernel's text.

        Only a Student with `compiles_again` can do this.
        """
        raise NotImplementedError

    def ask(self, request: dict[str, Any], serving: Implementation | None = None, where: Any = MAIN) -> Any:
        """Send a request; return the answer or raise a Failure.

        where: MAIN, TESTS, NATIVE, YARDSTICK or the number of a rank
        """
        raise NotImplementedError

    def _answer_of(self, reply: Any) -> Any:
        """Return the value in a reply, or raise the Failure in it.

        Add a remark for each argument that the function changed.
        """
        changed = reply.get("changed") if isinstance(reply, dict) else None
        for pair in changed[:10] if isinstance(changed, list) else ():
            if isinstance(pair, list) and len(pair) == 2:
                name, argument = map(printable, pair)
                self.remarks.append(f"{name} changes its argument {argument} in place")
        return _value_of(reply)


class OfRank:
    """A student's functions on one rank.

    If they call a collective, the judge's `rank` sends the message and counts it.
    """

    def __init__(self, student: Student, rank: Rank) -> None:
        self._student, self._rank = student, rank
        self._serving = {"all_gather": rank.all_gather, "all_reduce": rank.all_reduce}
        self._reference = objects.RankReference(rank.number, rank.size)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args: self._ask({"do": "call", "name": name, "args": (self._reference, *args), "options": {}})

    def hold(self, name: str) -> Callable[..., Any]:
        """Call a function whose result is an object.

        The object stays in the rank's process; return a function that calls its methods.

        For example, `hold("sync_backend")("forward", ...)` calls `forward` of the backend that sync_backend returned.
        """
        held = self._ask({"do": "hold", "name": name, "args": (self._reference,)})
        return lambda method, *args, **options: self._ask(
            {"do": "method", "held": held, "name": method, "args": args, "options": options}
        )

    def _ask(self, request: dict[str, Any]) -> Any:
        return self._student.ask(request, self._serving, self._rank.number)


class Here(Student):
    """The student in a notebook: calls the functions that the notebook defines, in this process."""

    def __init__(self, module: Any, beside: Beside) -> None:
        self.notes, self.remarks = [], []
        self.calls, self.right = deque(maxlen=MOST), deque(maxlen=MOST)
        self._module, self._beside = module, beside
        self._workers: dict[Any, worker.Worker] = {}

    def ask(self, request: dict[str, Any], serving: Implementation | None = None, where: Any = MAIN) -> Any:
        """Answer the request in this process; the cause of a Failure is the student's own exception."""
        local = self._workers.setdefault(where, worker.Worker(self._module, self._beside))
        local.ask = lambda question: served(question, serving or {})  # type: ignore[method-assign]
        try:
            reply = local.answer(wire.decode(*wire.encode(request, objects.SENT), local.makers))
            return self._answer_of(wire.decode(*wire.encode(reply, objects.SENT), objects.TAKEN_BACK))
        except Failure as failure:
            raise failure from local.error


def printable(text: Any) -> str:
    """Return the first 500 characters of a text from a student, without characters that could control a terminal."""
    return safe_names.printable(str(text)[:500])


def served(reply: dict[str, Any], serving: Implementation) -> dict[str, Any]:
    """Call the judge's function that a student's code asks for.

    The arguments come from this code, so they may be anything.
    """
    try:
        function, (args, options) = serving[reply["ask"]], wire.copied((reply["args"], reply["options"]))
        answer = {"value": wire.copied(function(*args, **options))}
    except Exception as error:  # noqa: BLE001  the student's code sees it as its own
        return {"refusal": submission.describe(error), "kind": type(error).__name__}
    return answer


def _value_of(reply: Any) -> Any:
    """Return the value of a reply, or raise the Failure in it."""
    if isinstance(reply, dict) and "value" in reply:
        return reply["value"]
    if not isinstance(reply, dict) or not isinstance(reply.get("error"), str):
        raise Failure("error", "no answer")
    message = printable(reply["error"])
    kind = printable(reply.get("kind"))
    if kind == "NotImplementedError":
        raise Failure("not done", message.removeprefix("NotImplementedError: "), kind)
    place = reply.get("place")
    text = f"{printable(place)}: {message}" if place and isinstance(place, str) else message
    raise Failure("error", text, kind)
