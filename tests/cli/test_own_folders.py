"""`minorm train --path DIR`: folders of every layout, that grow, move and have odd names."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from minorm import cli
from minorm.checkpoint import load_training
from minorm.training import Run
from minorm.training.data.images import unpacked
from minorm.training.run import BEST, CHECKPOINT
from tests.cli.test_evaluate import pictures, scores, trained

pytest.importorskip("PIL")


def failed(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    capsys.readouterr()
    assert cli.main(["train", *words]) == code
    return capsys.readouterr().err


def files_of(run: str) -> dict[str, set[str]]:
    """The names of each part that a checkpoint holds."""
    images = load_training(f"{run}/{CHECKPOINT}")["images"]
    return {part: {*(unpacked(images[part]) or ())} for part in ("train", "validation")}


def test_a_path_alone_is_a_folder_or_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(pictures(tmp_path / "images", 0, 10), tmp_path / "run")
    assert capsys.readouterr().out.startswith("folder with model norms: 16 images to train, 4 to validate, ")
    assert Run.settings_of(run).data == "folder"
    y = np.arange(40) % 2
    x = np.zeros((40, 8, 8), np.uint8)
    np.savez(tmp_path / "set.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    arrays = trained(tmp_path / "set.npz", tmp_path / "arrays")
    assert Run.settings_of(arrays).data == "numpy"


def test_what_has_no_path_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = failed(capsys, 2, "--data", "digits", "--path", str(tmp_path))
    assert "is given, but the digits are read from scikit-learn" in told
    (tmp_path / "run.toml").write_text(f'data = "digits"\npath = "{tmp_path}"\n')
    assert "the digits are read from scikit-learn" in failed(capsys, 2, "--config", str(tmp_path / "run.toml"))
    assert "expected the path of the folder: --path DIR" in failed(capsys, 1, "--data", "folder")


def test_a_run_goes_on_where_it_found_its_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The place is kept whole, whatever folder the command is given in."""
    pictures(tmp_path / "images", 0, 10)
    monkeypatch.chdir(tmp_path)
    run = trained(Path("images"), tmp_path / "run")
    assert load_training(f"{run}/{CHECKPOINT}")["images"]["path"] == str(tmp_path / "images")
    monkeypatch.chdir("/")
    capsys.readouterr()
    assert cli.main(["train", "--resume", "-o", run]) == 0
    assert f"minorm: reading the images in {tmp_path / 'images'}, the path" in capsys.readouterr().err
    assert cli.main(["doctor", run]) in (0, 1)
    assert f"minorm: reading the images in {tmp_path / 'images'}, the path" in capsys.readouterr().err
    (tmp_path / "images").rename(tmp_path / "moved")
    told = failed(capsys, 1, "--resume", "-o", run)
    assert f"its images from '{tmp_path / 'images'}', which no longer exists" in told
    assert cli.main(["train", "--resume", "-o", run, "--path", str(tmp_path / "moved")]) == 0


def test_a_folder_that_has_grown_needs_a_word_and_keeps_its_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = pictures(tmp_path / "images", 0, 20)
    run = trained(images, tmp_path / "run")
    before = files_of(run)
    (images / "red" / min(name for name in before["train"] if "red" in name).split("/")[1]).unlink()
    pictures(images, 20, 30)
    told = failed(capsys, 1, "--resume", "-o", run)
    assert "32 training images before, 47 now: 16 added (green/2" in told
    assert ", 1 removed (red/" in told
    assert "8 validation images before, 12 now: 4 added (" in told
    assert "To continue with the new images, pass --other-images" in told
    assert files_of(run) == before
    assert cli.main(["train", "--resume", "-o", run, "--other-images"]) == 0
    assert "since the run began: 32 training images before, 47 now: 16 added (" in capsys.readouterr().out
    after = files_of(run)
    assert before["validation"] < after["validation"]
    assert len(before["train"] - after["train"]) == 1
    assert cli.main(["train", "--resume", "-o", run]) == 0, "these are the images that it knows now"
    assert scores(capsys, run)[0]["images"] == 12


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = pictures(tmp_path / "images" / "train", 0, 10)
    (images / "red" / "\x1b[31m.heic").touch()
    (images / "red" / ".DS_Store").touch()
    pictures(tmp_path / "images", 0, 2, ("raw",))
    trained(tmp_path / "images", tmp_path / "run")
    told = capsys.readouterr().out
    assert rf"left out of {images}: 1 .heic (red/\x1b[31m.heic), 1 hidden (red/.DS_Store)" in told.replace("\n", "")
    assert "left out: 2 images in raw/, because it is no split with one folder for each class" in told
    assert "\x1b[31m.heic" not in told


def test_names_that_are_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the folder, a class and a file: trained, evaluated and predicted, with a report."""
    images = tmp_path / os.fsdecode(b"im\xe9")
    try:
        pictures(images, 0, 10, (os.fsdecode(b"caf\xe9"), "red"))
    except OSError:
        pytest.skip("the disk takes no such names")
    os.rename(images / "red" / "00.png", images / "red" / os.fsdecode(b"\xff.png"))
    run = trained(images, tmp_path / "run")
    assert {"report.html", BEST} <= {*os.listdir(run)}
    assert "caf\\xe9" in (tmp_path / "run/report.html").read_text()
    found, told = scores(capsys, run)
    assert (found["images"], found["path"]) == (4, str(images))
    assert "im\\xe9" in told
    assert cli.main(["predict", run, str(images / "red" / os.fsdecode(b"\xff.png"))]) == 0
    assert cli.main(["train", "--resume", "-o", run]) == 0
