"""A file is the old one or the new one: errors, links, modes, and a process that is killed while it writes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from minorm.atomic import replacing

ROOT = Path(__file__).resolve().parent.parent


def write(path: Path | str, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


def test_makes_and_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "a", b"old")
    write(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


def test_a_relative_path_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("a", b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_keeps_the_old_file_and_removes_the_new(tmp_path: Path, error: type[BaseException]) -> None:
    write(tmp_path / "a", b"old")
    with pytest.raises(error), replacing(tmp_path / "a") as file:
        file.write(b"half")
        raise error
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    write(tmp_path / "a", b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(OSError, match="large"):
            write(tmp_path / "a", bytes(2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_failing_fsync_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a", b"old")

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_data_reaches_the_disk_before_the_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    fsync, replace = os.fsync, os.replace

    def spy_fsync(descriptor: int) -> None:
        order.append("folder" if os.path.samestat(os.fstat(descriptor), os.stat(tmp_path)) else "file")
        fsync(descriptor)

    def spy_replace(source: str, target: str) -> None:
        order.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "replace", spy_replace)
    write(tmp_path / "a", b"x")
    assert order == ["file", "replace", "folder"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_the_mode_is_the_umasks(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "a", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_stays_a_link(tmp_path: Path, dangling: bool) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    if not dangling:
        (folder / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(folder / "real")
    write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (folder / "real").read_bytes() == b"new"
    assert os.listdir(folder) == ["real"]


def test_a_missing_folder_and_a_folder_as_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"save: the folder .* does not exist; create it first"):
        write(tmp_path / "no" / "a", b"x")
    with pytest.raises(OSError, match=r"save: .* is a folder or a device; expected a file name"):
        write(tmp_path, b"x")
    with pytest.raises(OSError, match="folder or a device"):
        write("/dev/null", b"x")


def test_a_long_name(tmp_path: Path) -> None:
    name = "é" * 127  # 254 bytes; a name may have 255, and the temporary one must fit too
    write(tmp_path / name, b"x")
    assert os.listdir(tmp_path) == [name]


# One process that does nothing else forks the savers: forking is quick, and the test's own process stays out of it.
KILLER = """
    import os, random, signal, sys, time
    import numpy as np
    from minorm import tensorfile

    path, trials = sys.argv[1], int(sys.argv[2])
    size = 20_000

    def state(i):
        return {"a": np.full(size, i, np.int64), "b": np.full((3, 5), i, np.float32), "i": np.array(i)}

    first = 0
    start = time.perf_counter()
    for _ in range(5):
        tensorfile.write(state(first), path)
    pause = 0.003 + 4 * (time.perf_counter() - start) / 5  # a fork and about three saves, however slow the disk is
    changed = broken = lost = 0
    chance = random.Random(0)
    for trial in range(trials):
        child = os.fork()
        if child == 0:
            i = first
            while True:
                i += 1
                tensorfile.write(state(i), path)
        time.sleep(chance.uniform(0, pause))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        try:
            arrays, _ = tensorfile.read(path)
        except (ValueError, OSError):
            broken += 1
            continue
        i = int(arrays["i"])
        right = all(np.array_equal(arrays[name], array) for name, array in state(i).items())
        broken += not right
        lost += i < first
        changed += i > first
        first = i
    print(changed, broken, lost)
"""


def test_a_file_survives_200_kills(tmp_path: Path) -> None:
    trials = 200
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLER), str(tmp_path / "model.safetensors"), str(trials)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    changed, broken, lost = map(int, run.stdout.split())
    assert (broken, lost) == (0, 0)
    assert changed > trials // 10, "the kills came before any save was done: the test tests nothing"
    leftovers = [name for name in os.listdir(tmp_path) if name != "model.safetensors"]
    assert all(name.startswith(".model.safetensors.") and name.endswith(".tmp") for name in leftovers)
    assert leftovers, "no kill hit a save: the test tests nothing"
