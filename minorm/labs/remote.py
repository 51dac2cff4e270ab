"""Runs a submission in sealed processes: for the file, the tests, each rank, native code, and the judge's own code.

Each process starts when it is first needed, and is started again if it has died. No process sees the memory or the
files of another process.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from minorm.labs.beside import Beside
from minorm.labs.calling import objects, wire, worker
from minorm.labs.calling.allowance import DEADLINE, Allowance
from minorm.labs.calling.sent import Sent
from minorm.labs.calling.student import (
    MAIN,
    MOST,
    NATIVE,
    TESTS,
    YARDSTICK,
    Call,
    Failure,
    Implementation,
    Student,
    printable,
    served,
)
from minorm.labs.sealed import compile_process, finding, walls
from minorm.labs.sealed.process import KEPT_OUTPUT, Process

LOADING = 30.0  # seconds
MOST_LOST = 3  # processes; after that, checks are not run any more


class Remote(Student):
    """Calls the functions of a submission in separate sealed processes.

    text, file    the submission's text and the name of its file
    beside        the lab's module whose functions may run in the same process as the submission
    memory        how many bytes each process may use
    patience      a factor for all time limits
    around        the walls; None for the walls that this machine has
    deadline      seconds for loading and all checks together
    """

    compiles_again = True

    def __init__(
        self,
        text: str,
        file: str,
        beside: Beside,
        memory: int,
        patience: float = 1.0,
        around: walls.Walls | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        self._text, self._file, self._beside = text, file, beside
        self._memory, self._patience = memory, patience
        self._walls = finding.find() if around is None else around
        self._processes: dict[Any, Process] = {}
        self._lost: list[str] = []
        self._right: Implementation = {}
        self._used: Callable[[str], None] = lambda _: None
        self._change: Callable[[str], str] = str  # of each text before it is compiled
        self._unloadable: Failure | None = None
        self._running = "the file"  # the statement of the file that runs
        self._deadline = self._seconds = 0.0
        self._allowance = Allowance(deadline * patience)
        self._starting = threading.Lock()
        self._starter = ThreadPoolExecutor(1)
        self.notes: list[str] = []
        self.remarks: list[str] = []
        self.calls: deque[Call] = deque(maxlen=MOST)
        self.right: deque[Call] = deque(maxlen=MOST)
        self.printed, self.beginning = 0, ""

    def allow(self, seconds: float, where: Any = MAIN) -> None:
        """Limit the time for all questions from now on; loading does not count."""
        self._loaded(where)
        self._deadline = time.monotonic() + seconds * self._patience
        self._seconds = seconds * self._patience

    def fresh(self, where: Any = MAIN) -> None:
        """End the process for `where`, so that the next call to it starts a new process."""
        self._end(where)

    def replace(self, functions: Implementation, used: Callable[[str], None]) -> None:
        """Use these functions in place of the student's, in fresh processes.

        At each call of one, `used` is called with its name.
        """
        for where in [where for where in self._processes if where != YARDSTICK]:
            self._end(where)
        self._right, self._used = functions, used
        self.right = deque(maxlen=MOST)

    @contextlib.contextmanager
    def with_changed_kernels(self, change: Callable[[str], str]) -> Iterator[None]:
        """In the block, call the student's functions in a fresh process; `change(text)` replaces a kernel's text.

        The file's notes stay those that it had before the block.
        """
        notes = self.notes
        self._end(MAIN)
        self._change = change
        try:
            yield
        finally:
            self._end(MAIN)
            self._change, self.notes = str, notes

    def call(
        self, name: str, args: tuple[Any, ...], options: dict[str, Any], serving: Implementation | None = None
    ) -> Any:
        """Call one of the student's functions.

        If the function was replaced, call the replacement in the judge's process.
        """
        if name in self._right:
            return self._call_replacement(name, *args, **options)
        return super().call(name, args, options, serving)

    def _call_replacement(self, name: str, *args: Any, **options: Any) -> Any:
        self._used(name)
        return self._right[name](*args, **options)

    def ask(self, request: dict[str, Any], serving: Implementation | None = None, where: Any = MAIN) -> Any:
        """Send a request to the process for `where` and wait for the answer.

        Meanwhile answer the questions that the process asks.
        """
        process = self._loaded(where)
        return self._answer_of(self._counted(process, request, serving or {}, self._deadline, where))

    def _counted(
        self, process: Process, request: dict[str, Any], serving: Implementation, deadline: float, where: Any
    ) -> Any:
        """Call `_asked` and count the time as the submission's.

        The time of YARDSTICK does not count, because this process runs the judge's own code.
        """
        if where == YARDSTICK:
            return self._asked(process, request, serving, deadline, where)
        with self._allowance.waiting():
            until = min(deadline, time.monotonic() + self._allowance.left)
            return self._asked(process, request, serving, until, where)

    def _asked(
        self, process: Process, request: dict[str, Any], serving: Implementation, deadline: float, where: Any
    ) -> Any:
        """Send the request and answer the process's questions until the reply comes.

        Raise a Failure if there is no reply in time.
        """
        right = {
            worker.RIGHT + name: functools.partial(
                self._used if isinstance(function, Sent) else self._call_replacement, name
            )
            for name, function in self._right.items()
        }
        serving = {**serving, **right, "compile": functools.partial(self._compiled, deadline)}
        try:
            process.line.send(request, deadline)
            reply = process.line.receive(deadline)
            while isinstance(reply, dict) and "ask" in reply:
                process.line.send(served(reply, serving), deadline)
                reply = process.line.receive(deadline)
        except TimeoutError:
            raise self._lose(
                where, "too slow", self._time_used_up() or f"no answer within {self._seconds:.0f} s"
            ) from None
        except (EOFError, OSError):
            raise self._lose(where, "died", f"the code {process.ended()}") from None
        except wire.WireError as error:
            raise self._lose(where, "died", f"the answer cannot be read: {error}") from None
        return reply

    def _time_used_up(self) -> str:
        """Return a message if the submission has used up its time; otherwise return an empty text."""
        over = f"loading the file and running its checks used up their {self._allowance.seconds:g} s"
        return over if self._allowance.left <= 0 else ""

    def _compiled(self, deadline: float, kind: str, text: str) -> Any:
        """Compile a text to a shared library for one of the processes. Return the library's bytes as an array."""
        return objects.as_bytes(compile_process.compiled(self._walls, kind, self._change(text), deadline))

    def close(self) -> None:
        """End all processes, and return when they have ended."""
        for where in list(self._processes):
            self._end(where)
        self._starter.shutdown()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, where: Any) -> None:
        process = self._processes.pop(where, None)
        if process is not None:
            process.end()
            self.printed += process.printed
            self.beginning = (self.beginning + process.beginning.decode(errors="replace"))[:KEPT_OUTPUT]

    def _loaded(self, where: Any) -> Process:
        """Return the running process for `where`.

        If the process has to be started first, the deadline moves by the time that this takes.
        """
        with self._starting:
            if self._unloadable is not None and where != YARDSTICK:
                raise self._unloadable
            if where in self._processes:
                return self._processes[where]
            if where != YARDSTICK and (over := self._time_used_up()):
                raise Failure("not run", over)
            if len(self._lost) >= MOST_LOST:
                raise Failure("not run", f"the code crashed or did not end {MOST_LOST} times before")
            start = time.monotonic()
            process = self._start(where)
            self._deadline += time.monotonic() - start
            return process

    def _start(self, where: Any) -> Process:
        mine = where not in (NATIVE, YARDSTICK)  # with the student's Python
        text = self._text if mine else ""
        request = {"do": "load", "text": objects.as_bytes(text.encode()), "file": self._file, "beside": self._beside}
        request["closed"] = where == TESTS
        # A thread that lives as long as this object starts it: a process ends with the *thread* that started it.
        process = self._processes[where] = self._starter.submit(Process, self._walls, self._memory).result()
        limit = LOADING * self._patience
        preparing = {"do": "prepare", "text": request["text"], "beside": self._beside}
        prepare = self._asked
        if self._walls.closes:  # then it imports the modules that the text names
            prepare = self._counted
        try:
            prepare(process, preparing, {}, time.monotonic() + limit, where)["value"]
            notes = self._counted(process, request, {"running": self._runs}, time.monotonic() + limit, where)["value"]
            if mine and self._right:
                sources = {name: right.source for name, right in self._right.items() if isinstance(right, Sent)}
                replacing = {"do": "replace", "names": list(self._right), "sources": sources}
                self._counted(process, replacing, {}, time.monotonic() + limit, where)["value"]
            if mine and where != TESTS:  # a failure there may come from a closed normalization
                self.notes = [printable(note) for note in notes][:20]
        except Failure as failure:
            if self._time_used_up():  # not the fault of loading alone
                raise
            words = str(failure)
            if failure.status == "too slow":
                words = f"{self._running} did not end within {limit:g} s; is there an endless loop?"
            elif failure.status == "died":
                words = f"while the file's cells ran, {words}"
            self._unloadable = Failure(failure.status, words)
        except (TypeError, KeyError):
            self._unloadable = self._lose(where, "died", "while the file's cells ran, the code stopped answering")
        if self._unloadable is not None:
            raise self._unloadable
        return process

    def _runs(self, place: Any) -> None:
        self._running = printable(place)

    def _lose(self, where: Any, status: str, message: str) -> Failure:
        self._end(where)
        self._lost.append(message)
        return Failure(status, message)
