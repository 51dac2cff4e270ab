"""`minorm evaluate`: which images it scores, where it finds them, and what it says of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm import cli
from minorm.checkpoint import load_training, save_training
from minorm.training.files.log_file import read_log
from minorm.training.run import BEST, CHECKPOINT

Image = pytest.importorskip("PIL.Image")

COLOURS = {"green": (40, 180, 40), "red": (190, 60, 60)}


def pictures(root: Path, start: int, stop: int, classes: tuple[str, ...] = tuple(COLOURS)) -> Path:
    """Squares of one colour under much noise."""
    for kind, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(start, stop):
            noise = np.random.default_rng((kind, i)).integers(-120, 121, (8, 8, 3))
            pixels = (np.array(COLOURS.get(name, (9, 9, 9))) + noise).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i:02}.png")
    return root


def trained(images: Path, out: Path, *more: str) -> str:
    words = ["--path", str(images), "--image-size", "8", "--model", "norms", "--batch-size", "8", "--epochs", "2"]
    assert cli.main(["train", *words, "--num-workers", "0", "-o", str(out), *more]) == 0
    return str(out)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 40 pictures, and a run of it."""
    root = tmp_path_factory.mktemp("there")
    trained(pictures(root / "images", 0, 20), root / "run")
    return root


def scores(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[dict[str, Any], str]:
    capsys.readouterr()
    assert cli.main(["evaluate", *words, "--json"]) == 0
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


def refused(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    capsys.readouterr()
    assert cli.main(["evaluate", *words]) == code
    return capsys.readouterr().err


def predicted(capsys: pytest.CaptureFixture[str], run: str, files: list[Path]) -> float:
    """Return the share of files for which `predict` gives the name of their folder."""
    capsys.readouterr()
    assert cli.main(["predict", run, *map(str, files), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    return float(np.mean([row["label"] == Path(row["file"]).parent.name for row in rows]))


def test_without_a_path_it_is_what_chose_the_best_epoch(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(there / "run")
    found, told = scores(capsys, run)
    assert (found["images"], found["split"], found["path"]) == (8, "validation", str(there / "images"))
    assert found["accuracy"] == max(row["val_accuracy"] for row in read_log(run))
    assert f"minorm evaluate: the validation images of {there / 'images'}\n" in told
    train, _ = scores(capsys, run, "--split", "train")
    assert train["images"] == 32


def test_with_a_path_it_is_every_picture_there(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, images = str(there / "run"), there / "images"
    found, told = scores(capsys, run, "--path", str(images))
    assert (found["images"], found["split"]) == (40, "all")
    assert found["accuracy"] == pytest.approx(predicted(capsys, run, sorted(images.rglob("*.png"))))
    assert "the run was trained on most of these" in told


def test_scores_by_class_are_those_of_the_predictions(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against scikit-learn, of what `predict` says of the same pictures; a class without pictures is named."""
    metrics = pytest.importorskip("sklearn.metrics")
    run = trained(pictures(tmp_path / "train", 0, 8, ("blue", "green", "red")), tmp_path / "run", "--lr", "0.001")
    files = sorted(pictures(tmp_path / "others", 30, 39).rglob("*.png"))
    found, _ = scores(capsys, run, "--path", str(tmp_path / "others"), "--top-k", "2")
    assert cli.main(["predict", run, *map(str, files), "--json", "--top-k", "3"]) == 0
    rows = json.loads(capsys.readouterr().out)
    true = [Path(row["file"]).parent.name for row in rows]
    names = ["blue", "green", "red"]
    wanted = metrics.classification_report(
        true, [row["label"] for row in rows], labels=names, output_dict=True, zero_division=0
    )
    for row in found["classes"]:
        theirs = wanted[row["name"]]
        assert (row["precision"], row["recall"], row["f1"], row["support"]) == pytest.approx(
            (theirs["precision"], theirs["recall"], theirs["f1-score"], theirs["support"])
        )
    top = [[one["label"] for one in row["top"][:2]] for row in rows]
    assert found["top_k"] == {"k": 2, "accuracy": np.mean([name in two for name, two in zip(true, top, strict=True)])}
    shares = [{one["label"]: one["probability"] for one in row["top"]} for row in rows]
    areas = [metrics.roc_auc_score([t == name for t in true], [s[name] for s in shares]) for name in names[1:]]
    assert found["roc_auc"] == pytest.approx(np.mean(areas), abs=0.02)  # `predict` rounds
    assert found["without_images"] == ["blue"]
    assert sum(one["images"] for one in found["calibration"]) == 18
    assert cli.main(["evaluate", run, "--path", str(tmp_path / "others")]) == 0
    told = capsys.readouterr().out
    for words in ("precision  recall     f1", "macro average", "no images of: 'blue'", "AUROC", "calibration error"):
        assert words in told
    assert "expected at least 1" in refused(capsys, 2, run, "--top-k", "0")


def test_splits_are_together_or_one_by_one(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(there / "run")
    for name, start, stop in (("train", 0, 3), ("valid", 3, 5), ("test", 5, 9)):
        pictures(tmp_path / name, start, stop)
    path = ["--path", str(tmp_path)]
    counts = {split: scores(capsys, run, *path, "--split", split)[0]["images"]
              for split in ("train", "validation", "test", "all")}  # fmt: skip
    assert counts == {"train": 6, "validation": 4, "test": 8, "all": 18}
    found, told = scores(capsys, run, *path)
    assert found["images"] == 18
    assert "trained on" not in told
    tests = sorted((tmp_path / "test").rglob("*.png"))
    assert scores(capsys, run, *path, "--split", "test")[0]["accuracy"] == predicted(capsys, run, tests)
    assert "has no splits; expected a folder test" in refused(capsys, 1, run, "--split", "test")


def test_a_test_folder_is_left_for_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures(tmp_path / "images/train", 0, 20)
    pictures(tmp_path / "images/Test", 20, 26)
    run = trained(tmp_path / "images", tmp_path / "run")
    assert "Test/ is not read; minorm evaluate RUN --split test" in capsys.readouterr().out
    assert scores(capsys, run)[0]["images"] == 8
    assert scores(capsys, run, "--split", "test")[0]["images"] == 12


def test_a_folder_that_moved_is_named(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, run = tmp_path / "images", tmp_path / "run"
    trained(pictures(images, 0, 10), run)
    images.rename(tmp_path / "moved")
    told = refused(capsys, 1, str(run))
    assert f"{run / CHECKPOINT}" in told or f"{run / BEST}" in told
    assert f"its images from '{images}', which no longer exists; give the new path: --path PATH" in told
    assert scores(capsys, str(run), "--path", str(tmp_path / "moved"), "--split", "validation")[0]["images"] == 4


def test_a_folder_that_has_grown_keeps_what_was_set_aside(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = tmp_path / "images"
    run = trained(pictures(images, 0, 20), tmp_path / "run")
    before = scores(capsys, run)[0]
    pictures(images, 20, 21)
    found, told = scores(capsys, run)
    assert {**found, "path": ""} == {**before, "path": ""}
    assert "since the run began: 32 training images before, 34 now: 2 added (green/20.png, red/20.png)" in told


def test_a_class_that_the_model_does_not_know_is_named(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures(tmp_path, 0, 2, ("green", "blue"))
    told = refused(capsys, 1, str(there / "run"), "--path", str(tmp_path))
    assert f"'{tmp_path}/blue' is a class that the training images do not have; expected green, red" in told


def test_what_is_left_out_is_said(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures(tmp_path, 0, 2)
    (tmp_path / "green" / "a.heic").write_bytes(b"0")
    (tmp_path / "green" / "empty.png").write_bytes(b"")
    found, told = scores(capsys, str(there / "run"), "--path", str(tmp_path))
    assert found["images"] == 4
    assert f"left out of {tmp_path}: 1 .heic (green/a.heic)" in told
    assert "skipped: " in told
    assert "green/empty.png' is empty" in told


def test_best_weights_alone_do_not_know_the_place(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who passes on the best weights passes on no names of files and folders."""
    shutil.copy(there / "run" / BEST, tmp_path / BEST)
    assert str(there).encode() not in (tmp_path / BEST).read_bytes()
    assert "expected the path of the folder: --path DIR" in refused(capsys, 1, str(tmp_path / BEST))
    assert scores(capsys, str(tmp_path / BEST), "--path", str(there / "images"))[0]["images"] == 40
    parts = load_training(there / "run" / CHECKPOINT)
    images = parts["images"]
    images["test"] = images.pop("validation")  # as older ones have it
    del images["path"]
    save_training(tmp_path / CHECKPOINT, **parts)
    assert "expected the path of the folder: --path DIR" in refused(capsys, 1, str(tmp_path))
    found, _ = scores(capsys, str(tmp_path), "--path", str(there / "images"), "--split", "validation")
    assert found["images"] == 8
    images["path"] = 3
    save_training(tmp_path / CHECKPOINT, **parts)
    assert "the path of its images is 3; expected a text" in refused(capsys, 1, str(tmp_path))


def test_sets_that_are_no_folder_have_two_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = (rng.integers(0, 100, (60, 8, 8)) + 100 * y[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "set.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    words = ["--path", str(tmp_path / "set.npz"), "--model", "norms", "--batch-size", "8", "--epochs", "1"]
    run = str(tmp_path / "run")
    assert cli.main(["train", *words, "-o", run]) == 0
    assert scores(capsys, run)[0]["images"] == 20
    assert scores(capsys, run, "--split", "train")[0]["images"] == 40
    assert "expected validation or train" in refused(capsys, 2, run, "--split", "test")
    assert "--split all needs a folder of pictures" in refused(capsys, 2, run, "--split", "all")
    assert "expected another --data" in refused(capsys, 2, run, "--data", "digits", "--path", "x")
