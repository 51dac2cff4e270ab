"""Runs a student's process: it loads the file, calls what the judge asks for, and answers with values.

The process never decides anything. It answers with a value or with an error, and the judge finds out in another process
whether this answer is right. The process runs behind walls (see sealed), so that only its answers leave it.

Three kinds of processes run this module: for the student's file, for one rank of the file (lab 9), and for the
student's native code (labs 7 and 8). The third kind does not load the file, so that none of the student's Python runs
in the process whose answers and times are judged.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import linecache
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from minorm.kernels.protocol import Statistics
from minorm.labs import compiling, cuda, ranks
from minorm.labs.beside import Beside
from minorm.labs.calling import closed_library, followed_array, objects, submission
from minorm.labs.calling.followed_array import FollowedArray
from minorm.labs.calling.sent import Told
from minorm.labs.calling.watching import Watched, WatchedModule
from minorm.labs.calling.wire import Line, Packers, WireError, encode, leaves
from minorm.labs.sealed import entry

TEST = "test_"
SENT: Packers = {kind: objects.SENT[kind] for kind in (Statistics, FollowedArray)}
SECRET = ("minorm.labs.checks", "minorm.labs.wrong_kernels")
BUILDERS: dict[str, Callable[..., Any]] = {
    "cython": compiling.build,
    "counted": compiling.build_counted,
    "cuda": cuda.Program,
}


def main(descriptor: int, plan: dict[str, Any]) -> None:
    """Answer the judge's requests, which arrive through the descriptor, until the judge closes it."""
    close_checks()
    worker = Worker()
    line = Line(Descriptor(descriptor), SENT, worker.makers)

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        line.send(question)
        answer: dict[str, Any] = line.receive()
        return answer

    worker.ask = ask  # type: ignore[method-assign]
    compiling.elsewhere.append(worker.compiled)
    with contextlib.suppress(EOFError, OSError):
        request = line.receive()  # to prepare
        if entry.closes_files(plan):
            import_all(bytes(request["text"]).decode(), Beside(*request["beside"]))
            entry.close_files()
        while True:
            reply = worker.answer(request)
            with contextlib.suppress(Exception):  # whatever the student has made of it
                sys.stdout.flush()  # so that the judge can say how much was printed
            line.send(reply)
            request = line.receive()
    os._exit(0)  # no handlers of the student's


class Descriptor:
    """A file descriptor with the socket methods that `Line` needs. A student's process cannot make sockets."""

    def __init__(self, number: int) -> None:
        self.number = number

    def recv(self, size: int) -> bytes:
        """Return at most `size` bytes; an empty result means the end."""
        return os.read(self.number, size)

    def sendall(self, data: bytes) -> None:
        """Write all of the data."""
        view = memoryview(data)
        while view:
            view = view[os.write(self.number, view) :]

    def settimeout(self, seconds: float) -> None:
        """Do nothing: only the judge has deadlines."""


