"""Students hand in several files with one changed, folders with checkpoints, archives, and worse."""

from __future__ import annotations

import os
import re
import zipfile
from datetime import datetime
from pathlib import Path

import pytest

from minorm.labs import catalogue, cells
from minorm.labs.judge import first_look, handed_in
from minorm.labs.sealed import folders

LAB = catalogue.find(0)
SOLUTION = (catalogue.CHECKOUT / "solutions" / "lab00_axes.py").read_text()
STUB = catalogue.notebook(LAB)


def notebook(text: str) -> str:
    return cells.to_notebook(cells.read_percent(text))


def found(folder: Path, scratch: Path | None = None) -> dict[str, handed_in.Submission]:
    scratch = folder.parent / "scratch" if scratch is None else scratch
    return {one.name: one for one in handed_in.submissions(folder, LAB, scratch)}


def taken(one: handed_in.Submission) -> str:
    return first_look.chosen(one.paths, LAB)[0].name


def test_the_file_that_was_changed_is_taken(tmp_path: Path) -> None:
    """The solved notebook beside the Python file as it was handed out, and the other way round."""
    for student, py, ipynb in (("ann", STUB, SOLUTION), ("ben", SOLUTION, STUB), ("eve", STUB, STUB)):
        (tmp_path / "all" / student).mkdir(parents=True)
        (tmp_path / "all" / student / "lab00_axes.py").write_text(py)
        (tmp_path / "all" / student / "lab00_axes.ipynb").write_text(notebook(ipynb))
    there = found(tmp_path / "all")
    assert {name: taken(one) for name, one in there.items()} == {
        "ann": "lab00_axes.ipynb",
        "ben": "lab00_axes.py",
        "eve": "lab00_axes.py",
    }
    remarks = first_look.chosen(there["ann"].paths, LAB)[1]["remarks"]
    assert remarks == ["taken from lab00_axes.ipynb; left out: lab00_axes.py"]
    assert "the file is unchanged since it was handed out" in first_look.chosen(there["eve"].paths, LAB)[1]["remarks"]


def test_one_work_in_two_forms_is_one(tmp_path: Path) -> None:
    (tmp_path / "all" / "ann").mkdir(parents=True)
    (tmp_path / "all" / "ann" / "lab00_axes.py").write_text(SOLUTION)
    (tmp_path / "all" / "ann" / "lab00_axes.ipynb").write_text(notebook(SOLUTION))
    assert taken(found(tmp_path / "all")["ann"]) == "lab00_axes.py"


def test_two_different_works_are_refused(tmp_path: Path) -> None:
    (tmp_path / "all" / "ann").mkdir(parents=True)
    (tmp_path / "all" / "ann" / "lab00_axes.py").write_text(SOLUTION)
    (tmp_path / "all" / "ann" / "lab00_axes (1).py").write_text(SOLUTION.replace("1 << axis", "2**axis"))
    with pytest.raises(ValueError, match=r"2 files that hold different work: .*; expected one lab00_axes.py or .ipynb"):
        taken(found(tmp_path / "all")["ann"])


def test_a_file_called_like_the_lab_comes_before_helpers_and_a_renamed_one_counts_too(tmp_path: Path) -> None:
    (tmp_path / "all" / "ann").mkdir(parents=True)
    (tmp_path / "all" / "ann" / "lab00_axes.ipynb").write_text(notebook(SOLUTION))
    (tmp_path / "all" / "ann" / "a_helper.py").write_text("x = 1\n")
    (tmp_path / "all" / "ben").mkdir()
    (tmp_path / "all" / "ben" / "lab00_axes.py").write_text(STUB)
    (tmp_path / "all" / "ben" / "my solution.ipynb").write_text(notebook(SOLUTION))
    there = found(tmp_path / "all")
    assert taken(there["ann"]) == "lab00_axes.ipynb"
    assert taken(there["ben"]) == "my solution.ipynb"


