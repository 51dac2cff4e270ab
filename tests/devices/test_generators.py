"""The generator: the same seed, the same numbers; a state that can be kept and put back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import checkpoint, nn, optim, random

OF_PCG64 = Path(__file__).parents[1] / "checkpoints" / "of_pcg64.safetensors"  # written while minorm drew from that


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


def test_host_and_kernels_draw_from_one_key_and_no_block_twice() -> None:
    mn.manual_seed(3)
    key = np.random.Philox(3).state["state"]["key"]
    normal, uniform, dropped = mn.randn(9, dtype=mn.float64), mn.rand(9), F.dropout(mn.ones(9), 0.5)
    np.testing.assert_array_equal(normal.numpy(), np.random.Generator(np.random.Philox(3)).standard_normal(9))
    of_kernels = np.random.Generator(np.random.Philox(counter=[0, 0, 0, 1], key=key))
    words = of_kernels.integers(0, 2**32 - 1, 32, np.uint32, endpoint=True)  # 9 and 9 elements: two blocks of 8 each
    np.testing.assert_array_equal(uniform.numpy(), (words[:9] >> 8) * np.float32(2.0**-24))
    np.testing.assert_array_equal(dropped.numpy(), np.where(words[16:25] >= 2**31, 2, 0))
    assert random.get_state()["blocks"] == 4


def test_a_generator_of_ones_own_counts_its_own_blocks() -> None:
    generator = mn.Generator().manual_seed(4)
    first = [mn.rand(3, generator=generator).tolist() for _ in range(2)]
    assert first[0] != first[1]
    mn.manual_seed(4)
    assert [mn.rand(3).tolist() for _ in range(2)] == first
    assert mn.manual_seed(4) is mn.manual_seed(4)


@pytest.mark.parametrize("seed", [-1, 1.5, "x", True])
def test_a_wrong_seed_is_named(seed) -> None:
    with pytest.raises(ValueError, match="manual_seed: seed must be a non-negative int; got"):
        mn.manual_seed(seed)


def draws() -> dict[str, mn.Tensor]:
    x = mn.ones(5, 7)
    return {
        "dropout": F.dropout(x, 0.3),
        "channels": F.dropout1d(x, 0.5),
        "alpha": F.alpha_dropout(x, 0.2, True),
        "rand": mn.rand(3),
        "double": mn.rand(3, dtype=mn.float64),
        "randn": mn.randn(5),
        "bernoulli": mn.bernoulli(mn.full((9,), 0.4)),
        "weights": nn.init.kaiming_uniform_(mn.empty(3, 4)),
        "uniform_": mn.empty(3).uniform_(-1, 2),
        "bernoulli_": mn.empty(9).bernoulli_(0.4),
        "rrelu": F.rrelu(-x, training=True),
        "randint": mn.randint(100, (4,)),
        "randperm": mn.randperm(8),
        "gumbel": F.gumbel_softmax(x),
    }


@pytest.fixture
def _as_before() -> Iterator[None]:
    state = random.get_state()
    yield
    random.set_state(state)


@pytest.mark.usefixtures("_as_before")
def test_a_run_that_drew_from_pcg64_goes_on_with_its_old_bits() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3), nn.Linear(6, 3))
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    rest = checkpoint.load_training(OF_PCG64, model=model, optimizer=optimizer)
    random.set_state(rest["random"])
    assert random.get_state() == rest["random"]
    assert rest["random"]["bit_generator"] == "PCG64"
    F.cross_entropy(model(mn.randn(8, 4)), mn.randint(3, (8,))).backward()
    optimizer.step()
    np.testing.assert_allclose(model[0].weight.numpy(), rest["weight"].numpy(), 1e-6, 1e-7)
    for name, found in draws().items():
        np.testing.assert_array_equal(found.numpy(), rest["draws"][name].numpy(), name)
    assert random.get_state()["bit_generator"] == "PCG64"
    mn.manual_seed(0)
    assert random.get_state()["bit_generator"] == "Philox"


@pytest.mark.usefixtures("_as_before")
def test_ranks_go_on_from_pcg64_too() -> None:
    states = [dict(np.random.PCG64(7).jumped(rank).state) for rank in range(2)]

    def program(group: mn.distributed.Group) -> Any:
        random.set_state({"ranks": states})
        first = random.get_state()
        drawn = mn.rand(3).tolist()
        return first, drawn, random.get_state()["ranks"][group.rank]

    for rank, (first, drawn, after) in enumerate(mn.distributed.simulate(2, program)):
        assert first == {"ranks": states}
        generator = np.random.Generator(np.random.PCG64(7).jumped(rank))
        assert drawn == generator.random(3, np.float32).tolist()
        assert after == generator.bit_generator.state


def test_the_state_of_a_generator_that_minorm_never_had_is_refused() -> None:
    before = random.get_state()
    with pytest.raises(ValueError, match="set_state: the state is that of SFC64; expected Philox, or PCG64"):
        random.set_state(dict(np.random.SFC64(1).state))
    assert random.get_state() == before


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


def test_kept_goes_on_as_if_nothing_had_been_drawn() -> None:
    mn.manual_seed(3)
    expected = mn.rand(5).numpy()
    mn.manual_seed(3)
    with pytest.raises(KeyError), mn.random.kept():
        mn.randn(7)
        mn.rand(70)
        raise KeyError
    np.testing.assert_array_equal(mn.rand(5).numpy(), expected)
