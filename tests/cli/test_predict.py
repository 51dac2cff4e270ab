"""`minorm predict`: folders, the forms of its rows, and the page; each against the plain rows of single files."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import cli, nn
from minorm.cli import predict, sources
from minorm.cli.views import predictions_page
from minorm.cli.views.predictions_page import PredictionsPage, thumbnail
from minorm.training.data import file_preprocessing
from tests.cli.test_evaluate import pictures, trained

Image = pytest.importorskip("PIL.Image")

Capture = pytest.CaptureFixture[str]
HOSTILE = "=1\x1b[31m<i id=pwn>\n.png"


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three classes."""
    root = tmp_path_factory.mktemp("there")
    trained(pictures(root / "images", 0, 8, ("blue", "green", "red")), root / "run", "--lr", "0.01")
    return root


def said(capsys: Capture, code: int, *words: str) -> tuple[str, str]:
    capsys.readouterr()
    assert cli.main(["predict", *words]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


def rows_of(capsys: Capture, *words: str, code: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(said(capsys, code, *words, "--json")[0])
    return found


def test_a_folder_is_read_to_its_depths_in_every_format(there: Path, tmp_path: Path, capsys: Capture) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (8, 8, 3), np.uint8)
    (tmp_path / "a/b").mkdir(parents=True)
    names = ["a/b/1.JPG", "a/b/2.webp", "a/3.bmp", "4.gif", "5.tiff", "6.png", "a/7.jpeg"]
    for name in names:
        Image.fromarray(noise).save(tmp_path / name)
    (tmp_path / "a/again").symlink_to(tmp_path)
    (tmp_path / "a/read.me").write_text("")
    (tmp_path / ".hidden.png").write_bytes(b"")
    run = str(there / "run")
    out, err = said(capsys, 0, run, str(tmp_path), "--json")
    rows = json.loads(out)
    assert [row["file"] for row in rows] == [str(tmp_path / name) for name in sorted(names)]
    assert f"left out of {tmp_path}: 1 .me (a/read.me), 1 hidden (.hidden.png), 1 links" in err
    assert rows == [rows_of(capsys, run, row["file"])[0] for row in rows]
    both = rows_of(capsys, run, str(tmp_path / "6.png"), str(tmp_path / "a"))
    ordered = ["6.png", "a/3.bmp", "a/7.jpeg", "a/b/1.JPG", "a/b/2.webp"]
    assert [row["file"] for row in both] == [str(tmp_path / name) for name in ordered]


def test_broken_pictures_are_named_and_the_others_come(there: Path, tmp_path: Path, capsys: Capture) -> None:
    pictures(tmp_path, 0, 2)
    (tmp_path / "green/cut.png").write_bytes((tmp_path / "green/00.png").read_bytes()[:60])
    out, err = said(capsys, 1, str(there / "run"), str(tmp_path), "--csv", str(tmp_path / "t.csv"))
    assert out == ""
    assert f"{tmp_path}/green/cut.png' cannot be decoded" in err
    assert f"{tmp_path}/t.csv has 4 pictures" in err
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 5
    page = str(tmp_path / "p.html")
    said(capsys, 1, str(there / "run"), str(tmp_path / "green"), "--html", page)
    assert "Could not be read" in Path(page).read_text()
    assert "cut.png" in Path(page).read_text()


def test_a_csv_file_has_what_json_has(there: Path, tmp_path: Path, capsys: Capture) -> None:
    run, folder = str(there / "run"), str(pictures(tmp_path / "new", 20, 24))
    rows = rows_of(capsys, run, folder, "--top-k", "2")
    file = tmp_path / "table.csv"
    said(capsys, 0, run, folder, "--top-k", "2", "--csv", str(file))
    read = list(csv.DictReader(io.StringIO(file.read_text())))
    assert list(read[0]) == ["file", "label", "probability", "label_2", "probability_2"]
    for row, line in zip(rows, read, strict=True):
        first, second = row["top"]
        assert (line["file"], line["label"], float(line["probability"])) == (row["file"], *first.values())
        assert (line["label_2"], float(line["probability_2"])) == tuple(second.values())
        assert row["probability"] == first["probability"] >= second["probability"]
    printed, _ = said(capsys, 0, run, folder, "--top-k", "2", "--csv")
    assert printed == file.read_text()
    table, _ = said(capsys, 0, run, folder, "--top-k", "9")
    assert all(len(re.findall(r"\d %", line)) == 3 for line in table.splitlines())  # there are three classes
    assert all(sum(one["probability"] for one in row["top"]) == pytest.approx(1, abs=1e-5)
               for row in rows_of(capsys, run, folder, "--top-k", "9"))  # fmt: skip


def test_a_page_shows_the_least_sure_first_and_loads_nothing(there: Path, tmp_path: Path, capsys: Capture) -> None:
    run, folder = str(there / "run"), pictures(tmp_path / "new", 20, 24)
    os.rename(folder / "red/20.png", folder / "red" / HOSTILE)
    rows = sorted(rows_of(capsys, run, str(folder)), key=lambda row: row["probability"])
    file = tmp_path / "page.html"
    out, err = said(capsys, 0, run, str(folder), "--html", str(file))
    assert out == ""
    assert f"{file} has 8 pictures" in err
    page = file.read_text()
    shown = re.findall(r"<b>(\w+)</b> ([\d.]+)&nbsp;%", page)
    assert shown == [(row["label"], f"{100 * row['probability']:.1f}") for row in rows]
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "<i id" not in page
    assert "\x1b" not in page
    assert r"=1\x1b[31m&lt;i id=pwn&gt;\n.png" in page
    thumbnails = re.findall(r"base64,([^\"]+)", page)
    place = next(i for i, row in enumerate(rows) if row["file"].endswith(HOSTILE))
    with (
        Image.open(io.BytesIO(base64.b64decode(thumbnails[place]))) as found,
        Image.open(folder / "red" / HOSTILE) as was,
    ):
        assert np.array_equal(np.asarray(found), np.asarray(was))


def test_a_page_keeps_the_least_sure_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions_page, "MAX_PICTURES", 3)
    page, shares = PredictionsPage("m"), [0.9, 0.4, 0.7, 0.4, 0.8, 0.3, 1.0]
    for i, share in enumerate(shares):
        page.add({"file": f"f{i}", "label": "x", "probability": share}, np.zeros((1, 2, 2), np.uint8))
        assert len(page.kept) <= 3
    text = page.html([])
    assert re.findall(r"<small>(f\d)</small>", text) == ["f5", "f1", "f3"]
    assert "7 pictures, predicted by m" in text
    assert "This page shows 3; --csv writes all" in text


