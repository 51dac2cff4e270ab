"""The student's process: loads the file, calls what the judge asks for, and answers with values.

It never decides anything. What it says is a value, or that a call raised; whether that is right the judge finds out in
its own process, so nothing the student's code does here, printing, writing files, changing this module, can earn a
point that a right answer would not.
"""

from __future__ import annotations

import contextlib
import importlib
import linecache
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from minorm.labs import limits, submission
from minorm.labs.watching import Watched, WatchedModule
from minorm.labs.wire import Line, WireError, encode

TEST = "test_"
SOLUTIONS = Path(__file__).resolve().parents[2] / "examples" / "labs" / "solutions"


def main(descriptor: int, memory: int) -> None:
    """Serve the judge at the other end of the socket until it hangs up."""
    limits.set_limits(memory)
    sys.addaudithook(keep_closed)
    line = Line(socket.socket(fileno=descriptor))
    mine = os.getpid()

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        line.send(question)
        answer: dict[str, Any] = line.receive()
        return answer

    with contextlib.suppress(EOFError, OSError):
        begin = line.receive()
        worker = Worker(*submission.load(begin["text"], begin["file"]), begin["lab"], ask)
        reply: Any = {"notes": worker.notes}
        while os.getpid() == mine:  # a child that the student forked must not talk
            with contextlib.suppress(Exception):  # whatever the student has made of it
                sys.stdout.flush()  # so that the judge can say how much was printed
            line.send(reply)
            reply = worker.answer(line.receive())
    os._exit(0)  # no handlers of the student's


def keep_closed(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: Python opens no solution, where the grader's checkout has them. Other ways to read stay open."""
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        name = os.fsdecode(arguments[0])
        if "solutions" in name and SOLUTIONS in Path(name).resolve().parents:
            raise PermissionError("solutions are closed while a submission is graded")


class Worker:
    """A loaded submission, and what can be asked of it."""

    def __init__(
        self, module: ModuleType, notes: list[str], lab: str, ask: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> None:
        self.module, self.notes, self.lab, self.ask = module, notes, lab, ask
        self.error: BaseException | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """{"value": ..., "changed": [...]}, or {"error": ..., "kind": ..., "place": ...}."""
        self.changed: list[list[str]] = []
        try:
            value = getattr(self, "do_" + request.pop("do"))(**request)
            return {"value": sendable(value), "changed": self.changed}
        except BaseException as error:  # noqa: BLE001  SystemExit and KeyboardInterrupt are answers too
            self.error = error
            return {
                "error": submission.describe(error),
                "kind": kind_of(error),
                "place": submission.place_of(error, getattr(self.module, "__file__", None) or ""),
            }

    def do_call(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """One of the student's functions."""
        return Watched(function_of(self.module, name), name, self.changed)(*args, **options)

    def do_drive(self, name: str, options: dict[str, Any]) -> Any:
        """A function of the lab, which is given the student's module."""
        module = WatchedModule(self.module, self.changed)
        return getattr(importlib.import_module(self.lab), name)(module, **options)

    def do_tests(self) -> list[dict[str, Any]]:
        """The student's tests against an implementation that stays in the judge's process."""
        return run_tests(self.module, Absent(self._ask))

    def _ask(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        reply = self.ask({"ask": name, "args": args, "options": options})
        if "refusal" in reply:
            raise REFUSALS.get(reply["kind"], RuntimeError)(reply["refusal"])
        return reply["value"]


REFUSALS: dict[str, type[Exception]] = {"ValueError": ValueError, "TypeError": TypeError}


def sendable(value: Any) -> Any:
    """The value itself; TypeError where it has no place in a message."""
    try:
        encode(value)
    except WireError as error:
        raise TypeError(f"the answer holds {error}") from None
    return value


class Absent:
    """An implementation that is somewhere else: its functions are asked for by name."""

    def __init__(self, ask: Callable[[str, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self._ask = ask

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **options: self._ask(name, args, options)


def function_of(module: Any, name: str) -> Callable[..., Any]:
    """The student's function, or a NameError that says it is not there."""
    found = getattr(module, name, None)
    if not callable(found):
        raise NameError(f"there is no function {name} in the file")
    return found


def run_tests(module: Any, implementation: Any) -> list[dict[str, Any]]:
    """Each test_ function of the module with the implementation; stops behind the first that fails."""
    tests = [(name, f) for name, f in vars(module).items() if name.startswith(TEST) and callable(f)]
    if not tests:
        raise NameError(f"there is no function {TEST}... in the file")
    results = []
    for name, test in tests:
        try:
            test(implementation)
        except NotImplementedError:
            raise
        except BaseException as error:  # noqa: BLE001  any failure of a test is its verdict
            results.append({"name": name, "error": failed_at(error, test)})
            break
        results.append({"name": name, "error": None})
    return results


def failed_at(error: BaseException, test: Callable[..., Any]) -> str:
    """`cell 3, line 7: AssertionError, in: assert y[0] == 3`, the last line of the student's that the test reached."""
    file = getattr(getattr(test, "__code__", None), "co_filename", "")
    line, said = submission.line_of(error, file), submission.describe(error)
    if line is None:
        return said
    source = linecache.getline(file, line).strip()
    return f"{submission.place(file, line)}: {said}" + (f", in: {source}" if source else "")


def kind_of(error: BaseException) -> str:
    """The name of the class; NotImplementedError also for its subclasses."""
    return "NotImplementedError" if isinstance(error, NotImplementedError) else type(error).__name__
