"""Threads that read ahead give the order and bits of no threads, raise errors in turn, and end without waiting."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minorm.data import ArrayDataset, BrokenImage, Compose, DataLoader, ImageFolder, RandomCrop, RandomHorizontalFlip
from minorm.data.ahead import ahead
from tests.interrupts import at_every_line


def workers() -> int:
    return sum(thread.name.startswith("DataLoader-") for thread in threading.enumerate())


def wait_for(holds: Any, seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@settings(max_examples=30, deadline=None)
@given(count=st.integers(0, 20), threads=st.integers(1, 4), depth=st.integers(1, 9), seed=st.integers(0, 99))
def test_results_come_in_order(count: int, threads: int, depth: int, seed: int) -> None:
    naps = np.random.default_rng(seed).random(count) / 1000

    def task(i: int) -> Any:
        return lambda: (time.sleep(naps[i]), i)[1]

    assert list(ahead(map(task, range(count)), threads, depth)) == list(range(count))


def test_no_more_than_depth_are_read_ahead() -> None:
    begun: list[int] = []
    results = ahead((lambda i=i: begun.append(i) or i for i in itertools.count()), 2, 5)
    assert next(results) == 0
    wait_for(lambda: len(begun) == 6)  # the first, and five more
    time.sleep(0.05)
    assert len(begun) == 6
    results.close()
    wait_for(lambda: workers() == 0)


def noise(count: int = 50) -> ArrayDataset:
    images = np.random.default_rng(0).integers(0, 256, (count, 3, 12, 12), np.uint8)
    return ArrayDataset(images, np.arange(count), scale=255)


def batches(count: int, **options: Any) -> list[bytes]:
    transform = Compose([RandomCrop(12, padding=2), RandomHorizontalFlip()])
    loader = DataLoader(noise(), 8, shuffle=True, transform=transform, seed=3, num_workers=count, **options)
    return [part.numpy().tobytes() for _ in range(2) for batch in loader for part in batch]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_workers_change_no_bit(count: int) -> None:
    assert batches(count) == batches(0)
    assert batches(count, prefetch_factor=1, persistent_workers=True) == batches(0)


@pytest.mark.parametrize("count", [0, 2])
def test_the_place_is_that_of_the_batch_handed_out(count: int) -> None:
    loader = DataLoader(noise(), 8, shuffle=True, seed=3, num_workers=count)
    seen = iter(loader)
    first = [next(seen)[1].tolist() for _ in range(3)]
    time.sleep(0.02)
    state = loader.state_dict()
    assert state["batch"] == 3
    again = DataLoader(noise(), 8, shuffle=True, num_workers=count)
    again.load_state_dict(state)
    rest = [labels.tolist() for _, labels in again]
    assert sorted(itertools.chain(*first, *rest)) == list(range(50))
    assert rest == [labels.tolist() for _, labels in seen]


def test_a_step_never_waits_where_reading_is_cheaper() -> None:
    """While a step computes, the next batch is read, unasked: it is there when the step ends."""
    read = [threading.Event() for _ in range(6)]

    class Told:
        def __len__(self) -> int:
            return len(read)

        def __getitem__(self, i: int) -> Any:
            read[i].set()
            return np.float32(i)

    for place, _ in enumerate(DataLoader(Told(), 1, num_workers=2), 1):
        assert place == len(read) or read[place].wait(5)  # the step, which lasts until the next batch is read

    read = [threading.Event() for _ in range(6)]
    for place, _ in enumerate(DataLoader(Told(), 1, num_workers=0), 1):  # no thread reads ahead
        assert place == len(read) or not read[place].is_set()


class Failing:
    """A dataset whose 20th sample cannot be read."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> Any:
        if i == 20:
            raise LookupError("sample 20")
        return np.float32(i)


def test_an_exception_comes_at_its_turn_and_ends_the_threads() -> None:
    loader = iter(DataLoader(Failing(), 8, num_workers=2))
    assert [next(loader)[0].item() for _ in range(2)] == [0, 8]
    with pytest.raises(LookupError, match="sample 20"):
        next(loader)
    wait_for(lambda: workers() == 0)


