"""A sealed process gets a pipe and an empty folder, has limits, and surely ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import minorm_ext
from minorm.labs.beside import Beside
from minorm.labs.calling.student import Failure
from minorm.labs.remote import Remote
from minorm.labs.sealed import finding, walls
from minorm.labs.sealed.counting import SIZE
from minorm.labs.sealed.process import Process, _free_user

pytestmark = pytest.mark.skipif(not finding.find().stand, reason="no walls on this system")
GIB = 1 << 30
LAB = Beside("minorm.labs.beside.lab00_axes")
TEXT = """\
import os, sys, threading

def facts():
    return {
        "environment": [f"{k}={v}" for k, v in os.environ.items()], "arguments": sys.orig_argv, "here": os.getcwd(),
        "user": os.getuid(), "files": os.listdir("."), "descriptors": [n for n in range(300) if is_open(n)],
        "stdin": sys.stdin.read(),
    }

def is_open(n):
    try:
        os.fstat(n)
    except OSError:
        return False
    return True

def write(megabytes):
    for i in range(megabytes):
        with open(f"f{i}", "wb") as file:
            file.write(bytes(1 << 20))
    return megabytes
"""


def remote(without: tuple[str, ...] = (), memory: int = GIB) -> Remote:
    student = Remote(TEXT, "mine.py", LAB, memory, around=finding.find(without))
    student.allow(30)
    return student


@pytest.mark.parametrize("cap", [None, "baseline"])
def test_the_cap_on_the_level_is_handed_on(cap: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else lab 12 would compare the bits of two instruction sets."""
    monkeypatch.setattr(minorm_ext, "MAX_LEVEL", cap)
    monkeypatch.setattr(minorm_ext, "WINOGRAD", cap is None)
    with remote() as student:
        found = sorted(entry for entry in student.facts()["environment"] if entry.startswith("MINORM_"))
    assert found == ([] if cap is None else ["MINORM_MAX_LEVEL=baseline", "MINORM_WINOGRAD=0"])


def test_it_is_given_a_line_and_a_pipe_an_empty_folder_and_no_secret() -> None:
    with remote() as student:
        facts = student.facts()
    assert facts["files"] == []
    assert len(facts["descriptors"]) == 4, "nothing to read, what it prints, twice, and the line"
    assert facts["stdin"] == ""
    assert not Path(facts["here"]).exists(), "its folder is gone with it"
    names = {entry.split("=")[0] for entry in facts["environment"]}
    assert names <= {"HOME", "TMPDIR", "MPLBACKEND", "LC_CTYPE"}
    assert not any("mine" in word or "lab00" in word for word in facts["arguments"])


def test_each_process_has_a_user_of_its_own_where_there_are_some() -> None:
    if not finding.find().user:
        pytest.skip("only root can give users")
    with remote() as first, remote() as second:
        users = [student.facts()["user"] for student in (first, second)]
    assert users[0] != users[1]
    assert all(walls.FIRST_USER <= user <= walls.LAST_USER for user in users)
    claim, user = _free_user()
    with claim:
        assert walls.FIRST_USER <= user <= walls.LAST_USER


@pytest.mark.parametrize("without", [(), ("mounts", "user")])
def test_what_it_writes_is_bounded(without: tuple[str, ...]) -> None:
    """By the size of its file system, or by a judge that counts."""
    if not finding.find(without).writes:
        pytest.skip("nothing can be written here")
    with remote(without) as student:
        assert student.write(8) == 8
        with pytest.raises(Failure, match="No space left"):
            student.write(20 * SIZE >> 20)


def test_its_end_is_sure_and_its_folder_gone() -> None:
    process = Process(finding.find(), GIB)
    pid = process.popen.pid
    process.end()
    assert process.popen.returncode is not None
    assert not Path(process.folder).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
