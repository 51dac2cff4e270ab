"""Locks that a signal and a fork may meet."""

from __future__ import annotations

import os
import threading
import warnings

import pytest

from minorm.support.locks import shared_lock


def test_the_same_thread_may_come_back() -> None:
    lock = shared_lock()
    with lock, lock:
        pass
    assert lock.acquire(blocking=False)
    lock.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_waits_for_another_thread() -> None:
    lock, held = shared_lock(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            threading.Event().wait(0.05)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads
        child = os.fork()
    if child == 0:
        os._exit(0 if lock.acquire(timeout=5) else 1)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert lock.acquire(timeout=5)
    lock.release()
