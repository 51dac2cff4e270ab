"""All writes count, whether or not their file has a name; writes that cannot be counted are refused."""

from __future__ import annotations

import errno
import functools
import os

import pytest

from minorm.labs import remote
from minorm.labs.beside import Beside
from minorm.labs.calling.student import Failure
from minorm.labs.remote import Remote
from minorm.labs.sealed import counting, finding, process, seccomp, syscalls
from minorm.labs.sealed.counting import BLOCK, Count, Share
from tests.labs.sealed.filters import said

WATCHED = finding.find(("mounts", "user")) if finding.find().stand else finding.find()
needs_count = pytest.mark.skipif(not WATCHED.counted, reason="nothing is counted here")
REFUSED = seccomp.REFUSE | errno.EPERM
LINE = 7
TEXT = """\
import mmap, os

def kept(files, megabytes, keep):
    held, total = [], 0
    for i in range(files):
        file = os.open(f"f{i}", os.O_CREAT | os.O_RDWR)
        if keep != "name":
            os.unlink(f"f{i}")
        for _ in range(megabytes):
            total += os.write(file, bytes(1 << 20))
        held.append(mmap.mmap(file, 4096, mmap.MAP_PRIVATE) if keep == "mapping" else file)
        if keep == "mapping":
            os.close(file)
    return total

def renamed(megabytes):
    for i in range(megabytes):
        with open("new", "wb") as file:
            file.write(bytes(1 << 20))
        os.replace("new", "old")
    return megabytes

def in_one(name, size):
    file = os.open(name, os.O_CREAT | os.O_RDWR)
    os.ftruncate(file, size)
    mmap.mmap(file, size)

def vectors():
    return os.writev(os.open("v", os.O_CREAT | os.O_WRONLY), [b"x", b"y"])

def many(kind, first, last):
    for i in range(first, last):
        os.close(os.open(f"m{i}", os.O_CREAT)) if kind == "file" else os.mkdir(f"m{i}")

def print_much(megabytes):
    for _ in range(megabytes):
        print("x" * (1 << 20))
    return megabytes

def exchange(onto):
    os.dup2(os.open("e", os.O_CREAT | os.O_WRONLY), onto)

def save(x):
    import numpy as np
    np.savez("saved.npz", x=x)
    os.rename("saved.npz", "there.npz")
    return np.load("there.npz")["x"]
"""


SHARE = Share(size=16 << 20, files=60)


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller share is used up sooner."""
    monkeypatch.setattr(remote, "Process", functools.partial(process.Process, share=SHARE))


def student() -> Remote:
    mine = Remote(TEXT, "mine.py", Beside(""), 1 << 30, around=WATCHED)
    mine.allow(30)
    return mine


@needs_count
@pytest.mark.parametrize("keep", ["name", "descriptor", "mapping"])
def test_more_than_the_share_is_not_written(keep: str) -> None:
    with student() as mine:
        assert mine.kept(2, 2, keep) == 4 << 20
        with pytest.raises(Failure, match="No space left"):
            mine.kept(11, 14, keep)


@needs_count
def test_what_was_written_stays_counted() -> None:
    with student() as mine:
        assert mine.renamed(10) == 10
        with pytest.raises(Failure, match="No space left"):
            mine.renamed(10)


@needs_count
def test_what_cannot_be_counted_is_refused() -> None:
    with student() as mine:
        for call in (lambda: mine.in_one("holes", 1 << 25), mine.vectors, lambda: mine.exchange(1)):
            with pytest.raises(Failure, match="PermissionError"):
                call()


@needs_count
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_files_and_folders_are_counted(kind: str) -> None:
    with student() as mine:
        mine.many(kind, 0, 40)
        with pytest.raises(Failure, match="No space left"):
            mine.many(kind, 40, 80)


@needs_count
def test_what_is_printed_and_saved_as_usual() -> None:
    with student() as mine:
        assert mine.print_much(100) == 100
        assert list(mine.save([1.0, 2.0])) == [1.0, 2.0]
        mine.close()
        assert mine.printed >= 100 << 20


@needs_count
def test_the_filter() -> None:
    program = counting._program((1, 2, LINE), LINE)
    refused_map = seccomp.REFUSE | errno.EACCES
    assert said(program, "write", (1,)) == said(program, "write", (LINE,)) == seccomp.ALLOW
    assert said(program, "write", (5,)) == said(program, "pwrite64", (1,)) == seccomp.ASK
    assert said(program, "writev", (2,)) == seccomp.ALLOW
    assert said(program, "writev", (5,)) == REFUSED
    assert said(program, "close", (5,)) == said(program, "read") == said(program, "socket") == seccomp.ALLOW
    assert said(program, "close", (2,)) == REFUSED
    assert said(program, "close", (LINE,)) == seccomp.KILL
    for name in {"dup2", "dup3"} & syscalls.numbers().keys():
        assert said(program, name, (5, 1)) == said(program, name, (5, LINE)) == REFUSED
        assert said(program, name, (1, 5)) == seccomp.ALLOW
    assert said(program, "openat", (0, 0, os.O_RDWR)) == seccomp.ALLOW
    assert said(program, "openat", (0, 0, os.O_CREAT)) == seccomp.ASK
    assert said(program, "openat", (0, 0, os.O_TMPFILE | os.O_RDWR)) == seccomp.ASK
    assert said(program, "openat", (0, 0, os.O_DIRECTORY)) == seccomp.ALLOW
    assert said(program, "mkdirat") == seccomp.ASK
    shared, private, anonymous = 1, 2, 32
    assert said(program, "mmap", (0, 0, 0, shared)) == said(program, "mmap", (0, 0, 0, 3)) == refused_map
    assert said(program, "mmap", (0, 0, 0, private)) == seccomp.ALLOW
    assert said(program, "mmap", (0, 0, 0, shared | anonymous)) == seccomp.ALLOW


@needs_count
def test_the_filter_of_a_process_that_compiles() -> None:
    """Its programs close and exchange descriptors, so each write counts but that to the line."""
    program = counting._program_for_all(LINE)
    assert said(program, "write", (LINE,)) == seccomp.ALLOW
    assert {said(program, "write", (n,)) for n in (0, 1, 2, 5)} == {said(program, "pwrite64", (LINE,))} == {seccomp.ASK}
    assert said(program, "writev", (LINE,)) == said(program, "writev", (1,)) == REFUSED
    assert said(program, "close", (LINE,)) == said(program, "dup3", (5, 1)) == seccomp.ALLOW
    assert said(program, "openat", (0, 0, os.O_CREAT)) == said(program, "mkdirat") == seccomp.ASK
    assert said(program, "mmap", (0, 0, 0, 1)) == seccomp.REFUSE | errno.EACCES


@needs_count
def test_the_account() -> None:
    numbers = syscalls.numbers()
    count = Count(Share(size=10 * BLOCK, files=3))
    assert count.allows(numbers["write"], (5, 0, 4 * BLOCK))  # in six blocks, as it may begin and end within one
    assert not count.allows(numbers["write"], (5, 0, 3 * BLOCK))
    assert count.allows(numbers["pwrite64"], (5, 0, 1))
    assert not count.allows(numbers["write"], (5, 0, 1 << 63))
    assert [count.allows(numbers["mkdirat"], ()) for _ in range(4)] == [True, True, False, False]
    count = Count(Share(size=100 * BLOCK, files=2))
    assert [count.allows(numbers["openat"], ()) for _ in range(3)] == [True, True, False]
    assert count.allows(numbers["write"], (5, 0, 1))
