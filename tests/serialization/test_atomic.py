"""A file is the old one or the new one: errors, links, modes, and a process that is killed while it writes."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from minorm.serialization import safetensors_file
from minorm.serialization.atomic import make_folder, making_folder, passing, replacing

ROOT = Path(__file__).resolve().parents[2]


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
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path, "folder"), (tmp_path / "pipe", "pipe"), ("/dev/null", "device")):
        with pytest.raises(OSError, match=f"^save: '{path}' is a {kind}; expected a file name$"):
            write(path, b"x")


@pytest.mark.parametrize("name", ["a/", "a//", "a/.", "a/..", "new/", "", ".", "a/../new"])
def test_a_name_that_means_a_folder_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write("a", b"old")
    message = r"names a folder; expected a file name|the folder 'a/\.\.' does not exist"
    with pytest.raises(OSError, match=message), replacing(name):
        pytest.fail("the block began")
    assert Path("a").read_bytes() == b"old"
    assert os.listdir() == ["a"]


def test_links_in_a_ring_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    for path in (tmp_path / "self", tmp_path / "one", tmp_path / "self" / "a"):
        with pytest.raises(
            OSError, match=f"^save: cannot write '{path}': Too many levels of symbolic links$"
        ) as caught:
            write(path, b"x")
        assert caught.value.errno == errno.ELOOP
    assert sorted(os.listdir(tmp_path)) == ["one", "self", "two"]
    assert all((tmp_path / name).is_symlink() for name in os.listdir(tmp_path))


@pytest.mark.parametrize("step", ["write", "fsync", "replace", "open"])
def test_every_error_of_writing_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    write(tmp_path / "a", b"old")

    def fail(*args: Any, **options: Any) -> Any:
        # The system names what it was given, a temporary file, or nothing at all.
        name = [os.fspath(args[0])] if args and isinstance(args[0], (str, os.PathLike)) else []
        raise OSError(errno.ENOSPC, "No space left on device", *name)

    if step != "write":
        monkeypatch.setattr(os, step, fail)
    message = f"^save: cannot write '{tmp_path / 'a'}': No space left on device$"
    with pytest.raises(OSError, match=message) as caught, replacing(tmp_path / "a") as file:
        file.write(b"new")
        if step == "write":
            fail()
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_an_error_that_names_another_file_passes_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No such file .*elsewhere") as caught, replacing(tmp_path / "a"):
        (tmp_path / "elsewhere").read_bytes()
    assert caught.value.filename == str(tmp_path / "elsewhere")
    assert os.listdir(tmp_path) == []


def test_make_folder(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b", "train")
    make_folder(tmp_path / "a" / "b", "train")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError, match=r"^train: '.*file' is a file; expected a folder, or a new name for one$"):
        make_folder(tmp_path / "file", "train")
    with pytest.raises(NotADirectoryError, match=r"^train: cannot make the folder '.*file/a': Not a directory$"):
        make_folder(tmp_path / "file" / "a", "train")


def test_folders_that_cannot_all_be_made_are_gone(tmp_path: Path) -> None:
    name = "x" * 300
    with pytest.raises(OSError, match=r"train: cannot make the folder '.*File name too long"):
        make_folder(tmp_path / "a" / "b" / name / "c", "train")
    assert os.listdir(tmp_path) == []
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(FileExistsError, match="link' is a file"):
        make_folder(tmp_path / "link", "train")


def test_folders_that_a_block_leaves_empty_are_gone(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("old")
    for path in ("a/b/c", "a/b/c/", "old/d", "e/../f", "old"):
        with pytest.raises(KeyError), making_folder(path, "train"):
            assert os.path.isdir(path)
            raise KeyError
        assert [name for name in os.listdir() if name != "e"] == ["old"]
        assert os.listdir("old") == []
    with pytest.raises(KeyError), making_folder("a/b/c", "train"):
        Path("a/kept").write_text("")
        raise KeyError
    assert sorted(path.as_posix() for path in Path("a").rglob("*")) == ["a/kept"]
    with making_folder("g/h", "train"):
        pass
    assert not os.path.exists("g")


# Temporary files: without a name if the system supports that, else swept away when no process holds them

HAS_UNNAMED = hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")


def only_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without O_TMPFILE."""
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)


