"""`minorm train`: what it writes and says, --resume, Ctrl-C within half a second, errors that help."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import cli, models
from minorm.training.run import BEST, CHECKPOINT, LOG, Run

pytest.importorskip("rich")
pytest.importorskip("sklearn")


def train(*words: str) -> int:
    return cli.main(["train", *words])


def write_idx(path: Path, array: np.ndarray) -> None:
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


@pytest.fixture
def mnist(tmp_path: Path) -> str:
    """A folder with 64 training and 16 test images of noise in MNIST's format."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for part, count in (("train", 64), ("t10k", 16)):
        write_idx(folder / f"{part}-images-idx3-ubyte", rng.integers(0, 256, (count, 28, 28), dtype=np.uint8))
        write_idx(folder / f"{part}-labels-idx1-ubyte", rng.integers(0, 10, count, dtype=np.uint8))
    return str(folder)


def test_it_trains_says_so_and_resumes_nothing_that_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    assert train("--epochs", "2", "--out", out) == 0
    text = capsys.readouterr().out
    assert "digits with model digits: 1,438 images to train" in text
    assert "epoch 1/2  train loss" in text
    assert "images/s" in text
    assert f"done: {out}/{CHECKPOINT}, {out}/{BEST}, {out}/{LOG}" in text
    assert f"report: {out}/report.html" in text
    assert len((tmp_path / "run" / LOG).read_text().splitlines()) == 3
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert train("--resume", "--out", out) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.parametrize("model", ["lenet", "resnet20", "digits"])
def test_mnist_files_train_every_model(mnist: str, tmp_path: Path, model: str) -> None:
    out = str(tmp_path / model)
    words = ["--data", "mnist", "--path", mnist, "--model", model, "--batch-size", "32", "--out", out]
    assert train(*words, "--epochs", "1", "--optimizer", "adamw", "--schedule", "cosine", "--threads", "2") == 0
    run = Run.resume(out, mnist)
    assert (run.epoch, run.settings.model, run.settings.optimizer) == (1, model, "adamw")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["vit_tiny", "resnet18"])
def test_networks_with_torchvisions_keys_train_go_on_and_are_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (24, 32, 32, 3), dtype=np.uint8), np.arange(24) % 3
    np.savez(tmp_path / "set.npz", x_train=images[:16], y_train=labels[:16], x_test=images[16:], y_test=labels[16:])
    out = str(tmp_path / "run")
    words = ["--data", "numpy", "--path", str(tmp_path / "set.npz"), "--model", model, "--batch-size", "8"]
    assert train(*words, "--epochs", "1", "--out", out) == 0
    assert train("--resume", "--out", out, "--path", str(tmp_path / "set.npz"), "--epochs", "2") == 0
    again = models.build(model, 3, 32, 3)
    weights = mn.load(Path(out) / BEST)["model"]
    assert not any(again.load_state_dict(weights))
    capsys.readouterr()
    assert cli.main(["export", out, "--out", str(tmp_path / "model.onnx")]) == 0
    assert "checker: passed; onnxruntime" in capsys.readouterr().out


def test_errors_say_what_to_do(mnist: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")

    def message(*words: str) -> str:
        assert train(*words) == 1
        return capsys.readouterr().err

    assert "--path DIR" in message("--data", "mnist", "--out", out)
    assert "found no train-images" in message("--data", "mnist", "--path", str(tmp_path), "--out", out)
    assert "lenet needs images of at least 12 x 12" in message("--model", "lenet", "--out", out)
    assert "epochs is 0" in message("--epochs", "0", "--out", out)
    assert "ranks is 1000000; expected at most 1,024" in message("--ranks", "1000000", "--out", out)
    assert "--resume needs --out" in message("--resume")
    assert CHECKPOINT in message("--resume", "--out", out)
    assert train("--epochs", "1", "--out", out) == 0
    assert "already holds a run" in message("--epochs", "1", "--out", out)
    text = message("--resume", "--out", out, "--lr", "0.5")
    assert "lr is 0.5; expected 0.05, as in the run in" in text
    assert "is '0' by --pixel-range 255; expected" in message("--resume", "--out", out, "--pixel-range", "255")


def test_a_best_file_without_its_checkpoint_is_neither_lost_nor_kept_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / BEST).write_bytes(b"of another run")
    assert train("--epochs", "1", "--out", str(tmp_path)) == 1
    assert f"{tmp_path} holds the {BEST} of another run; move it away or choose" in capsys.readouterr().err
    assert (tmp_path / BEST).read_bytes() == b"of another run"

    def cut(run: Run, *_: Any) -> None:
        assert run.out is not None
        if left:
            run.epoch, run.history = 1, [{"epoch": 1, "val_accuracy": 1.0, "val_loss": 0.0}]
            monkeypatch.setattr("minorm.training.run.log", lambda _: "")
            run.save(run.out)
            (Path(run.out) / CHECKPOINT).unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "fit", cut)
    for left, said in ((False, "stopped; nothing was written yet"), (True, f"{BEST} exists, but there is no")):
        out = tmp_path / str(left)
        assert train("--out", str(out)) == 130
        assert said in capsys.readouterr().err


