"""The generator: the same seed, the same numbers; a state that can be kept and put back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import minorm as mn
from minorm import random


def test_the_same_seed_gives_the_same_numbers() -> None:
    mn.manual_seed(3)
    first = mn.randn(5).tolist()
    mn.manual_seed(3)
    assert mn.randn(5).tolist() == first
    mn.manual_seed(4)
    assert mn.randn(5).tolist() != first


def test_the_state_survives_json() -> None:
    state = json.loads(json.dumps(random.get_state()))
    first = random.generator().random(4)
    random.set_state(state)
    np.testing.assert_array_equal(random.generator().random(4), first)


@pytest.mark.parametrize("seed", [-1, 1.5, "x", True])
def test_a_wrong_seed_is_named(seed) -> None:
    with pytest.raises(ValueError, match="manual_seed: seed must be a non-negative int; got"):
        mn.manual_seed(seed)


def in_a_new_process(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(mn.__file__).parents[1])},
    )  # fmt: skip


def test_threads_that_ask_first_get_one_generator() -> None:
    """Two generators, of which one is soon forgotten, would lose a seed."""
    program = """
        import sys, threading
        from minorm import random

        sys.setswitchinterval(1e-6)
        together, found = threading.Barrier(8), []

        def ask():
            together.wait()
            found.append(random.generator())

        threads = [threading.Thread(target=ask) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(len(found), len(set(map(id, found))))
    """
    result = in_a_new_process(program)
    assert result.stdout == "8 1\n", result.stderr


def test_the_state_is_not_read_or_set_in_the_middle_of_a_draw() -> None:
    lock, done = random.generator().bit_generator.lock, []
    state = random.get_state()
    calls = (random.get_state, lambda: random.set_state(state), lambda: mn.manual_seed(1))
    threads = [threading.Thread(target=lambda call=call: done.append(call())) for call in calls]
    with lock:  # as NumPy holds it while it draws
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        assert done == []
    for thread in threads:
        thread.join()
    assert len(done) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("forks", [25, pytest.param(500, marks=pytest.mark.slow)])
def test_a_fork_beside_threads_that_draw_leaves_the_child_a_generator(forks: int) -> None:
    """The child had a copy of a lock that was held, and no thread to let go of it: it waited for ever."""
    program = f"""
        import os, signal, threading, time, warnings
        import minorm as mn

        warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads: that is the point here

        def draw():
            while True:
                mn.randn(3000)

        for _ in range(2):
            threading.Thread(target=draw, daemon=True).start()
        failed = False
        for _ in range({forks}):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                mn.manual_seed(3)
                os._exit(0 if len(mn.randn(5).tolist()) == 5 else 1)
            failed = os.waitpid(child, 0)[1] != 0
            if failed:
                break
        print("failed:", failed, flush=True)
        os._exit(0)
    """
    result = in_a_new_process(program)
    assert result.stdout == "failed: False\n", result.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("drawn", [False, True])
def test_parent_and_child_go_on_with_the_same_numbers(drawn: bool) -> None:
    program = f"""
        import os, signal, warnings
        import minorm as mn

        warnings.simplefilter("ignore")
        if {drawn}:
            mn.manual_seed(5)
            mn.rand(3)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            mn.random.generator() if {drawn} else mn.manual_seed(5)
            os.write(write, str(mn.rand(4).tolist()).encode())
            os._exit(0)
        os.waitpid(child, 0)
        {drawn} or mn.manual_seed(5)
        print(os.read(read, 1000).decode() == str(mn.rand(4).tolist()))
    """
    result = in_a_new_process(program)
    assert result.stdout == "True\n", result.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_in_the_middle_of_a_draw_of_its_own_thread() -> None:
    """Shuffling a list runs its code with the lock held; the lock may be taken twice by one thread."""
    program = """
        import os, signal, warnings
        import minorm as mn

        warnings.simplefilter("ignore")
        signal.alarm(20)

        class Forking(list):
            def __setitem__(self, index, value):
                super().__setitem__(index, value)
                if not forked:
                    forked.append(os.fork())

        forked = []
        mn.random.generator().shuffle(Forking(range(5)))
        mn.rand(3)
        if forked[0] == 0:
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(forked[0], 0)[1]))
    """
    result = in_a_new_process(program)
    assert result.stdout == "7\n", result.stderr
