"""The allowance counts the time of waiting, and only once if several wait at the same time."""

from __future__ import annotations

import threading
import time

from minorm.labs.calling.allowance import Allowance


def test_only_waiting_counts() -> None:
    allowance = Allowance(10.0)
    time.sleep(0.05)
    assert allowance.left == 10.0
    with allowance.waiting():
        time.sleep(0.05)
        assert allowance.left <= 9.95
    left = allowance.left
    time.sleep(0.02)
    assert allowance.left == left <= 9.95


def test_several_that_wait_count_once() -> None:
    allowance, start = Allowance(10.0), time.monotonic()

    def wait() -> None:
        with allowance.waiting():
            time.sleep(0.1)

    threads = [threading.Thread(target=wait) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.1 <= 10.0 - allowance.left <= time.monotonic() - start + 1e-6


def test_it_ends() -> None:
    allowance = Allowance(0.01)
    with allowance.waiting():
        time.sleep(0.02)
        assert allowance.left <= 0
    assert allowance.left <= 0