def test_a_file_that_cannot_be_read_does_not_hide_another(tmp_path: Path) -> None:
    (tmp_path / "all" / "ann").mkdir(parents=True)
    (tmp_path / "all" / "ann" / "lab00_axes.ipynb").write_text("{}")
    (tmp_path / "all" / "ann" / "lab00_axes.py").write_text(SOLUTION)
    assert taken(found(tmp_path / "all")["ann"]) == "lab00_axes.py"


def test_hidden_folders_and_files_are_nobodys_work(tmp_path: Path) -> None:
    ann = tmp_path / "all" / "ann"
    for folder in (ann, ann / ".ipynb_checkpoints", ann / "__MACOSX", ann / "__pycache__"):
        folder.mkdir(parents=True)
        (folder / "lab00_axes.ipynb").write_text(
            notebook(SOLUTION.replace("1 << axis", f"2**axis + {len(str(folder))}"))
        )
    (ann / "._lab00_axes.ipynb").write_text("")
    (tmp_path / "all" / ".DS_Store").write_text("")
    there = found(tmp_path / "all")
    assert there.keys() == {"ann"}
    assert there["ann"].paths == (ann / "lab00_axes.ipynb",)


def zipped(path: Path, **files: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 11, 30, 23, 58, 2)), text)
    return path


def test_archives_are_unpacked(tmp_path: Path) -> None:
    """By themselves, and in a student's folder; with the dates that they say."""
    files = {
        "work/lab00_axes.ipynb": notebook(SOLUTION),
        "work/lab00_axes.py": STUB,
        "__MACOSX/._lab00_axes.py": "",
        "work/.ipynb_checkpoints/lab00_axes.ipynb": notebook(STUB),
        "work/figure.png": "no",
    }
    zipped(tmp_path / "all" / "ann.zip", **files)
    zipped(tmp_path / "all" / "ben" / "hand-in.zip", **files)
    there = found(tmp_path / "all")
    for name in ("ann.zip", "ben"):
        assert taken(there[name]) == "lab00_axes.ipynb"
        assert len(there[name].paths) == 2
        assert there[name].when == datetime(2026, 11, 30, 23, 58, 2).timestamp()


def test_nothing_is_unpacked_outside_its_folder(tmp_path: Path) -> None:
    names = {"../../up.py": "a", "/absolute.py": "b", "a/../b.py": "c", "..": "d", "sub/": ""}
    paths = handed_in.unpacked(zipped(tmp_path / "evil.zip", **names), tmp_path / "scratch")
    assert {path.name for path in paths} == {"absolute.py"}  # a folder `..` counts as hidden
    assert all(tmp_path / "scratch" in path.parents for path in paths)
    assert not (tmp_path / "up.py").exists()


def test_archives_that_are_too_large_broken_or_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "broken.zip").write_bytes(b"PK\x03\x04 and nothing more")
    (tmp_path / "all" / "other.tar.gz").write_bytes(b"")
    (tmp_path / "all" / "picture.png").write_bytes(b"")
    monkeypatch.setattr(handed_in, "LARGEST_UNPACKED", 1000)
    zipped(tmp_path / "all" / "bomb.zip", **{"lab00_axes.py": "#" * 1001})
    monkeypatch.setattr(handed_in, "MOST_FILES", 3)
    zipped(tmp_path / "all" / "many.zip", **{f"{i}.py": "" for i in range(4)})
    problems = {name: one.problem for name, one in found(tmp_path / "all").items()}
    assert problems == {
        "broken.zip": "broken.zip cannot be unpacked: File is not a zip file",
        "bomb.zip": "bomb.zip holds more than 0 MB",
        "many.zip": "many.zip has more than 3 files",
        "other.tar.gz": "only .zip archives are read; unpack this archive into a folder",
        "picture.png": "expected a .py file, an .ipynb notebook, a .zip or a folder with one",
    }


