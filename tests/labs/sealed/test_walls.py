"""Each wall by itself lets nothing through; a machine without walls says so, and grades no submission."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from minorm.cli import main
from minorm.labs import catalogue
from minorm.labs.judge import judging
from minorm.labs.sealed import finding, process, syscalls, walls

SAMPLE = [(), ("mounts", "user"), ("landlock", "mounts", "user")]
OTHERS = [("mounts",), ("landlock",), ("user",), ("landlock", "mounts"), ("landlock", "user")]
WITHOUT = [*SAMPLE, *(pytest.param(without, marks=pytest.mark.slow) for without in OTHERS)]
needs_seccomp = pytest.mark.skipif(not finding.find().stand, reason="no seccomp on this system")


@needs_seccomp
@pytest.mark.parametrize("without", WITHOUT)
def test_lab_0_behind_some_of_the_walls(without: tuple[str, ...], tmp_path: Path) -> None:
    """`find` attacks them from within; then an honest file gets full marks."""
    try:
        around = finding.find(without)
    except finding.Hole as error:
        if "cannot read this Python" in str(error):
            pytest.skip("this Python is root's alone")
        raise
    lab = catalogue.find(0)
    report = judging.judge(lab, catalogue.CHECKOUT / "solutions" / f"{lab.file}.py", patience=3, around=around)
    assert report.score == report.points, str(report)
    assert report.walls == str(around)


@needs_seccomp
@pytest.mark.parametrize("version", [1, 2, 3])
def test_older_versions_of_landlock_hold_as_well(version: int) -> None:
    """The trial runs behind them; below version 3 Landlock knows nothing of truncating."""
    around = finding.find(("mounts", "user"), (), version)
    if not around.landlock:
        pytest.skip("no Landlock")
    assert f"Landlock {min(version, around.landlock)}, seccomp" in str(around)


@needs_seccomp
def test_what_this_machine_lacks_is_named() -> None:
    around = finding.find(("mounts", "user", "landlock"))
    assert str(around) == "walls: seccomp; not here: Landlock, a separate user, mounts"
    uncounted = finding.find(("mounts", "user", "counting"))
    if uncounted.landlock:
        assert "not here: a separate user, mounts, a limit on what code can write" in str(uncounted)
        assert not uncounted.writes
        assert not uncounted.for_lab(writes=True).stand


def test_words() -> None:
    assert str(walls.Walls(True, True, 7, True)) == "walls: mounts, a separate user, Landlock 7, seccomp"
    some = walls.Walls(False, False, 0, True, ("Landlock", "mounts (EPERM)"))
    assert str(some) == "walls: seccomp; not here: Landlock, mounts (EPERM)"
    assert str(walls.NONE) == "no walls, so only for your own work"
    assert not walls.NONE.stand
    assert not some.for_lab(writes=True).stand
    assert some.for_lab(writes=False) is some


def test_a_hole_grades_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setattr(process, "attack", lambda _: {"succeeded": ["read the grades"]})
    finding._found.cache_clear()
    (tmp_path / "mine.py").write_text("")
    try:
        if syscalls.numbers():
            assert main(["labs", "check", "0", str(tmp_path / "mine.py")]) == 2
            assert "do not hold; code inside them can ['read the grades']" in capsys.readouterr().err
    finally:
        finding._found.cache_clear()


def test_a_python_that_nobody_else_may_read_grades_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([{"stage": "mounts", "errno": 1, "said": "unshare"}, {"said": "no module named decimal"}])
    monkeypatch.setattr(process, "attack", lambda _: next(answers))
    finding._found.cache_clear()
    try:
        if syscalls.numbers():
            with pytest.raises(finding.Hole, match="cannot read this Python"):
                finding.find()
    finally:
        finding._found.cache_clear()


def test_without_walls_one_checks_and_grades_only_whom_one_trusts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setattr(finding, "find", lambda *_, **__: walls.NONE)
    (tmp_path / "all").mkdir()
    file, table = tmp_path / "all" / "anna.py", tmp_path / "grades.csv"
    file.write_text((catalogue.CHECKOUT / "solutions" / "lab00_axes.py").read_text())
    assert main(["labs", "check", "0", str(file)]) == 0
    assert "no walls, so only for your own work" in capsys.readouterr().out
    command = ["labs", "grade", "0", str(file.parent), "--csv", str(table)]
    assert main(command) == 2
    assert "or add --trust" in capsys.readouterr().err
    assert not table.exists()
    assert main([*command, "--trust"]) == 0
    assert "18 of 18  anna.py" in capsys.readouterr().out
    assert "no walls" in table.read_text()


def test_checks_and_solutions_are_not_among_what_is_read() -> None:
    reads = walls.readable()
    narrow, lists = walls.narrow(reads)
    for secret in [*walls.HIDDEN, catalogue.CHECKOUT / "solutions"]:
        above = [str(secret), *map(str, secret.parents)]
        assert not set(above) & set(narrow), secret
    assert str(walls.LABS) in lists
    assert str(walls.LABS / "gap.py") in narrow
    assert os.getcwd() not in walls.import_path() or os.getcwd() == str(walls.PACKAGE.parent)