def test_two_runs_in_one_folder_are_one_too_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "minorm", "train", "--epochs", "1000", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for_lines(out / LOG, 2)
            for words in (["--resume"], ["--epochs", "1"]):
                assert train(*words, "--out", str(out)) == 1
                said = capsys.readouterr().err
                assert said.endswith(f"another run is training in {out}; wait until that run ends, or choose another "
                                     "--out\n")  # fmt: skip
        finally:
            process.kill()
    before = Run.resume(str(out)).epoch
    assert train("--epochs", "1", "--out", str(out)) == 1
    assert "already holds a run" in capsys.readouterr().err, "a killed process locks nothing"
    assert Run.resume(str(out)).epoch == before


def test_other_images_are_named_and_taken_where_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed, count in (("a", 0, 64), ("b", 1, 64), ("c", 2, 96)):
        rng = np.random.default_rng(seed)
        images = [rng.integers(0, 256, (n, 8, 8), dtype=np.uint8) for n in (count, 16)]
        labels = [np.arange(n) % 4 for n in (count, 16)]
        arrays = dict(zip(("x_train", "x_test", "y_train", "y_test"), images + labels, strict=True))
        np.savez(tmp_path / f"{name}.npz", **arrays)  # type: ignore[arg-type]
    out, words = str(tmp_path / "run"), ["--data", "numpy", "--model", "digits", "--batch-size", "16", "--epochs", "2"]
    assert train(*words, "--path", f"{tmp_path}/a.npz", "--out", out) == 0
    resume = ["--resume", "--out", out, "--path"]
    for name, said in (
        ("b", "some of the 64 training images have changed"),
        ("c", "64 training images before, 96 now"),
    ):
        assert train(*resume, f"{tmp_path}/{name}.npz") == 1
        told = capsys.readouterr().err
        assert (
            f"{said}; some of the 16 validation images have changed. To continue with the new images, pass --other"
        ) in told
    assert train(*resume, f"{tmp_path}/a.npz") == 0
    assert train(*resume, f"{tmp_path}/c.npz", "--other-images") == 0


def test_a_loss_that_is_no_number_stops_with_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path)
    with np.errstate(all="ignore"):
        assert train("--epochs", "3", "--lr", "1e30", "--schedule", "constant", "--out", out) == 1
    error = capsys.readouterr().err
    assert "minorm train: epoch 1: the loss is" in error
    assert "a lower learning rate is the usual cure" in error
    assert Run.resume(out).epoch == 0


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to another process there")
def test_ctrl_c_ends_within_half_a_second_and_the_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    command = [sys.executable, "-m", "minorm.cli", "train"]
    seconds = []
    for attempt in range(3):  # a busy machine may need more than one for a fair time
        out = tmp_path / f"long{attempt}"
        process = subprocess.Popen(
            [*command, "--epochs", "1000", "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        wait_for_lines(out / LOG, 3)
        start = time.perf_counter()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
        seconds.append(time.perf_counter() - start)
        assert process.returncode == 130
        assert "holds the state after epoch" in error
        assert f"minorm train --resume --out {out}" in error
        assert "Traceback" not in error
        run = Run.resume(str(out))
        assert run.epoch >= 2
        assert len((out / LOG).read_text().splitlines()) in (run.epoch, run.epoch + 1, run.epoch + 2)
        if seconds[-1] < 0.5:
            break
    assert min(seconds) < 0.5

    process = subprocess.Popen([*command, "--epochs", "12", "--out", str(cut)], stdout=subprocess.DEVNULL)
    wait_for_lines(cut / LOG, 3)
    process.kill()
    process.wait()
    assert Run.resume(str(cut)).epoch < 12
    assert train("--resume", "--out", str(cut)) == 0
    assert train("--epochs", "12", "--out", str(whole)) == 0
    for name in (CHECKPOINT, LOG):
        assert (whole / name).read_bytes() == (cut / name).read_bytes()


def test_a_line_an_epoch_with_and_without_accuracy() -> None:
    row = {"epoch": 2, "train_loss": 0.5, "val_loss": 0.25, "images_per_second": 1234.0}
    line = cli.train._line({**row, "train_accuracy": 0.5, "val_accuracy": 1.0}, 10)
    assert line == ("epoch  2/10  train loss 0.5000 accuracy  50.00%  val loss 0.2500 accuracy 100.00%  1,234 images/s")
    line = cli.train._line({**row, "train_accuracy": None, "val_accuracy": None}, 10)
    assert line == "epoch  2/10  train loss 0.5000  val loss 0.2500  1,234 images/s"


def wait_for_lines(path: Path, count: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if path.exists() and len(path.read_text().splitlines()) >= count:
            return
        time.sleep(0.005)
    raise AssertionError(f"{path} never had {count} lines")
