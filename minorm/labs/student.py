"""A student's file as the checks see it: `student.moments(x, (0, 2))` calls the student's function.

`Remote` calls it in a process of its own, within limits; `Here` calls it in this process, for checks in a notebook.
Either way arguments and answers make the journey through `wire`, so a check sees the same. What goes wrong is a
Failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from minorm.labs import submission, wire, worker
from minorm.labs.process import KEPT, Process

Implementation = Mapping[str, Callable[..., Any]]  # what a student's tests test: functions by name
LOADING = 30.0  # seconds
MOST_LOST = 3  # processes; after that, checks are not run any more


class Failure(Exception):
    """The student's function gave no answer. status: "not done", "error", "too slow", "died" or "lost"."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class Student:
    """What both kinds have."""

    notes: list[str]  # about statements of the file that failed
    remarks: list[str]  # about calls: what was changed in place; the check that asks empties it

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **options: self.ask({"do": "call", "name": name, "args": args, "options": options})

    def drive(self, function: str, /, **options: Any) -> Any:
        """`function(module, **options)` of the lab's own file, run where the student's module is."""
        return self.ask({"do": "drive", "name": function, "options": options})

    def tests(self, implementation: Implementation) -> list[dict[str, Any]]:
        """Run the student's test_ functions against an implementation; [{"name": ..., "error": ... or None}, ...]."""
        results = self.ask({"do": "tests"}, implementation)
        if not isinstance(results, list) or not all(
            isinstance(r, dict) and {"name", "error"} <= r.keys() for r in results
        ):
            raise Failure("error", "the tests gave no list of results")
        return [{"name": printable(r["name"]), "error": r["error"] and printable(r["error"])} for r in results]

    def allow(self, seconds: float) -> None:
        """The time for what is asked from now on, all together."""

    def ask(self, request: dict[str, Any], implementation: Implementation | None = None) -> Any:
        """The value, or a Failure."""
        raise NotImplementedError

    def _answer_of(self, reply: Any) -> Any:
        """The value of a reply, or the Failure in it; keeps what it says of arguments that were changed."""
        changed = reply.get("changed") if isinstance(reply, dict) else None
        for pair in changed[:10] if isinstance(changed, list) else ():
            if isinstance(pair, list) and len(pair) == 2:
                name, argument = map(printable, pair)
                self.remarks.append(f"{name} changes its argument {argument} in place")
        return _value_of(reply)


class Here(Student):
    """The functions of a notebook that is running."""

    def __init__(self, module: Any, lab: str) -> None:
        self.notes, self.remarks = [], []
        self._module, self._lab = module, lab

    def ask(self, request: dict[str, Any], implementation: Implementation | None = None) -> Any:
        """Call it here; the cause of a Failure is the student's own exception."""
        local = worker.Worker(self._module, [], self._lab, lambda question: _served(question, implementation or {}))
        try:
            return self._answer_of(local.answer(wire.copied(request)))
        except Failure as failure:
            raise failure from local.error


class Remote(Student):
    """A submission in a process of its own, started when first needed and again when it was lost."""

    def __init__(self, text: str, file: str, lab: str, memory: int, patience: float = 1.0) -> None:
        self._begin = {"text": text, "file": file, "lab": lab}
        self._memory, self._patience = memory, patience
        self._process: Process | None = None
        self._lost: list[str] = []
        self._unloadable: Failure | None = None
        self._deadline = 0.0
        self.notes: list[str] = []
        self.remarks: list[str] = []
        self.printed, self.beginning = 0, ""

    def allow(self, seconds: float) -> None:
        """Loading does not count."""
        self._load()
        self._deadline = time.monotonic() + seconds * self._patience
        self._seconds = seconds * self._patience

    def ask(self, request: dict[str, Any], implementation: Implementation | None = None) -> Any:
        """Send it and wait for the answer, serving the student's tests in between."""
        process = self._load()
        try:
            process.line.send(request, self._deadline)
            reply = process.line.receive(self._deadline)
            while isinstance(reply, dict) and "ask" in reply and implementation is not None:
                process.line.send(_served(reply, implementation), self._deadline)
                reply = process.line.receive(self._deadline)
        except TimeoutError:
            raise self._lose("too slow", f"no answer within {self._seconds:.0f} s") from None
        except (EOFError, OSError):
            raise self._lose("died", f"the code {process.ended()}") from None
        except wire.WireError as error:
            raise self._lose("died", f"what came back is {error}") from None
        return self._answer_of(reply)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
            self.printed += self._process.printed
            self.beginning = (self.beginning + self._process.beginning.decode(errors="replace"))[:KEPT]
            self._process = None

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self) -> Process:
        if self._unloadable is not None:
            raise self._unloadable
        if self._process is not None:
            return self._process
        if len(self._lost) >= MOST_LOST:
            raise Failure("lost", f"not run: the process was lost {MOST_LOST} times before")
        process = self._process = Process(self._memory)
        deadline = time.monotonic() + LOADING * self._patience
        try:
            process.line.send(self._begin, deadline)
            reply = process.line.receive(deadline)
            self.notes = [printable(note) for note in reply["notes"]][:20]
        except TimeoutError:
            self._unloadable = self._lose("too slow", f"running the file's cells took over {LOADING:.0f} s")
        except (EOFError, OSError):
            self._unloadable = self._lose("died", f"while the file's cells ran, the code {process.ended()}")
        except (wire.WireError, TypeError, KeyError):
            self._unloadable = self._lose("died", "while the file's cells ran, the code spoiled the line to the grader")
        if self._unloadable is not None:
            raise self._unloadable
        return process

    def _lose(self, status: str, message: str) -> Failure:
        self.close()
        self._lost.append(message)
        return Failure(status, message)


def printable(text: Any) -> str:
    """Some of a stranger's text, without what could steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in str(text)[:500])


def _served(reply: dict[str, Any], implementation: Implementation) -> dict[str, Any]:
    """What the implementation says to a student's test; its arguments come from a stranger."""
    try:
        function, (args, options) = implementation[reply["ask"]], wire.copied((reply["args"], reply["options"]))
        answer = {"value": wire.copied(function(*args, **options))}
    except Exception as error:  # noqa: BLE001  the student's test sees it as its own
        return {"refusal": submission.describe(error), "kind": type(error).__name__}
    return answer


def _value_of(reply: Any) -> Any:
    """The value of a reply, or the Failure in it."""
    if isinstance(reply, dict) and "value" in reply:
        return wire.copied(reply["value"])
    if not isinstance(reply, dict) or not isinstance(reply.get("error"), str):
        raise Failure("error", "no answer")
    message = printable(reply["error"])
    if reply.get("kind") == "NotImplementedError":
        raise Failure("not done", message.removeprefix("NotImplementedError: "))
    place = reply.get("place")
    raise Failure("error", f"{printable(place)}: {message}" if place and isinstance(place, str) else message)
