"""One run a folder: the lock ends with its process, and nothing is written through a link or over another file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from minorm.training.files.run_folder import BEST, LOCK, WRITTEN, check_copy, keep_copy, locked
from minorm.training.model.own_code import Code

needs_locks = pytest.mark.skipif(sys.platform == "win32", reason="there is no flock")


def in_a_thread(folder: Path) -> list[str]:
    """Return the answer that another run in the folder gets."""
    said: list[str] = []

    def other() -> None:
        try:
            with locked(str(folder)):
                said.append("locked")
        except BlockingIOError as error:
            said.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    return said


@needs_locks
def test_two_at_once_are_one_too_many(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with locked(str(folder)):
        expected = f"another run is training in {folder}; wait until that run ends, or choose another --out"
        assert in_a_thread(folder) == [expected]
        with locked(f"{folder}/../run"):  # the same thread may ask again, by any path
            assert in_a_thread(folder) == [expected]
        assert in_a_thread(folder) == [expected]
        (folder / "log.csv").write_text("")
    assert os.listdir(folder) == ["log.csv"]
    assert in_a_thread(folder) == ["locked"]


@needs_locks
def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    program = (
        "import sys, time; from minorm.training.files.run_folder import locked\n"
        "with locked(sys.argv[1]): print('locked', flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        assert "another run is training in" in in_a_thread(tmp_path)[0]
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / LOCK).exists(), "nothing could remove it"
    assert in_a_thread(tmp_path) == ["locked"]


FORKS = """
import os, sys, time
from minorm.training.files.run_folder import locked
with locked(sys.argv[1]):
    child = os.fork()
    if child == 0:
        sys.argv[2:] and sys.exit()  # which leaves the block
        time.sleep(60)
    print(child, flush=True)
    time.sleep(60)
"""


@needs_locks
def test_a_child_does_not_hold_the_lock(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", FORKS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            assert "another run is training in" in in_a_thread(tmp_path)[0]
            process.kill()
            process.wait()
            deadline = time.monotonic() + 20  # the child may not have come to its first step yet
            while (said := in_a_thread(tmp_path)) != ["locked"] and time.monotonic() < deadline:
                time.sleep(0.05)
            assert said == ["locked"]
            os.kill(child, 0)  # it is still there
        finally:
            os.kill(child, signal.SIGKILL)


@needs_locks
def test_a_child_that_leaves_the_block_leaves_the_lock(tmp_path: Path) -> None:
    words = [sys.executable, "-c", FORKS, str(tmp_path), "leave"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        state = Path(f"/proc/{child}/stat")
        deadline = time.monotonic() + 20
        while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (tmp_path / LOCK).exists()
        assert "another run is training in" in in_a_thread(tmp_path)[0]
        process.kill()


@needs_locks
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be another user")
def test_a_file_that_another_user_has_left_locks_nothing() -> None:
    """One that this user may read; else the error says whose it is, and what to do."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / LOCK).touch(0o644)
        with as_user(12345):
            assert in_a_thread(folder) == ["locked"]
        assert not (folder / LOCK).exists(), "the folder is theirs as well"
        (folder / LOCK).touch(0o600)
        with as_user(12345), pytest.raises(PermissionError) as caught, locked(name):
            pass
        assert str(caught.value) == (
            f"train: cannot write '{name}/.lock': Permission denied; the file belongs to root. If root has no run in "
            "this folder, ask for the file to be removed; otherwise choose another --out"
        )
        os.chown(folder / LOCK, 54321, 54321)
        with (
            as_user(12345),
            pytest.raises(PermissionError, match="the file belongs to the user with id 54321"),
            locked(name),
        ):
            pass
        os.chown(folder / LOCK, 12345, 12345)
        (folder / LOCK).chmod(0o000)
        with as_user(12345), pytest.raises(PermissionError, match=r"Permission denied$"), locked(name):
            pass
        (folder / LOCK).unlink()
        folder.chmod(0o755)
        with as_user(12345), pytest.raises(PermissionError, match=r"cannot write .*Permission denied$"), locked(name):
            pass


@contextmanager
def as_user(user: int) -> Iterator[None]:
    """Open files in the name of this user."""
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_was_made_for_nothing_is_gone(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), locked(str(tmp_path / "a" / "b" / "new")):
        raise RuntimeError
    assert not (tmp_path / "a").exists()
    with pytest.raises(RuntimeError), locked(str(tmp_path / "new")):
        raise RuntimeError
    assert not (tmp_path / "new").exists()
    with pytest.raises(RuntimeError), locked(str(tmp_path)):
        raise RuntimeError
    assert tmp_path.exists()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"), locked(str(tmp_path / "file")):
        pass
    (tmp_path / LOCK).mkdir()
    with pytest.raises(OSError, match=r"train: cannot write '.*\.lock'"), locked(str(tmp_path)):
        pass


@pytest.mark.parametrize("name", WRITTEN)
def test_no_link_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "mine").write_text("precious")
    (run / name).symlink_to(tmp_path / "mine")
    with pytest.raises(ValueError, match=rf"{name} is a link to {tmp_path}/mine; expected a file"), locked(str(run)):
        pass
    (run / name).unlink()
    (run / name).symlink_to("elsewhere")
    with locked(str(run)):
        assert sorted(os.listdir(run)) == [LOCK, name] if name > LOCK else [name, LOCK]


def test_a_copy_is_written_once_and_over_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("a = 1")
    (tmp_path / "run").mkdir()
    code, run = Code.read(f"{tmp_path}/mine.py:build"), str(tmp_path / "run")
    keep_copy(run, code)
    assert (tmp_path / "run/mine.py").read_text() == "a = 1"
    before = (tmp_path / "run/mine.py").stat().st_mtime_ns
    keep_copy(run, code)
    assert (tmp_path / "run/mine.py").stat().st_mtime_ns == before
    keep_copy(str(tmp_path), code)  # the file itself lies there
    (tmp_path / "run/mine.py").write_text("precious")
    with pytest.raises(ValueError, match=r"run has a mine\.py that differs from .*; move the old file away, or choose"):
        keep_copy(run, code)
    assert (tmp_path / "run/mine.py").read_text() == "precious"
    (tmp_path / "run/mine.py").unlink()
    (tmp_path / "run/mine.py").symlink_to(tmp_path / "nothing")
    with pytest.raises(ValueError, match="that differs from"):
        check_copy(run, code)
    assert BEST not in os.listdir(run)
