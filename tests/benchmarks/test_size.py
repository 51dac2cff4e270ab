"""benchmarks/size.py on a checkout of a few files, whose lines are counted by hand."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import size

FILES = {
    "minorm/models.py": '"""Two lines."""\n\nx = 1\n',
    "minorm/nn/layers/linear.py": "a = 1\nb = 2\n  \n# three\n",
    "minorm/kernels/gpu/sources/norm.cu": "int a;\n\n\n",
    "minorm_ext/norm/norm.pyx": "cdef int a\n",
    "minorm_ext/norm/plan.pxd": "\ncdef int b",
    "minorm_ext/norm/apply.inc.h": "int c;\nint d;\n",
    "minorm/kernels/README.md": "no source\n",
    "tests/test_models.py": "no room\n",
}
BEFORE = {
    "minorm": {"Python": 2, "all": 2},
    "minorm/nn": {"Python": 3, "all": 3},
    "minorm/kernels": {"CUDA": 1, "all": 1},
    "minorm_ext/norm": {"Cython": 2, "C": 2, "all": 4},
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def git(checkout: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
    subprocess.run(["git", "-C", str(checkout), *who, *arguments], check=True, capture_output=True)


def now(checkout: Path) -> size.Sizes:
    return size.sizes(size.here(checkout))


def cells(line: str) -> list[str]:
    return line.split()


def test_lines_by_room_and_language(checkout: Path) -> None:
    assert now(checkout) == BEFORE


def test_the_table_adds_up(checkout: Path) -> None:
    lines = size.table(now(checkout)).splitlines()
    assert cells(lines[0]) == ["room", "Python", "Cython", "C", "CUDA", "all"]
    assert [cells(line)[0] for line in lines[1:]] == ["minorm", "minorm/kernels", "minorm/nn", "minorm_ext/norm", "all"]
    assert cells(lines[-1]) == ["all", "5", "2", "2", "1", "10"]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_what_changed_since_the_last_tag_and_since_a_commit(checkout: Path) -> None:
    git(checkout, "init", "-q")
    assert size.compared(now(checkout), None, checkout).startswith("There is no tag to compare with.")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "first")
    git(checkout, "tag", "-a", "v0.1.0", "-m", "first")
    assert size.compared(now(checkout), None, checkout) == "No room has more or fewer lines than at v0.1.0."

    (checkout / "minorm/models.py").unlink()
    (checkout / "minorm/nn/extra.py").write_text("c = 3\n\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "second")
    (checkout / "minorm_ext/norm/norm.pyx").write_text("")
    (checkout / "minorm_ext/norm/apply.inc.h").write_text("int c;\n\n\nint d;\nint e;\n")  # not yet committed

    said = size.compared(now(checkout), None, checkout)
    assert said.startswith("More or fewer lines than at v0.1.0, in rooms where they differ:\n\n")
    assert [cells(line) for line in said.splitlines()[3:]] == [
        ["minorm", "-2", "-2"],
        ["minorm/nn", "+1", "+1"],
        ["minorm_ext/norm", "-1", "+1"],  # as many in all
        ["all", "-1", "-1", "+1", "-1"],
    ]
    assert [cells(line)[0] for line in size.compared(now(checkout), "HEAD", checkout).splitlines()[3:]] == [
        "minorm_ext/norm",
        "all",
    ]
    for name in ("v9", "--all", ""):
        with pytest.raises(ValueError, match=f"COMMIT='{name}' is no commit of .*; expected a tag, a branch or a hash"):
            size.compared(now(checkout), name, checkout)


def test_without_git_there_is_nothing_to_compare_with(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert size.compared(now(checkout), None, checkout).startswith("There is no tag to compare with.")


def test_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.size"], cwd=size.ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Lines that are not blank, comments and docstrings among them:\n\nroom ")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.size", "no-such-commit"],
        cwd=size.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "error: COMMIT='no-such-commit' is no commit of " in done.stderr
