"""A wall with a hole is found by the trial, before a submission runs: each case opens one in a copy of the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import minorm
import minorm_ext
from minorm.labs.sealed import compiler, finding, landlock

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not finding.find().stand, reason="no walls on this system"),
]
SEALED = "minorm/labs/sealed"
BARE = '("mounts", "user")'  # Landlock and seccomp alone
OLD = f"{BARE}, (), 2"
COMPILES = f'{BARE}, programs=("{compiler.LINK[0]}",)'
# name -> (file, text, what stands there instead, arguments of finding.find, what the trial says)
HOLES = {
    "truncating by path": (
        "syscalls.py",
        "fdatasync 75 83, ",
        "fdatasync 75 83, truncate 76 45, ",
        OLD,
        "shorten",
    ),
    "truncating what is opened to read": (
        "seccomp.py",
        "return [flags, *_opened_in_earnest()]",
        "return [flags, allow]",
        OLD,
        "empty, opening it to read",
    ),
    "truncating what is opened for nothing": (
        "seccomp.py",
        "return [flags, *_opened_in_earnest()]",
        "return [flags, allow]",
        OLD,
        "opening it for nothing",
    ),
    "changing modes": ("syscalls.py", "fdatasync 75 83, ", "fdatasync 75 83, chmod 90 53, ", BARE, "make readable"),
    "changing times": ("syscalls.py", "fdatasync 75 83, ", "fdatasync 75 83, utimensat 280 88, ", BARE, "date"),
    "marking": ("syscalls.py", "fdatasync 75 83, ", "fdatasync 75 83, setxattr 188 5, ", BARE, "mark"),
    "sharing memory": (
        "syscalls.py",
        "fdatasync 75 83, ",
        "fdatasync 75 83, shmget 29 194, ",
        "()",
        "system call shmget",
    ),
    "asking for rings": (
        "syscalls.py",
        "fdatasync 75 83, ",
        "fdatasync 75 83, io_uring_setup 425 425, ",
        "()",
        "system call io_uring_setup",
    ),
    "wide pipes": ("seccomp.py", "4, 1030), errno", "4, 1030, 1031), errno", "()", "widen a pipe"),
    "outliving": ("seccomp.py", "(0, (15, 16,", "(0, (1, 15, 16,", "()", "outlive the judge"),
    "files without a name": (
        "counting.py",
        "*ours(to_judge, allow), ask],",
        "*ours(to_judge, allow), allow],",
        BARE,
        "files without a name",
    ),
    "files with holes": (
        "counting.py",
        "*seccomp.if_set(mmap.MAP_SHARED, seccomp.refused(errno.EACCES)),",
        "",
        BARE,
        "with holes",
    ),
    "files by the thousand": (
        "counting.py",
        '"openat": [seccomp.argument(2), *opened]',
        '"openat": [allow]',
        BARE,
        "files without end",
    ),
    "folders by the thousand": ("counting.py", '"mkdir": [ask],', "", BARE, "folders without end"),
    "a file for what is printed": ("counting.py", '"dup2": over,', "", BARE, "exchange what is printed"),
    "inodes of a mount": ("namespaces.py", ",nr_inodes={files + 1}", "", "()", "files without end"),
    "the size of a mount": ("namespaces.py", "size={size},", "", "()", "write without end"),
    "sockets for compilers": (
        "syscalls.py",
        "close_range 436 436",
        "close_range 436 436, socket 41 198",
        COMPILES,
        "open a socket",
    ),
    "namespaces for compilers": (
        "seccomp.py",
        "0x00008000 | 0x7E020000",
        "0x00008000",
        COMPILES,
        "in its own namespaces",
    ),
    "siblings of compilers": ("seccomp.py", "0x00008000 | 0x7E020000", "0x7E020000", COMPILES, "beside this one"),
    "uncounted compilers": (
        "counting.py",
        "*seccomp.if_any_of((line,), allow), ask],",
        "allow],",
        COMPILES,
        "into what is printed",
    ),
    "the line of compilers": (
        "process_limits.py",
        "(resource.RLIMIT_NOFILE, files),",
        "(resource.RLIMIT_NOFILE, 300),",
        COMPILES,
        "the line for a file",
    ),
    "compiled checks": (
        "walls.py",
        "[*map(str, HIDDEN), *compiled, *secret]",
        "[*map(str, HIDDEN)]",
        "()",
        "wrong_kernels",
    ),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of minorm, with a compiled form of what is hidden."""
    folder = tmp_path_factory.mktemp("sources")
    folder.chmod(0o755)
    for module in (minorm, minorm_ext):
        place = Path(str(module.__file__)).parent
        shutil.copytree(place, folder / module.__name__, ignore=shutil.ignore_patterns("__pycache__"))
    run("import minorm.labs.wrong_kernels", folder)
    return folder


def run(code: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_is_found(hole: str, sources: Path) -> None:
    file, text, instead, walls, said = HOLES[hole]
    if walls != "()" and not landlock.version():
        pytest.skip("no Landlock")
    if walls == COMPILES and shutil.which(compiler.LINK[0]) is None:
        pytest.skip("no compiler")
    if file == "namespaces.py" and not finding.find().mounts:
        pytest.skip("no mounts here")
    path = sources / SEALED / file
    right = path.read_text()
    assert right.count(text) == 1
    path.write_text(right.replace(text, instead))
    try:
        answer = run(f"from minorm.labs.sealed import finding; finding.find({walls})", sources)
    finally:
        path.write_text(right)
    whose = "compilers" if walls == COMPILES else "students' code"
    assert f"Hole: the walls around {whose} do not hold" in answer
    assert said in answer


@pytest.mark.parametrize("walls", ["()", BARE, OLD, COMPILES])
def test_without_a_hole_the_copy_stands(walls: str, sources: Path) -> None:
    assert run(f"from minorm.labs.sealed import finding; print(finding.find({walls}))", sources).startswith("walls: ")