def test_a_broken_picture_in_a_thread_is_named(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.png").write_bytes(b"no picture")
    with pytest.raises(BrokenImage, match=r"0\.png' is no readable picture"):
        list(DataLoader(ImageFolder(tmp_path, 8), 1, num_workers=2))


def test_the_other_arguments_of_workers() -> None:
    started: list[int] = []
    list(DataLoader(noise(), 8, num_workers=3, worker_init_fn=started.append))
    wait_for(lambda: sorted(started) == [0, 1, 2])

    def fails(worker: int) -> None:
        raise ArithmeticError(f"worker {worker}")

    with pytest.raises(ArithmeticError, match="worker 0"):
        list(DataLoader(noise(), 8, num_workers=1, worker_init_fn=fails))

    class Slow(Failing):
        def __getitem__(self, i: int) -> Any:
            time.sleep(2)

    with pytest.raises(RuntimeError, match=r"no batch arrived within timeout=0\.1 seconds"):
        list(DataLoader(Slow(), 1, num_workers=1, timeout=0.1))
    for wrong in ({"num_workers": -1}, {"num_workers": 1.5}, {"num_workers": 1, "prefetch_factor": 0}):
        with pytest.raises(ValueError, match=list(wrong)[-1]):
            DataLoader(noise(), 8, **wrong)


def test_a_step_does_not_wait_where_reading_is_cheaper() -> None:
    """40 batches of 15 ms to read by two threads, 20 ms a step: the steps' time, and not both."""

    class Slow:
        def __len__(self) -> int:
            return 40

        def __getitem__(self, i: int) -> Any:
            time.sleep(0.015)
            return np.float32(i)

    waited = []
    loader = iter(DataLoader(Slow(), 1, num_workers=2))
    for _ in range(40):
        start = time.perf_counter()
        next(loader)
        waited.append(time.perf_counter() - start)
        time.sleep(0.02)
    assert np.median(waited[3:]) < 0.005


PROGRAM = """
import time, numpy as np
from minorm.data import DataLoader

class Slow:
    def __len__(self): return 100
    def __getitem__(self, i):
        if i > 3: time.sleep(60)
        return np.float32(i)

for batch in DataLoader(Slow(), 1, num_workers=2):
    print("batch", flush=True)
"""


def test_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(4):
        assert process.stdout.readline() == "batch\n"
    time.sleep(0.2)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - start < 2
    assert "KeyboardInterrupt" in errors


@pytest.mark.parametrize("count", [1, 3])
def test_ctrl_c_at_any_line_leaves_no_thread(count: int, monkeypatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's keeps the frames
    dataset = ArrayDataset(np.arange(6))
    before = workers()

    def two_batches(_: Any) -> None:
        loader = iter(DataLoader(dataset, batch_size=1, num_workers=count))
        next(loader)
        next(loader)
        loader.close()

    for _ in at_every_line(two_batches, "data/ahead.py", "data/loader.py"):
        pass
    wait_for(lambda: workers() <= before)


def test_ctrl_c_while_an_epoch_is_left_alone_leaves_no_thread(monkeypatch) -> None:
    """The generator is collected, not closed: an exception there is only written to stderr."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's keeps the frames
    dataset = ArrayDataset(np.arange(6))
    before = workers()
    for _ in at_every_line(lambda _: next(iter(DataLoader(dataset, num_workers=2))), "data/ahead.py", "data/loader.py"):
        pass
    wait_for(lambda: workers() <= before)


def test_threads_that_the_system_refuses(monkeypatch) -> None:
    start, before = threading.Thread.start, workers()

    def refusing(thread: threading.Thread) -> None:
        if thread.name == "DataLoader-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refusing)
    loader = DataLoader(ArrayDataset(np.arange(6)), num_workers=5)
    with pytest.raises(RuntimeError, match=r"num_workers=5, but the system could start only 2 threads: can't start"):
        next(iter(loader))
    wait_for(lambda: workers() <= before)


def test_more_workers_than_there_can_be() -> None:
    with pytest.raises(ValueError, match="DataLoader: num_workers=1000000; expected at most 1024"):
        DataLoader(ArrayDataset(np.arange(6)), num_workers=10**6)
