"""The examples run as they stand, and reach what they promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minorm_ext

for package in ("sklearn", "onnx", "onnxruntime", "matplotlib", "PIL"):
    pytest.importorskip(package)
ROOT = Path(__file__).resolve().parents[2]


def run(name: str, folder: Path, *options: str) -> str:
    """Run the program in an empty folder; return its output."""
    command = [sys.executable, str(ROOT / "examples" / name), *options]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])  # a checkout that is not installed will do
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def last_accuracy(text: str) -> float:
    return float(re.findall(r"\b[01]\.\d{3}\b", text)[-1])


def has_picture(path: Path) -> bool:
    """A PNG file in which something is drawn."""
    from matplotlib.image import imread

    return bool(imread(path)[..., :3].std() > 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_the_page_has_the_figures_that_are_printed(name: str, tmp_path: Path) -> None:
    """The program prints each figure of its row; at baseline it prints the figure in brackets, if the row has one."""
    if name == "tune.py":
        pytest.importorskip("optuna")
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| \[{name}\].*$", page, re.MULTILINE)
    figures = re.findall(r"([01]\.\d{3})(?: \(baseline ([01]\.\d{3})\))?", row)
    assert figures
    at_baseline = minorm_ext.levels()[-1] == "baseline"
    told = {baseline if baseline and at_baseline else figure for figure, baseline in figures}
    printed = re.findall(r"\b[01]\.\d{3,}", run(name, tmp_path))
    assert told <= {f"{float(number):.3f}" for number in printed}


def test_sixty_seconds(tmp_path: Path) -> None:
    assert float(run("sixty_seconds.py", tmp_path).removeprefix("accuracy ")) > 0.97
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.onnx", "digits.safetensors"]


def test_sixty_seconds_is_the_readmes_program() -> None:
    program = (ROOT / "examples" / "sixty_seconds.py").read_text().split('"""\n\n', 1)[1]
    assert re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE) == [
        program
    ]


def test_fine_tune(tmp_path: Path) -> None:
    text = run("fine_tune.py", tmp_path)
    assert last_accuracy(text) > 0.95
    assert "running statistics too: True" in text


def test_custom_loop(tmp_path: Path) -> None:
    assert last_accuracy(run("custom_loop.py", tmp_path)) > 0.97


@pytest.mark.slow
def test_tune(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    text = run("tune.py", tmp_path)
    assert last_accuracy(text) > 0.97
    assert 0 < int(re.findall(r"(\d+) of 10 trials were stopped early", text)[0]) < 10


def test_gan(tmp_path: Path) -> None:
    text = run("gan.py", tmp_path, "--epochs", "14")
    sure, rarest = (float(share) for share in re.findall(r"drawn: .* (\d\.\d+), rarest digit (\d\.\d+)", text)[0])
    of_noise = float(re.findall(r"noise: .* (\d\.\d+),", text)[0])
    assert sure > max(0.8, of_noise)
    assert rarest > 0.02  # of noise: less than 0.01
    assert has_picture(tmp_path / "gan.png")


def test_wgan_gp(tmp_path: Path) -> None:
    near, rarest = map(float, re.findall(r"\b[01]\.\d{3}\b", run("wgan_gp.py", tmp_path, "--steps", "120"))[-2:])
    assert near > 0.25  # by numbers in the square around the circle: 0.4 of its area would be 0.14 near a cluster
    assert rarest > 0.01
    assert has_picture(tmp_path / "wgan_gp.png")


@pytest.mark.slow
def test_maml(tmp_path: Path) -> None:
    assert last_accuracy(run("maml.py", tmp_path, "--steps", "150")) < 0.8  # of the loss is left by a step; without: 1


@pytest.mark.slow
def test_sharpness(tmp_path: Path) -> None:
    text = run("sharpness.py", tmp_path)
    early, late = (float(number) for number in re.findall(r"eigenvalue +(\d+\.\d+)", text))
    assert 0 < late < early
    assert last_accuracy(text) < 0.01  # what is left beside the vector


def test_own_functions(tmp_path: Path) -> None:
    text = run("own_functions.py", tmp_path)
    digits, told, hiding, hidden, left = map(float, re.findall(r"\b[01]\.\d{3}\b", text))
    assert min(digits, hiding) > 0.9
    assert hidden < 0.65 < told
    assert left < 0.4


def test_read_digits(tmp_path: Path) -> None:
    assert last_accuracy(run("read_digits.py", tmp_path, "--steps", "150")) > 0.8  # guessing: less than 0.001
    assert has_picture(tmp_path / "read_digits.png")


def test_segmentation(tmp_path: Path) -> None:
    text = run("segmentation.py", tmp_path, "--epochs", "6", "--images", "240")
    assert last_accuracy(text) > 0.4  # intersection over union; guessing one class everywhere: 0
    assert has_picture(tmp_path / "segmentation.png")


def test_transfer(tmp_path: Path) -> None:
    text = run("transfer.py", tmp_path, "--first-epochs", "6", "--epochs", "8")
    _, scratch, _, tuned = map(float, re.findall(r"\b[01]\.\d{3}\b", text))
    assert tuned > max(0.7, scratch)  # of 300 images; guessing: 0.5
    assert has_picture(tmp_path / "transfer.png")


def test_own_images(tmp_path: Path) -> None:
    text = run("own_images.py", tmp_path, "--images", "60")
    assert last_accuracy(text) > 0.7  # guessing one of three: 0.333
    assert has_picture(tmp_path / "own_images.png")
    assert (tmp_path / "own_images.safetensors").exists()


def test_own_images_of_ones_own(tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for number, name in enumerate(("dark", "light")):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for index in range(50):
            pixels = rng.integers(150 * number, 100 + 150 * number, (20, 24, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{index}.png")
    options = ("--path", "pictures", "--epochs", "3", "--image-size", "16")
    assert last_accuracy(run("own_images.py", tmp_path, *options)) > 0.9