def test_links_pipes_and_too_many_files_have_a_row_that_says_so(tmp_path: Path) -> None:
    """Who hands in a link to a neighbour's file hands in nothing, and a pipe is not waited for."""
    (tmp_path / "anna.py").write_text(SOLUTION)
    (tmp_path / "link.py").symlink_to(tmp_path / "anna.py")
    (tmp_path / "linked").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.py")
    for student in ("ben", "carl"):
        (tmp_path / student).mkdir()
    (tmp_path / "ben" / "lab00_axes.py").symlink_to(tmp_path / "anna.py")
    for number in range(handed_in.MOST_FILES + 1):
        (tmp_path / "carl" / f"{number}.py").write_text("")
    problems = {name: one.problem for name, one in found(tmp_path, tmp_path / ".scratch").items()}
    assert problems.pop("anna.py") == ""
    assert problems == {
        "link.py": "a link; expected a regular file or a folder with one",
        "linked": "a link; expected a regular file or a folder with one",
        "pipe.py": "a pipe; expected a regular file or a folder with one",
        "ben": "no .py file and no .ipynb notebook (1 links or pipes are left out); expected lab00_axes.py",
        "carl": "more than 1000 files",
    }


def test_folders_in_folders_without_end_have_a_row_that_says_so(tmp_path: Path) -> None:
    """A zip that a student hands in can hold them; walking down would end the grading of the whole class."""
    path = tmp_path / "eve"
    for _ in range(990):
        path.mkdir()  # with its parents at once it would call itself for each
        path = path / "a"
    (one,) = found(tmp_path, tmp_path / ".scratch").values()
    folders.remove(str(tmp_path / "eve"))  # which pytest could not do, as it calls itself for each
    assert one.problem == "folders nested more than 50 deep"


def damaged(path: Path, kind: str) -> None:
    """Write an archive that cannot be unpacked; each kind is damaged in another way."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("lab00_axes.py", b" " * (65 << 20) if kind == "bomb" else SOLUTION)
    data = bytearray(path.read_bytes())
    body = 30 + len("lab00_axes.py")
    if kind == "no zip":
        data = bytearray(b"PK")
    elif kind == "half":
        data = data[: len(data) // 2]
    elif kind == "crc":  # in the entry, and in the directory behind it
        data[14:18] = b"1234"
        place = data.index(b"PK\x01\x02")
        data[place + 16 : place + 20] = b"1234"
    elif kind == "deflated":
        data[body : body + 40] = b"\xff" * 40
    elif kind == "password":
        data[6] |= 1
        data[data.index(b"PK\x01\x02") + 8] |= 1
    elif kind == "method":
        data[data.index(b"PK\x01\x02") + 10] = 99
    path.write_bytes(data)


KINDS = ("no zip", "half", "crc", "deflated", "password", "method", "bomb")


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_archive_costs_its_own_row(tmp_path: Path, kind: str) -> None:
    (tmp_path / "all").mkdir()
    damaged(tmp_path / "all" / "ben.zip", kind)
    (tmp_path / "all" / "ann.py").write_text(SOLUTION)
    (tmp_path / "all" / "cy").mkdir()
    damaged(tmp_path / "all" / "cy" / "work.zip", kind)
    there = found(tmp_path / "all")
    words = r"holds more than 64 MB" if kind == "bomb" else r"cannot be unpacked: .+"
    assert re.fullmatch(rf"ben\.zip {words}", there["ben.zip"].problem)
    assert re.fullmatch(rf"work\.zip {words}", there["cy"].problem)
    assert there["ben.zip"].paths == there["cy"].paths == ()
    assert there["ann.py"].problem == ""
    assert taken(there["ann.py"]) == "ann.py"


def test_any_damage_to_an_archive_is_a_row(tmp_path: Path) -> None:
    """A byte changed anywhere: it is read, or it has a row, and nothing else happens."""
    (tmp_path / "all").mkdir()
    path = tmp_path / "all" / "ben.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("lab00_axes.py", "x = 1\n" * 20)
    whole = path.read_bytes()
    problems = set()
    for place in range(len(whole)):
        for bits in (0xFF, 0x01):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bits]) + whole[place + 1 :])
            one = found(tmp_path / "all", tmp_path / f"scratch{place}.{bits}")["ben.zip"]
            assert bool(one.paths) != bool(one.problem)
            problems.add(one.problem.split(":")[0])
    assert "ben.zip cannot be unpacked" in problems
