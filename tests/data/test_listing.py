"""Which files are pictures: endings, links, circles, folders with odd names, and what is said of the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minorm.data.listing import LeftOut, pictures_below, pictures_by_class


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_every_ending_in_any_case(tmp_path: Path) -> None:
    endings = ["png", "jpg", "jpeg", "jpe", "jfif", "webp", "bmp", "dib", "gif", "tif", "tiff", "PNG", "Jfif"]
    names = [f"a/{i}.{ending}" for i, ending in enumerate(endings)]
    left_out = LeftOut()
    assert pictures_by_class(str(touch(tmp_path, *names)), left_out) == {"a": sorted(names)}
    assert str(left_out) == ""


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    touch(tmp_path, "set/a/1.png", "set/a/z/2.png", "more/3.png", "more/deep/4.png")
    os.symlink(tmp_path / "more", tmp_path / "set/a/more")
    os.symlink(tmp_path / "set/a/z", tmp_path / "set/a/b")  # the folder has its own path
    os.symlink("..", tmp_path / "more/deep/up")
    os.symlink(tmp_path, tmp_path / "set/a/around")
    os.symlink(tmp_path / "more", tmp_path / "set/c")  # a class may be a link
    left_out = LeftOut()
    assert pictures_by_class(str(tmp_path / "set"), left_out) == {
        "a": ["a/1.png", "a/more/3.png", "a/more/deep/4.png", "a/z/2.png"], "c": ["c/3.png", "c/deep/4.png"],
    }  # fmt: skip
    assert left_out.counts == {"links to folders that were read": 4}


def test_a_folder_without_classes_is_read_whole(tmp_path: Path) -> None:
    touch(tmp_path, "set/1.png", "set/b/2.jpg", "set/b/c/3.gif", "set/.git/4.png", "more/5.png", "set/b/no.txt")
    os.symlink(tmp_path / "more", tmp_path / "set/more")
    os.symlink(tmp_path / "set", tmp_path / "set/b/around")
    left_out = LeftOut()
    assert pictures_below(str(tmp_path / "set"), left_out) == ["1.png", "b/2.jpg", "b/c/3.gif", "more/5.png"]
    assert left_out.counts == {".txt": 1, "hidden": 1, "links to folders that were read": 1}
    assert left_out.names["hidden"] == [".git"]


def test_folders_are_no_pictures_whatever_their_names(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.png", "a/more.jpg/2.png", "a/.thumbs/3.png", "b.png/4.png")
    left_out = LeftOut()
    assert pictures_by_class(str(tmp_path), left_out) == {
        "a": ["a/1.png", "a/more.jpg/2.png"],
        "b.png": ["b.png/4.png"],
    }
    assert str(left_out) == "1 hidden (a/.thumbs)"


def test_the_first_names_of_each_kind_are_shown(tmp_path: Path) -> None:
    touch(tmp_path, *(f"a/{i:02}.txt" for i in range(30)), "a/1.png", "a/README", "a/.DS_Store", "9.png", "list.csv")
    left_out = LeftOut()
    pictures_by_class(str(tmp_path), left_out)
    assert str(left_out) == (
        "1 .csv (list.csv), 30 .txt (a/00.txt, a/01.txt, a/02.txt, ...), 1 files beside the folders of the classes "
        "(9.png), 1 hidden (a/.DS_Store), 1 without an ending (a/README)"
    )
    assert str(left_out.of_kinds((".csv", ".heic"))) == "1 .csv (list.csv)"


def test_names_are_masked(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.png", "a/\x1b[31m.txt")
    (tmp_path / "a" / os.fsdecode(b"caf\xe9.txt")).touch()
    left_out = LeftOut()
    pictures_by_class(str(tmp_path), left_out)
    assert str(left_out) == r"2 .txt (a/\x1b[31m.txt, a/caf\xe9.txt)"


def test_where_there_is_nothing_to_read_what_is_there_is_said(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.heic", "a/2.heic", "b/3.mov")
    with pytest.raises(
        ValueError, match=r"no images below .*in one folder for each class; there are 2 \.heic \(a/1\.heic, a/2"
    ):
        pictures_by_class(str(tmp_path), LeftOut())
    touch(tmp_path, "a/1.png")
    with pytest.raises(ValueError, match=r"b' has no images: an empty class; .* there are .*1 \.mov \(b/3\.mov\)"):
        pictures_by_class(str(tmp_path), LeftOut())


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a/1.png", "a/shut/2.png")
    real = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("shut"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError, match=r"ImageFolder: cannot read '.*a/shut': Permission denied"):
        pictures_by_class(str(tmp_path), LeftOut())