class Closed(importlib.abc.MetaPathFinder):
    """Prevents imports of the checks in a student's process, even if the process could open their files."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:  # noqa: ARG002  importlib's signature
        """Raise ImportError for modules that contain the right answers."""
        if name.startswith(SECRET):
            raise ImportError(f"{name} cannot be imported while a submission is graded")


def close_checks() -> None:
    """Make `check` do nothing while a submission is graded, because each notebook imports and calls `check`."""
    sys.meta_path.insert(0, Closed())
    visible = ModuleType("minorm.labs.visible")
    visible.checker = lambda *_, **__: lambda _: None  # type: ignore[attr-defined]
    sys.modules["minorm.labs.visible"] = visible


def import_all(text: str, beside: Beside) -> None:
    """Import what the file and its lab may need, because afterwards this process may not open files."""
    for name in submission.imports(text):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):  # a lab without such a module
        prepare = getattr(beside.module(), "prepare", None)
        if prepare is not None:
            prepare()


class Worker:
    """A loaded submission. Each `do_...` method answers one kind of request."""

    def __init__(self, module: ModuleType | None = None, beside: Beside | None = None) -> None:
        self.module, self.beside = module or ModuleType(submission.NAME), beside or Beside("")
        self.error: BaseException | None = None
        self.held: list[Any] = []
        self.changed: list[list[str]] = []
        self.makers = objects.made_for_students(self._function, self._rank)

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ask the judge a question. The code that makes a Worker replaces this method."""
        raise NotImplementedError

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request of the judge.

        Return {"value": ..., "changed": [...]}, or {"error": ..., "kind": ..., "place": ...}.
        """
        self.changed = []
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

    def do_prepare(self, text: Any, beside: tuple[str, str]) -> None:
        """Do nothing.

        The judge waits for the answer, so the time to start this process and import minorm does not count as the
        file's.
        """

    def do_load(self, text: Any, file: str, beside: tuple[str, str], closed: bool = False) -> Any:
        """Run the file's cells and return notes on failures. `text` is an array of bytes, as notebooks may be long.

        closed  whether minorm's normalizations are closed before the file runs, so that the file cannot keep a
                reference to them
        """
        if closed:
            closed_library.close()
        self.beside = Beside(*beside)
        self.module, notes = submission.load(
            bytes(text).decode(), file, lambda place: self.ask({"ask": "running", "args": [place], "options": {}})
        )
        return notes

    def do_call(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Call one of the student's functions.

        If an argument is a followed array, NumPy's functions make followed arrays during the call.
        """
        function = function_of(self.module, name)
        if not any(map(_is_followed, leaves([*args, *options.values()]))):
            return Watched(function, name, self.changed)(*args, **options)
        names = getattr(function, "__globals__", {})
        with closed_library.closed(), followed_array.making(self._function(objects.FOLLOW), names):
            return function(*args, **options)

    def do_replace(self, names: Sequence[str], sources: dict[str, str]) -> None:
        """Replace the student's functions with these names by right functions.

        A right function runs in the judge's process, or here if `sources` has its text.
        """
        for name in names:
            asked = self._function(RIGHT + name)
            setattr(self.module, name, Told(name, sources[name], asked) if name in sources else asked)

    def do_hold(self, name: str, args: tuple[Any, ...]) -> int:
        """Call a student's function, and keep its result in this process, because messages cannot hold it.

        Return the number of the result.
        """
        self.held.append(function_of(self.module, name)(*args))
        return len(self.held) - 1

    def do_method(self, held: int, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Call a method of an object that do_hold has kept."""
        return getattr(self.held[held], name)(*args, **options)

    def do_drive(self, name: str, options: dict[str, Any]) -> Any:
        """Call a function of the lab's module in minorm.labs.beside, with the student's module as an argument."""
        module = WatchedModule(self.module, self.changed)
        return getattr(self.beside.module(), name)(module, **options)

    def do_native(self, kind: str, pieces: Sequence[str], name: str, options: dict[str, Any]) -> Any:
        """Compile the pieces of text, and call a function of minorm.labs.beside with the compiled module or program."""
        return getattr(self.beside.module(), name)(BUILDERS[kind](*pieces), **options)

    def do_tests(self) -> list[dict[str, Any]]:
        """Run the student's tests on an implementation in the judge's process.

        Meanwhile, calls of minorm's normalizations raise errors.
        """
        with closed_library.closed():
            return run_tests(self.module, Absent(self.asked))

    def asked(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Let the judge call the function with this name.

        Return the result, or raise the error that the judge reports.
        """
        reply = self.ask({"ask": name, "args": args, "options": options})
        if "refusal" in reply:
            kind = REFUSALS.get(reply["kind"], RuntimeError)
            raise kind(reply["refusal"].removeprefix(f"{kind.__name__}: "))
        return reply["value"]

    def compiled(self, kind: str, text: str) -> bytes:
        """Return the bytes of a shared library compiled from `text`.

        The judge compiles it in a process without the student's Python.
        """
        return bytes(self.asked("compile", (kind, text), {}))

    def _function(self, name: str) -> Callable[..., Any]:
        return lambda *args, **options: self.asked(name, args, options)

    def _rank(self, number: int, size: int) -> ranks.Rank:
        return ranks.Rank(ranks.RemoteGroup(number, size, self._function))


RIGHT = "right "  # before the names of functions that are in place of the student's
REFUSALS: dict[str, type[Exception]] = {
    "ValueError": ValueError,
    "TypeError": TypeError,
    "CompileError": compiling.CompileError,
    "RankError": ranks.RankError,
}


def _is_followed(value: Any) -> bool:
    return isinstance(value.block if isinstance(value, Statistics) else value, FollowedArray)


def sendable(value: Any) -> Any:
    """Return `value` if a message can hold it; otherwise raise TypeError."""
    try:
        encode(value, SENT)
    except WireError as error:
        raise TypeError(f"the answer holds {error}") from None
    return value


class Absent:
    """Stands for an implementation that is in the judge's process. A call of one of its functions asks the judge."""

    def __init__(self, ask: Callable[[str, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self._ask = ask

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **options: self._ask(name, args, options)


def function_of(module: Any, name: str) -> Callable[..., Any]:
    """Return the student's function with this name; raise NameError if the file has no such function."""
    found = getattr(module, name, None)
    if not callable(found):
        raise NameError(f"there is no function {name} in the file")
    return found


def run_tests(module: Any, implementation: Any) -> list[dict[str, Any]]:
    """Run the test_ functions of the module on the implementation, until one fails."""
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
    """Return the place, the error and the line of a failed test, such as `cell 3, line 7: AssertionError, in: ...`."""
    file = getattr(getattr(test, "__code__", None), "co_filename", "")
    line, said = submission.line_of(error, file), submission.describe(error)
    if line is None:
        return said
    source = linecache.getline(file, line).strip()
    return f"{submission.place(file, line)}: {said}" + (f", in: {source}" if source else "")


def kind_of(error: BaseException) -> str:
    """Return the name of the error's class; for a subclass of NotImplementedError, return "NotImplementedError"."""
    return "NotImplementedError" if isinstance(error, NotImplementedError) else type(error).__name__
