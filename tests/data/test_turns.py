"""Turns at short samples: one batch at a time where samples are quick, all at once where they are slow or wait."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from minorm.data import turns
from minorm.data.turns import Turns


def spend(seconds: float) -> None:
    """Compute for so many seconds."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def most_at_once(held: Turns) -> int:
    """Return how many of three threads are inside together; each waits a moment for the others."""
    inside, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3)

    def read() -> None:
        nonlocal inside, most
        with held.turn(), held.of(10):
            with lock:
                inside += 1
                most = max(most, inside)
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait(0.3)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return most


def test_short_samples_are_read_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALONE", "TOGETHER"):
        monkeypatch.setattr(turns, name, 1e9)  # a machine with other work is no disk
    held = Turns()
    assert most_at_once(held) == 1  # the first batches, of which nothing is known
    held.taken = False
    with held.of(1000):
        spend(0.002)
    assert held.taken
    assert most_at_once(held) == 1


def test_long_samples_and_those_that_wait_are_read_together() -> None:
    held = Turns()
    held.taken = True
    with held.of(10):
        spend(10 * 2 * turns.SHORT)
    assert not held.taken
    held.taken = True
    with held.of(1000):
        time.sleep(0.1)  # a disk
    assert not held.taken
    assert most_at_once(held) == 3


def test_who_waits_goes_on_with_the_others_when_turns_are_given_up() -> None:
    """The first batch waits for a disk: the seven that stand behind it are read together."""
    held = Turns()

    def read() -> None:
        with held.turn(), held.of(100):
            time.sleep(0.2)

    start = time.monotonic()
    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - start < 8 * 0.2


def test_an_error_lets_the_next_one_in() -> None:
    held = Turns()
    held.taken = True
    with pytest.raises(LookupError), held.turn(), held.of(1):
        raise LookupError
    with held.turn(), held.of(1):
        pass