def test_a_thumbnail_is_the_mean_of_blocks() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 130, 130)).astype(np.uint8)
    small = thumbnail(pixels)
    assert small.shape == (3, 43, 43)
    assert small[1, 2, 3] == round(pixels[1, 6:9, 9:12].mean())
    assert thumbnail(pixels[:, :64, :64]).shape == (3, 64, 64)


def test_pictures_are_read_a_batch_at_a_time(there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that memory does not grow with a folder, and rows come while it is read."""
    monkeypatch.setattr(predict, "BATCH", 2)
    opened: list[Any] = []
    read = predict.read_image
    monkeypatch.setattr(predict, "read_image", lambda *given: opened.append(given) or read(*given))
    source = sources.open_model(str(there / "run"))
    files = sorted(map(str, pictures(tmp_path, 0, 5).rglob("*.png")))
    args = cli._parser().parse_args(["predict", "x", "y"])
    assert source.preprocessing is not None
    rows = predict._rows(source.model, source, source.preprocessing, files, [], args)
    for number, _ in enumerate(rows):
        assert len(opened) == 2 * (number // 2 + 1)
    assert len(opened) == len(files) == 10


def test_every_file_made_of_a_run_predicts_alike_in_a_folder_of_its_own(
    there: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of classes and scaling travel through export, convert and what `onnx.export` writes back, and int8."""
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("minorm.onnx")
    run, made = str(there / "run"), {name: str(tmp_path / f"{name}.onnx") for name in ("first", "old", "back", "int8")}
    assert cli.main(["export", run, "-o", made["first"]]) == 0
    assert cli.main(["convert", made["first"], "--opset", "13", "-o", made["old"]]) == 0
    onnx.export(onnx.load(made["first"]), None, made["back"], verify=True)
    assert cli.main(["quantize", made["first"], "--calibrate", str(there / "images"), "-o", made["int8"]]) == 0
    fresh = tmp_path / "fresh"
    pictures(fresh, 40, 43, ("red", "blue"))
    wanted = rows_of(capsys, run, str(fresh))
    monkeypatch.chdir(fresh)
    for name, path in made.items():
        os.rename(path, fresh / "model.onnx")
        found = rows_of(capsys, "model.onnx", str(fresh))
        assert [row["label"] for row in found] == [row["label"] for row in wanted], name
        shares, those = ([row["probability"] for row in rows] for rows in (found, wanted))
        assert shares == pytest.approx(those, abs=0.02 if name == "int8" else 1e-5), name


def test_a_graph_that_ends_in_a_softmax_gives_its_own_probabilities(
    there: Path, tmp_path: Path, capsys: Capture
) -> None:
    """As classifiers of other makers do; loss and scores are those of the logits."""
    onnx = pytest.importorskip("minorm.onnx")
    run, file = str(there / "run"), str(tmp_path / "soft.onnx")
    source = sources.open_model(run)
    assert source.preprocessing is not None
    model = nn.Sequential(source.model.eval(), nn.Softmax(1))
    onnx.export(model, mn.zeros(2, 3, 8, 8), file, metadata=file_preprocessing.description(source.preprocessing))
    folder = str(there / "images")
    assert (
        rows_of(capsys, file, folder, "--top-k", "3")[0]["top"]
        == rows_of(capsys, run, folder, "--top-k", "3")[0]["top"]
    )
    found = []
    for path in (run, file):
        assert cli.main(["evaluate", path, "--data", "folder", "--path", folder, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[1]["loss"] == pytest.approx(found[0]["loss"], rel=1e-5)
    assert found[1]["calibration_error"] == pytest.approx(found[0]["calibration_error"], abs=1e-5)


def test_a_graph_for_one_picture_is_given_one_at_a_time(there: Path, tmp_path: Path, capsys: Capture) -> None:
    onnx = pytest.importorskip("minorm.onnx")
    run, file = str(there / "run"), str(tmp_path / "one.onnx")
    source = sources.open_model(run)
    assert source.preprocessing is not None
    said = file_preprocessing.description(source.preprocessing)
    onnx.export(source.model.eval(), mn.zeros(1, 3, 8, 8), file, dynamic_axes={}, metadata=said)
    folder = str(there / "images")
    wanted, found = (rows_of(capsys, path, folder) for path in (run, file))
    assert [row["label"] for row in found] == [row["label"] for row in wanted]
    losses = []
    for path in (run, file):
        assert cli.main(["evaluate", path, "--data", "folder", "--path", folder, "--json"]) == 0
        losses.append(json.loads(capsys.readouterr().out)["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_a_picture_of_which_the_model_makes_nan_is_named(
    there: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others come, and JSON has numbers alone."""
    logits = np.zeros((24, 3), np.float32)
    logits[[3, 5]] = [[np.nan, 0, 0], [np.inf, 0, 0]]
    monkeypatch.setattr(predict, "predict", lambda model, images: mn.tensor(logits[: len(images)]))
    out, err = said(capsys, 1, str(there / "run"), str(there / "images"), "--json")
    files = sorted(map(str, (there / "images").rglob("*.png")))
    assert [row["file"] for row in json.loads(out)] == [file for i, file in enumerate(files) if i not in (3, 5)]
    for i in (3, 5):
        assert f"{files[i]!r}: the model gives NaN or infinity; expected a number for each class" in err


def test_what_does_not_fit_is_named(there: Path, tmp_path: Path, capsys: Capture) -> None:
    run, picture = str(there / "run"), str(there / "images/red/00.png")
    before = Path(picture).read_bytes()
    assert (
        "expected a name that ends in .csv; to print the CSV, make --csv the last argument"
        in said(capsys, 2, run, picture, "--csv", picture)[1]
    )
    assert "expected a name that ends in .html" in said(capsys, 2, run, picture, "--html", picture)[1]
    assert Path(picture).read_bytes() == before
    assert "--top-k 0: expected at least 1" in said(capsys, 2, run, picture, "--top-k", "0")[1]
    (tmp_path / "a.txt").write_text("")
    told = said(capsys, 1, run, str(tmp_path))[1]
    assert (
        f"there are no pictures below '{tmp_path}'; expected PNG, JPEG, WebP, BMP, GIF or TIFF files; there are" in told
    )
    assert said(capsys, 1, run, picture, "--csv", str(tmp_path / "no/t.csv"))[0] == ""
    assert not (tmp_path / "no").exists()
