"""Reads batches ahead in threads and yields them in order: while a step computes, threads prepare the next batches.

Threads are enough, because decoders and kernels release Python's lock. Processes would need a fork, which MPI forbids.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

Task = Callable[[], Any]
PATIENCE = 0.25  # seconds after which an idle thread checks that the generator still exists


def ahead(
    tasks: Iterator[Task],
    workers: int,
    depth: int,
    timeout: float = 0,
    start: Callable[[int], Any] | None = None,
    turn: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Iterator[Any]:
    """Yield the results of the tasks in order; up to `depth` tasks are started ahead.

    timeout  the most seconds to wait for a result; 0 means no limit
    start    called as start(worker) in each thread before its first task
    turn     a function that returns a context manager. A thread takes a task and runs it in `with turn()`

    If a task raises an exception, the generator raises this exception in place of the task's result, and ends. If the
    generator is closed, it ends and does not wait for running tasks. It raises RuntimeError if the system refuses to
    start as many threads as there are workers.

    Ctrl-C may come at any line, even while this generator ends. So the threads have only a weak reference to `over`,
    the event that tells them to end. When the generator is deleted, `over` is deleted too, and the threads end.
    """
    jobs: queue.SimpleQueue[tuple[Task, Future[Any]] | None] = queue.SimpleQueue()
    over = threading.Event()
    pending: deque[Future[Any]] = deque()
    try:
        for worker in range(workers):
            _start(worker, workers, (jobs, weakref.ref(over), worker, start, turn))
        for task in islice(tasks, depth):
            pending.append(_submitted(jobs, task))
        while pending:
            result = _result(pending.popleft(), timeout)
            for task in islice(tasks, 1):
                pending.append(_submitted(jobs, task))
            yield result
    finally:
        over.set()
        for _ in range(workers):
            jobs.put(None)


def _start(worker: int, workers: int, arguments: tuple[Any, ...]) -> None:
    try:
        threading.Thread(target=_work, args=arguments, name=f"DataLoader-{worker}", daemon=True).start()
    except RuntimeError as error:
        raise RuntimeError(
            f"DataLoader: num_workers={workers}, but the system could start only {worker} threads: {error}"
        ) from None


def _submitted(jobs: Any, task: Task) -> Future[Any]:
    future: Future[Any] = Future()
    jobs.put((task, future))
    return future


def _result(future: Future[Any], timeout: float) -> Any:
    try:
        return future.result(timeout or None)
    except TimeoutError:
        if future.done():  # the task itself raised the TimeoutError
            raise
        raise RuntimeError(f"DataLoader: no batch arrived within timeout={timeout:g} seconds") from None


def _next(jobs: Any, over: weakref.ref[threading.Event]) -> tuple[Task, Future[Any]] | None:
    """Return the next job; return None if there are no more jobs."""
    while True:
        try:
            job: tuple[Task, Future[Any]] | None = jobs.get(timeout=PATIENCE)
        except queue.Empty:
            if over() is None:
                return None
            continue
        end = over()
        return None if end is None or end.is_set() else job


def _work(
    jobs: Any,
    over: weakref.ref[threading.Event],
    worker: int,
    start: Callable[[int], Any] | None,
    turn: Callable[[], Any],
) -> None:
    """Run tasks in one thread until there are no more."""
    failure = None
    try:
        if start is not None:
            start(worker)
    except BaseException as error:  # noqa: BLE001  raised in each task, whose results are read
        failure = error
    while True:
        with turn():
            if (job := _next(jobs, over)) is None:
                return
            task, future = job
            try:
                if failure is not None:
                    raise failure
                future.set_result(task())
            except BaseException as error:  # noqa: BLE001  raised again for the reader of the result
                future.set_exception(error)
            del job, task, future  # so that a waiting thread keeps no batch alive
