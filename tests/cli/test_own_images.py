"""Three commands on a folder of photographs: train, predict, export; and everything that can be wrong with them."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm_ext
from minorm import cli, nn
from minorm.cli.terminal import words
from minorm.cli.views import run_report
from minorm.training import Run
from minorm.training.data.majority_guess import Guess
from minorm.training.run import BEST, CHECKPOINT, LOG
from tests.cli.test_main import hide

Image = pytest.importorskip("PIL.Image")

MODEL = """
from minorm import nn

def build(channels, size, classes):
    return nn.Sequential(nn.Conv2d(channels, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, classes))
"""


def photographs(root: Path) -> None:
    """Stripes and checks as a folder of photographs has them: large, grey, 16 bits, turned, transparent, CMYK."""
    for kind, name in enumerate(("bars", "checks")):
        (root / name).mkdir(parents=True)
        for i in range(16):
            height, width = (3000, 4000) if i == 0 else ((60, 80), (80, 60), (64, 64))[i % 3]
            y, x = np.mgrid[:height, :width] * 24 // min(height, width)
            shape = (x // 3 % 2, (x // 4 + y // 4) % 2)[kind]
            noise = np.random.default_rng((kind, i)).integers(0, 80, (height, width, 1), np.uint8)
            pixels = (noise + 150 * shape[..., None] + np.zeros(3)).astype(np.uint8)
            image, file = Image.fromarray(pixels), root / name / f"{i:02}"
            if i == 1:
                image.convert("L").save(f"{file}.png")
            elif i == 2:
                Image.fromarray(pixels[..., 0].astype(np.uint16) * 257).save(f"{file}.png")
            elif i == 3:
                exif = Image.Exif()
                exif[0x0112] = 3
                image.save(f"{file}.jpg", exif=exif)
            elif i == 4:
                image.putalpha(220)
                image.save(f"{file}.webp")
            elif i == 5:
                image.convert("CMYK").save(f"{file}.jpg")
            else:
                image.save(f"{file}.jpg")


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs, a model, and a finished run of it."""
    root = tmp_path_factory.mktemp("own")
    photographs(root / "images")
    (root / "images" / "bars" / "cut.jpg").write_bytes((root / "images" / "bars" / "00.jpg").read_bytes()[:999])
    (root / "mine.py").write_text(MODEL)
    assert cli.main(train(root, "run", "--epochs", "6", "--ema", "0.9")) == 0
    return root


def train(root: Path, out: str, *more: str) -> list[str]:
    words = ["--data", "folder", "--path", str(root / "images"), "--image-size", "16", "--batch-size", "8"]
    return ["train", *words, "--model", f"{root}/mine.py:build", "-o", str(root / out), *more]


def said(capsys: pytest.CaptureFixture[str], code: int, *argv: str) -> str:
    """Return what a failing command wrote to stderr."""
    capsys.readouterr()
    assert cli.main(list(argv)) == code
    return capsys.readouterr().err