@pytest.mark.skipif(not HAS_UNNAMED, reason="the system has no files without names")
def test_a_file_has_no_name_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with replacing(tmp_path / "a") as file:
        file.write(b"x")
        assert os.listdir(tmp_path) == []
    assert os.listdir(tmp_path) == ["a"]
    only_named(monkeypatch)
    with replacing(tmp_path / "a") as file:
        assert len(os.listdir(tmp_path)) == 2
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_without_unnamed_files_all_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int) -> None:
    only_named(monkeypatch)
    before = os.umask(umask)
    try:
        write(tmp_path / "a", b"old")
        write(tmp_path / "a", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~umask
    with pytest.raises(RuntimeError), replacing(tmp_path / "a") as file:
        file.write(b"half")
        raise RuntimeError
    assert (tmp_path / "a").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("full", [False, True])
def test_a_system_that_cannot_name_its_unnamed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    write(tmp_path / "a", b"old")

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def fill(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", refuse)
    if full:
        monkeypatch.setattr(shutil, "copyfileobj", fill)
        with pytest.raises(OSError, match=r"cannot write .*: No space left"):
            write(tmp_path / "a", b"new" * 1000)
    else:
        write(tmp_path / "a", b"new" * 1000)
    assert (tmp_path / "a").read_bytes() == (b"old" if full else b"new" * 1000)
    assert os.listdir(tmp_path) == ["a"]


def test_what_a_killed_writer_left_goes_and_what_is_held_or_foreign_stays(tmp_path: Path) -> None:
    foreign = [".a.tmp", ".a.0123456789ab.tmp.kept", ".a.0123456789AB.tmp", ".b.0123456789ab.tmp", "a.0123456789ab.tmp"]
    for name in foreign:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".a.0123456789ab.tmp").write_bytes(b"left by a killed writer")
    (tmp_path / ".a.ba9876543210.tmp").symlink_to(tmp_path / "elsewhere")
    with passing(tmp_path / "a", "export") as (held, file):
        file.write(b"trial")
        write(tmp_path / "a", b"x")
        assert os.path.exists(held)
        expected = {"a", os.path.basename(held), ".a.ba9876543210.tmp", *foreign}
        assert set(os.listdir(tmp_path)) == expected
    assert not os.path.exists(held)


def test_one_file_at_most_is_swept_away_while_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another process sweeps a file away between its creation and its lock, a new one is made."""
    only_named(monkeypatch)
    real, swept = os.open, []

    def slow(path: Any, flags: int, *rest: Any) -> int:
        descriptor = real(path, flags, *rest)
        if flags & os.O_EXCL and not swept:
            swept.append(path)
            os.unlink(path)
        return descriptor

    monkeypatch.setattr(os, "open", slow)
    write(tmp_path / "a", b"x")
    assert swept
    assert (tmp_path / "a").read_bytes() == b"x"
    assert os.listdir(tmp_path) == ["a"]


WRITER = """
    import os, sys
    from minorm.serialization.atomic import replacing

    path, content, rounds, named = sys.argv[1], sys.argv[2].encode() * 5000, int(sys.argv[3]), sys.argv[4] == "named"
    if named and hasattr(os, "O_TMPFILE"):
        del os.O_TMPFILE
    for _ in range(rounds):
        with replacing(path) as file:
            file.write(content)
        with open(path, "rb") as file:
            seen = file.read()
        assert len(seen) == 5000 and seen.count(seen[:1]) == 5000, "half of one, half of another"
"""


@pytest.mark.parametrize("how", ["named", "unnamed"])
def test_two_writers_at_once_are_unharmed(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path / "a")]
    writers = [
        subprocess.Popen([*command, letter, "150", how], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for letter in "xy"
    ]  # fmt: skip
    errors = [writer.communicate(timeout=100)[1] for writer in writers]
    assert errors == ["", ""]
    assert os.listdir(tmp_path) == ["a"]


def test_a_long_name(tmp_path: Path) -> None:
    name = "é" * 127  # 254 bytes; a name may have 255, and the temporary one must fit too
    write(tmp_path / name, b"x")
    assert os.listdir(tmp_path) == [name]


# One process that does nothing else forks the savers: forking is quick, and the test's own process stays out of it.
KILLER = """
    import os, random, signal, sys, time
    import numpy as np
    from minorm.serialization import safetensors_file

    path, trials = sys.argv[1], int(sys.argv[2])
    if sys.argv[3] == "named" and hasattr(os, "O_TMPFILE"):
        del os.O_TMPFILE
    size = 20_000

    def state(i):
        return {"a": np.full(size, i, np.int64), "b": np.full((3, 5), i, np.float32), "i": np.array(i)}

    first = 0
    start = time.perf_counter()
    for _ in range(5):
        safetensors_file.write(state(first), path)
    pause = 0.003 + 4 * (time.perf_counter() - start) / 5  # a fork and about three saves, however slow the disk is
    changed = broken = lost = most = left = 0
    chance = random.Random(0)
    for trial in range(trials):
        child = os.fork()
        if child == 0:
            i = first
            while True:
                i += 1
                safetensors_file.write(state(i), path)
        time.sleep(chance.uniform(0, pause))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        try:
            arrays, _ = safetensors_file.read(path)
        except (ValueError, OSError):
            broken += 1
            continue
        found = [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".tmp")]
        left += bool(found)
        most = max(most, len(found))
        i = int(arrays["i"])
        right = all(np.array_equal(arrays[name], array) for name, array in state(i).items())
        broken += not right
        lost += i < first
        changed += i > first
        first = i
    print(changed, broken, lost, most, left)
"""


@pytest.mark.parametrize("trials", [40, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("how", ["named", "unnamed"])
def test_a_file_survives_kills_and_what_they_leave_goes(tmp_path: Path, trials: int, how: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLER), str(tmp_path / "model.safetensors"), str(trials), how],
        cwd=ROOT, capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    changed, broken, lost, most, left = map(int, run.stdout.split())
    assert (broken, lost) == (0, 0)
    assert changed > trials // 10, "the kills came before any save was done: the test tests nothing"
    assert most <= 1, "a save did not remove what killed ones had left"
    if how == "named":
        assert left, "no kill hit a save: the test tests nothing"
    safetensors_file.write({}, tmp_path / "model.safetensors")
    assert os.listdir(tmp_path) == ["model.safetensors"]
