"""An engine whose processes are threads, so that every number of processes is tested without MPI."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from minorm.distributed import sum_order
from minorm.distributed.collectives import Collectives
from minorm.distributed.meeting import Meeting
from minorm.distributed.simulation import carry

SECONDS = 60


class Aborted(BaseException):
    """Another process ended the job."""


class Wires:
    """Queues between all pairs of processes; `sent` counts the bytes that each process sends."""

    def __init__(self, processes: int) -> None:
        self.queues = {(a, b): SimpleQueue() for a in range(processes) for b in range(processes)}
        self.sent, self.messages = [0] * processes, [0] * processes
        self.aborted = threading.Event()


class ThreadEngine:
    """One process of a job that is all in this process."""

    def __init__(self, wires: Wires, process: int, processes: int) -> None:
        self.wires, self.process, self.processes, self.place = wires, process, processes, process

    def _send(self, data: Any, process: int) -> None:
        self.wires.sent[self.process] += len(data)
        self.wires.messages[self.process] += 1
        self.wires.queues[self.process, process].put(bytes(data))

    def _receive(self, process: int) -> bytes:
        for _ in range(20 * SECONDS):
            if self.wires.aborted.is_set():
                break
            with suppress(Empty):
                return self.wires.queues[process, self.process].get(timeout=0.05)
        raise Aborted

    def swap(self, note: bytes, process: int) -> bytes:
        self._send(note, process)
        return self._receive(process)

    def exchange(self, give: Any, get: Any, process: int) -> None:
        assert give.flags.c_contiguous
        assert get.flags.c_contiguous
        self._send(give.tobytes(), process)
        get[...] = np.frombuffer(self._receive(process), get.dtype).reshape(get.shape)

    def gather(self, block: Any) -> Any:
        for process in range(self.processes):
            self._send(block.tobytes(), process)
        found = [self._receive(process) for process in range(self.processes)]
        assert len({len(data) for data in found}) == 1
        return np.stack([np.frombuffer(data, block.dtype).reshape(block.shape) for data in found])

    def broadcast(self, array: Any, process: int) -> Any:
        if self.process == process:
            for other in range(self.processes):
                self._send(array.tobytes(), other)
        return np.frombuffer(self._receive(process), array.dtype).reshape(array.shape)

    def waiting(self, what: str) -> Any:
        return nullcontext()

    def abort(self, code: int) -> None:
        self.wires.aborted.set()


def on_processes(processes: int, size: int, program: Callable[[Any], Any], wires: Wires | None = None) -> list[Any]:
    """Run a program on all ranks, carried by threads in place of processes; return the results."""
    if processes == 1:
        ranks = range(size)
        return carry(program, Collectives(ranks, size, None), Meeting(ranks))
    wires = wires or Wires(processes)
    found: list[Any] = [None] * processes
    errors: list[BaseException] = []

    def run(process: int) -> None:
        ranks = sum_order.carried(process, processes, size)
        engine = ThreadEngine(wires, process, processes)
        try:
            found[process] = carry(program, Collectives(ranks, size, engine), Meeting(ranks))
        except BaseException as error:  # noqa: BLE001  it is raised again below
            errors.append(error)
            engine.abort(1)

    threads = [threading.Thread(target=run, args=(process,), daemon=True) for process in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    for error in sorted(errors, key=lambda error: isinstance(error, Aborted)):
        raise error
    return [result for results in found for result in results]