def test_three_commands_are_enough(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(train(there, "other", "--epochs", "6", "--hflip", "0.5", "--num-workers", "0")) == 0
    told = capsys.readouterr().out
    assert "folder with model" in told
    assert "skipped:" in told
    assert "cut.jpg' cannot be decoded" in told
    assert "best: epoch" in told
    run = str(there / "other")
    assert {CHECKPOINT, BEST, LOG, "report.html"} <= set(os.listdir(run))
    images = sorted(map(str, (there / "images" / "checks").iterdir()))
    assert cli.main(["predict", run, *images, "--json", "--trust"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["file"] for row in rows] == images
    assert np.mean([row["label"] == "checks" for row in rows]) > 0.8
    assert all(0.5 <= row["probability"] <= 1 for row in rows)


def test_a_broken_file_is_named_and_the_others_come(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, good, bad = str(there / "run"), str(there / "images/bars/01.png"), str(there / "images/bars/cut.jpg")
    assert cli.main(["predict", run, good, bad, "nowhere.png", "--csv", "--trust"]) == 1
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == "file,label,probability"
    assert [line.split(",")[0] for line in lines[1:]] == [good]
    assert f"{bad!r} cannot be decoded" in captured.err
    assert "there is no file 'nowhere.png'" in captured.err
    assert f"weights of {run}/{BEST}" in captured.err


def test_every_form_of_a_model_predicts_and_evaluates_alike(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    run, images = str(there / "run"), [str(there / f"images/checks/{name}") for name in ("01.png", "05.jpg")]
    exported = str(there / "model.onnx")
    assert cli.main(["export", run, "-o", exported, "--trust"]) == 0
    capsys.readouterr()
    found: list[Any] = []
    scores: list[Any] = []
    for model in (run, f"{run}/{BEST}", exported):
        assert cli.main(["predict", model, *images, "--json", "--trust"]) == 0
        found.append([(row["label"], round(row["probability"], 4)) for row in json.loads(capsys.readouterr().out)])
        data = ["--data", "folder", "--path", str(there / "images"), "--json", "--trust"]
        assert cli.main(["evaluate", model, *data]) == 0
        scores.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1] == found[2]
    assert scores[0].keys() >= {"images", "accuracy", "loss", "split", "path", "largest_class"}
    assert scores[0]["images"] == 32  # all but the broken one
    assert scores[0]["largest_class"] == scores[2]["largest_class"] == {"name": "bars", "accuracy": 0.5}
    assert scores[0] == scores[1]
    assert scores[2]["accuracy"] == scores[0]["accuracy"]
    assert [row["name"] for row in scores[2]["classes"]] == ["bars", "checks"]
    assert scores[2]["macro"] == scores[0]["macro"]
    assert scores[2]["loss"] == pytest.approx(scores[0]["loss"], abs=1e-5)


def test_the_best_epoch_is_what_evaluate_finds(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(there / "run")
    rows = [line.split(",") for line in (there / "run" / LOG).read_text().splitlines()[1:]]
    assert cli.main(["evaluate", run, "--json", "--trust"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == max(float(row[5]) for row in rows)


def test_another_folder_is_labelled_by_the_names_of_the_model_s_classes(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by a model that is no run: it says its channels, size and classes."""
    run = str(there / "run")
    shutil.copytree(there / "images" / "checks", tmp_path / "images" / "checks")  # alone it would be class 0
    assert cli.main(["evaluate", run, "--path", str(tmp_path / "images"), "--json", "--trust"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert alone["images"] == 16
    assert alone["accuracy"] > 0.5
    (tmp_path / "images" / "checks").rename(tmp_path / "images" / "boxes")
    text = said(capsys, 1, "evaluate", "--trust", run, "--path", str(tmp_path / "images"))
    assert "boxes' is a class that the training images do not have; expected bars, checks" in text


def test_a_grey_model_is_given_grey_images(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("minorm.onnx")
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2)).eval()
    file = str(tmp_path / "grey.onnx")
    onnx.export(model, mn.zeros(2, 1, 12, 12), file, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    assert cli.main(["evaluate", file, "--data", "folder", "--path", str(there / "images"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 32
    assert cli.main(["predict", file, str(there / "images/checks/01.png")]) == 0


def test_a_changed_file_asks_for_one(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = str(there / "images/bars/01.png")
    own, out = tmp_path / "own.py", tmp_path / "run"
    own.write_text(MODEL)
    assert cli.main([*train(there, "x"), "--model", f"{own}:build", "--epochs", "1", "-o", str(out)]) == 0
    own.write_text(f"{MODEL}\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    for command in (["predict", str(out), picture], ["evaluate", str(out), "--path", str(there / "images")],
                    ["export", str(out), "-o", str(tmp_path / "x.onnx")]):  # fmt: skip
        told = said(capsys, 2, *command)
        assert told.count("\n") == 1
        assert f"'build' in '{out}/own.py', SHA-256 " in told
        assert f"to run it, use: minorm {command[0]} --trust {shlex.join(command[1:])}\n" in told
        assert not (tmp_path / "ran").exists()
    assert cli.main(["predict", str(out), picture, "--model", f"{there}/mine.py:build"]) == 0


def test_arrays_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    x = (rng.integers(0, 100, (80, 12, 12)) + 100 * y[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "set.npz", x_train=x[:64], y_train=y[:64], x_test=x[64:], y_test=y[64:])
    words = ["--data", "numpy", "--path", str(tmp_path / "set.npz"), "--model", "norms", "--batch-size", "16"]
    assert cli.main(["train", *words, "--epochs", "2", "-o", str(tmp_path / "run")]) == 0
    assert cli.main(["evaluate", str(tmp_path / "run"), "--path", str(tmp_path / "set.npz")]) == 0
    assert "16 images: accuracy" in capsys.readouterr().out


def test_without_rich_and_matplotlib_there_are_plain_lines(
    there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide(monkeypatch, "rich", "matplotlib")
    assert cli.main([*train(there, "x"), "--epochs", "2", "-o", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("chosen to suit the images: --")
    assert lines[2].startswith("epoch 1/2  train loss")
    assert set(os.listdir(tmp_path)) == {CHECKPOINT, BEST, LOG, "report.html", "outcome.json", "mine.py"}


def test_what_is_wrong_is_one_sentence(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(*more: str) -> str:
        text = said(capsys, 1, *train(there, "new"), *more)
        assert text.count("\n") == 1
        assert not (there / "new").exists() or not os.listdir(there / "new")
        return text

    (tmp_path / "one" / "a").mkdir(parents=True)
    assert f"there are no images below '{tmp_path / 'one'}'" in wrong("--path", str(tmp_path / "one"))
    Image.new("RGB", (9, 9)).save(tmp_path / "one" / "a" / "0.png")
    assert "images of only one class, 'a'" in wrong("--path", str(tmp_path / "one"))
    (tmp_path / "one" / "b").mkdir()
    assert "an empty class" in wrong("--path", str(tmp_path / "one"))
    assert "there is no folder" in wrong("--path", "nowhere")
    assert "nowhere.py" in wrong("--model", "nowhere.py:build")
    assert "has no function 'make'" in wrong("--model", f"{there}/mine.py:make")
    assert "model is 'vgg'; expected one of digits, lenet, resnet20, norms, resnet18, " in wrong("--model", "vgg")
    assert "batch_size is 500" in wrong("--batch-size", "500")
    assert "cutout is 16" in wrong("--cutout", "16")
    assert "expected an .npz file" in wrong("--data", "numpy", "--path", str(there / "mine.py"))
    assert "hflip is 7.0; expected a number from 0 to 1" in wrong("--hflip", "7")


def test_a_config_file_says_what_the_command_line_does_not(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text('epochs = 1\nbatch-size = 4\nlr = 1\nearly-stopping = 3\nschedule = "cosine"\ndevice = "cpu"\n')
    assert cli.main([*train(there, "x"), "--config", str(file), "-o", str(tmp_path / "run")]) == 0
    settings = run_report.Run.settings_of(str(tmp_path / "run"))
    assert (settings.epochs, settings.lr, settings.early_stopping, settings.schedule) == (1, 1.0, 3, "cosine")
    assert settings.batch_size == 8  # which the command line says
    for text, message in (
        ("epoch = 1", "there is no option 'epoch'; did you mean 'epochs'?"),
        ("batch_size = 1", "there is no option 'batch_size'; did you mean 'batch-size'?"),
        ("resume = true", "there is no option 'resume'"),
        ('epochs = "many"', "epochs is 'many'; expected a whole number"),
        ("epochs = 1.5", "epochs is 1.5; expected a whole number"),
        ("lr = [1]", "lr is [1]; expected a number"),
        ('optimizer = "lion"', "optimizer is 'lion'; expected one of sgd, adam, adamw"),
        ("distributed = 1", "distributed is 1; expected true or false"),
        ("epochs = ", "is no TOML file"),
    ):
        file.write_text(text)
        told = said(capsys, 2, *train(there, "y"), "--config", str(file))
        assert str(file) in told
        assert message in told
    assert "nowhere.toml" in said(capsys, 1, *train(there, "y"), "--config", "nowhere.toml")


def test_plot_draws_the_log(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        assert cli.main(["plot", str(there / "run"), "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    assert "expected .png, .svg or .pdf" in said(capsys, 1, "plot", str(there / "run"), "-o", "a.gif")
    assert "log.csv" in said(capsys, 1, "plot", str(tmp_path))
    (tmp_path / LOG).write_text("a,b\n1,2\n")
    assert "has the columns ['a', 'b']" in said(capsys, 1, "plot", str(tmp_path))


def test_a_report_that_cannot_be_written_leaves_the_old_one(there: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the checkpoint fits, the report does not."""
    run = tmp_path / "run"
    assert cli.main([*train(there, "x"), "--epochs", "1", "-o", str(run)]) == 0
    (run / "report.html").write_bytes(b"the old one")
    limit = max((run / name).stat().st_size for name in (CHECKPOINT, BEST, LOG)) + 500
    program = (
        "import resource, sys; from minorm.cli import main; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); sys.exit(main(sys.argv[1:]))"
    )
    for name in (CHECKPOINT, BEST):
        (run / name).unlink()
    words = [*train(there, "x"), "--epochs", "1", "-o", str(run)]
    found = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert f"cannot write '{run}/report.html': File too large" in found.stderr
    assert (run / "report.html").read_bytes() == b"the old one"


def test_the_report_shows_everything_and_loads_nothing(there: Path) -> None:
    page = (there / "run" / "report.html").read_text()
    for part in ("Curves", "Confusion matrix", "Normalizations", "Settings", "Time", "BatchNorm2d", "image-size"):
        assert part in page, part
    assert "http-equiv" in page
    assert "default-src 'none'" in page
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    for name in ("curves.png", "confusion.png"):
        with Image.open(there / "run" / name) as image:
            assert image.size[0] > 300


def test_few_images_come_in_smaller_batches(there: Path, tmp_path: Path) -> None:
    words = ["train", "--data", "folder", "--path", str(there / "images"), "--image-size", "16", "--epochs", "1"]
    assert cli.main([*words, "--model", f"{there}/mine.py:build", "-o", str(tmp_path)]) == 0
    assert run_report.Run.settings_of(str(tmp_path)).batch_size == 4


def test_what_was_chosen_is_said_and_stands_in_the_settings(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """26 pictures to train: batches of 4, 6 a epoch, and 600 steps. Their shorter sides are 60 and 64."""
    monkeypatch.setattr(Run, "fit", lambda *_: None)
    monkeypatch.setattr("minorm.cli.train._tell_the_end", lambda *_: None)
    monkeypatch.setattr("minorm.cli.views.run_report.write", lambda *_: [])
    words = ["train", "--data", "folder", "--path", str(there / "images"), "--model", f"{there}/mine.py:build"]
    assert cli.main([*words, "-o", str(tmp_path / "a")]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line == (
        "chosen to suit the images: --image-size 48 (half of the pictures are at least 60 pixels high and wide), "
        "--crop-scale 0.5 (a part of such an image shows enough), --hflip 0.0 (the pictures are grey), "
        "--batch-size 4 (four batches per epoch), --epochs 100 (600 steps)"
    )
    assert cli.main([*words, "-o", str(tmp_path / "b"), "--epochs", "2", "--hflip", "0.3", "--crop-scale", "1"]) == 0
    said = capsys.readouterr().out
    assert "--image-size 48" in said
    assert not any(f"--{name}" in said for name in ("epochs", "hflip", "crop"))


def test_a_finished_run_goes_on(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    assert cli.main([*train(there, "x"), "--hflip", "0", "--epochs", "2", "-o", run]) == 0
    resume = ["train", "--resume", "-o", run, "--path", str(there / "images"), "--trust", "--epochs"]
    text = said(capsys, 1, *resume, "2")
    assert (
        f"epochs is 2; expected more than 2, the number of epochs that the run of {run}/{CHECKPOINT} has finished"
    ) in text
    assert cli.main([*resume, "4"]) == 0
    told = capsys.readouterr().out
    assert "continuing after epoch 2, up to epoch 4; the learning rate is now" in told
    assert "the value after 2 epochs of the onecycle schedule for 4 epochs" in told
    assert [line.split("  ")[0] for line in told.splitlines() if line.startswith("epoch")] == ["epoch 3/4", "epoch 4/4"]
    assert "chosen to suit" not in told
    settings = Run.settings_of(run)
    assert (settings.epochs, settings.batch_size, settings.crop_padding) == (4, 8, 2)
    assert len((tmp_path / "run" / LOG).read_text().splitlines()) == 5
    page = (tmp_path / "run/report.html").read_text()
    assert re.search(r"with the weights of epoch \d of 4\. validation accuracy", page)


def test_a_result_stands_beside_that_of_a_guess(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three pictures of each class validate, so that a guess is right half the time."""
    guess = "always guessing the largest class ('bars') would have an accuracy of 50.0 %"
    run = tmp_path / "run"
    assert cli.main([*train(there, "x"), "--epochs", "1", "--lr", "1e-9", "-o", str(run)]) == 0
    told = capsys.readouterr().out
    outcome = json.loads((run / "outcome.json").read_text())
    row = (run / LOG).read_text().splitlines()[1].split(",")
    assert outcome["accuracy"] == float(row[5])
    assert outcome["largest_class"] == {"name": "bars", "accuracy": 0.5}
    assert (outcome["epoch"], outcome["images"], outcome["loss"]) == (1, 6, float(row[4]))
    assert outcome["better_than_guessing"] == (outcome["accuracy"] > 0.5)
    sentence = f"validation accuracy {100 * outcome['accuracy']:.1f} %; {guess}"
    assert sentence in told
    page = (run / "report.html").read_text()
    assert html.escape(sentence) in page
    assert cli.main(["evaluate", str(run), "--trust"]) == 0
    assert sentence in capsys.readouterr().out


def test_a_model_that_only_guesses_is_told_what_to_try() -> None:
    lines = words.compared(0.312, Guess("rose", 0.312))
    assert lines[0].endswith("would have an accuracy of 31.2 %: the model is no better than guessing")
    assert "--lr" in lines[1]
    assert "--epochs" in lines[1]
    assert words.compared(0.881, Guess("rose", 0.312)) == [
        "validation accuracy 88.1 %; always guessing the largest class ('rose') would have an accuracy of 31.2 %"
    ]


def test_a_run_begins_with_the_weights_of_another(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first run's model code does not run, so it is not asked for; a head for three classes is drawn anew."""
    shutil.copytree(there / "images", tmp_path / "images")
    shutil.copytree(there / "images" / "bars", tmp_path / "images" / "more")
    path, three = ["--path", str(tmp_path / "images")], str(tmp_path / "three")
    assert cli.main([*train(there, "x"), *path, "--init", str(there / "run"), "--epochs", "1", "-o", three]) == 0
    told = capsys.readouterr().out
    assert f"begins with 6 tensors of {BEST}\n" in told
    assert (
        "initialized anew, because the file has another shape: 5.weight (2, 32) in the file, (3, 32) in the model, "
        "5.bias (2,) in the file, (3,) in the model"
    ) in told.replace("\n", "")
    assert f"6 tensors of {BEST}, SHA-256" in (tmp_path / "three/report.html").read_text()
    assert "init: no weight of" in said(
        capsys, 1, *train(there, "x"), "--init", str(there / "run"), "--model", "norms", "-o", str(tmp_path / "y")
    )
    assert not (tmp_path / "y").exists()
    assert "--init is only for a new run" in said(capsys, 2, "train", "--resume", "-o", three, "--init", "x.pt")
    mn.save({**mn.load(str(there / "run" / BEST))["model"], "evil\x1b[2J": mn.ones(1)}, str(tmp_path / "w.safetensors"))
    own = [*train(there, "x"), "--init", str(tmp_path / "w.safetensors"), "--epochs", "1", "-o", str(tmp_path / "z")]
    assert cli.main(own) == 0
    told = capsys.readouterr().out
    assert "in the file, but not in this model: evil\\x1b[2J" in told
    assert "\x1b[2J" not in told


def test_ctrl_c_ends_a_run_with_threads_at_once(there: Path, tmp_path: Path) -> None:
    words = [*train(there, "x"), "--epochs", "5000", "--num-workers", "2", "-o", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "minorm", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while "epoch" not in process.stdout.readline():
        assert process.poll() is None
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - start < 2  # half a second, on a machine that does nothing else
    assert process.returncode == 130
    assert "continue with: minorm train --resume" in errors
    assert "--num-workers 2" in errors


def test_bfloat16_trains_and_goes_out_as_float32(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    run, exported, picture = str(tmp_path / "run"), str(tmp_path / "m.onnx"), str(there / "images/checks/01.png")
    assert cli.main([*train(there, "x"), "--epochs", "3", "--dtype", "bfloat16", "-o", run]) == 0
    assert words.gain_of_bfloat16(minorm_ext.levels()[-1]) in " ".join("".join(capsys.readouterr()).split())
    assert cli.main(["export", run, "-o", exported, "--trust"]) == 0
    capsys.readouterr()
    shares = []
    for model in (run, exported):
        assert cli.main(["predict", model, picture, "--json", "--trust"]) == 0
        shares.append(json.loads(capsys.readouterr().out)[0])
    assert shares[0]["label"] == shares[1]["label"]
    assert shares[0]["probability"] == pytest.approx(shares[1]["probability"], abs=0.02)


def test_a_model_predicts_and_evaluates_in_another_type(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the file, images are given in the type that is asked for; an ONNX file of that type needs no option."""
    pytest.importorskip("onnxruntime")
    import minorm.onnx as mo

    run, picture, folder = str(there / "run"), str(there / "images/checks/01.png"), str(there / "images")
    exported, halved = str(there / "single.onnx"), str(there / "halved.onnx")
    assert cli.main(["export", run, "-o", exported, "--trust"]) == 0
    mo.export(mo.load(exported, dtype=mn.bfloat16), None, halved)

    def told(*argv: str) -> Any:
        capsys.readouterr()
        assert cli.main([*argv, "--json", "--trust"]) == 0
        return json.loads(capsys.readouterr().out)

    [single] = told("predict", exported, picture)
    scored = told("evaluate", exported, "--data", "folder", "--path", folder)
    found = []
    for model, *option in (
        (run, "--dtype", "bfloat16"), (exported, "--dtype", "bfloat16"), (halved,), (halved, "--dtype", "float32"),
    ):  # fmt: skip
        [row] = told("predict", model, picture, *option)
        assert row["label"] == single["label"]
        assert row["probability"] == pytest.approx(single["probability"], abs=0.02)
        found.append(row["probability"])
        score = told("evaluate", model, "--data", "folder", "--path", folder, *option)
        assert score["loss"] == pytest.approx(scored["loss"], abs=0.03)
        assert score["loss"] != scored["loss"]
    assert found[1] == found[2]
    assert single["probability"] not in found


def test_ranks_share_a_folder_and_there_is_a_report(there: Path, tmp_path: Path) -> None:
    words = [*train(there, "x"), "--epochs", "2", "--ranks", "2", "--mixup", "0.3", "--ema", "0.9"]
    assert cli.main([*words, "-o", str(tmp_path)]) == 0
    assert "the weights of epoch" in (tmp_path / "report.html").read_text()


def test_max_bytes_is_for_what_the_commands_read(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, image, folder = str(there / "run"), str(there / "images/bars/01.png"), str(there / "images")
    assert cli.main(["predict", run, "--trust", image, "--max-bytes", "10"]) == 1
    assert "more than max_bytes=10; pass max_bytes=" in capsys.readouterr().err
    assert cli.main(["predict", run, "--trust", image, "--max-bytes", "1000000"]) == 0
    assert cli.main(["evaluate", run, "--trust", "--path", folder, "--max-bytes", "10"]) != 0
    assert cli.main(["evaluate", run, "--trust", "--path", folder, "--max-bytes", "1000000"]) == 0
    train = ["train", "--data", "folder", "--path", folder, "--epochs", "1", "-o", str(there / "limited")]
    assert cli.main([*train, "--max-bytes", "10"]) != 0
    assert "max_bytes=10" in capsys.readouterr().err
