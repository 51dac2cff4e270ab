"""`minorm lr-find`: what `lr_finder` finds for the run that `minorm train` would begin, drawn and written."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from minorm import cli, optim
from minorm.training import Run, Settings

pytest.importorskip("sklearn")

WORDS = ["lr-find", "--data", "digits", "--steps", "30", "--start-lr", "1e-4", "--end-lr", "3"]


def test_it_is_lr_finder_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text('optimizer = "adamw"\nclip-grad = 1.0\n')
    out = tmp_path / "curve.csv"
    assert cli.main([*WORDS, "--config", str(tmp_path / "run.toml"), "--json", "-o", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    run = Run(Settings(optimizer="adamw", clip_grad=1.0))
    expected = optim.lr_finder(
        run.model, run.train_loader, run.loss_function, run.optimizer,
        start_lr=1e-4, end_lr=3.0, num_iter=30, clip_grad=1.0,
    )  # fmt: skip
    assert found["rates"] == expected.rates
    assert found["losses"] == expected.losses
    assert (found["suggestion"], found["steepest"]) == (expected.suggestion, expected.steepest)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["learning_rate"]) for row in rows] == expected.rates
    assert [float(row["smoothed_loss"]) for row in rows] == expected.smoothed


def test_it_begins_and_scales_pixels_as_train_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model and the scaling are those of the run after --init, the numbers are for --pixel-range."""
    settings = Settings(epochs=1, model="norms", mean="0.25", std="2")
    Run(settings, str(tmp_path / "run")).save(str(tmp_path / "run"))
    weights = str(tmp_path / "run" / "checkpoint.safetensors")
    for words, same in (
        (["--init", weights], settings),
        (["--pixel-range", "255"], Settings(mean="0", std=repr(1 / 255))),
    ):
        assert cli.main([*WORDS, *words, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        run = Run(same, init=weights if same is settings else None)
        expected = optim.lr_finder(
            run.model, run.train_loader, run.loss_function, run.optimizer, start_lr=1e-4, end_lr=3.0, num_iter=30
        )
        assert found["losses"] == expected.losses


def test_it_draws_a_curve_and_suggests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "curve.png"
    assert cli.main([*WORDS, "-o", str(out)]) == 0
    said, noted = capsys.readouterr()
    assert "learning rate" in said
    assert "suggestion: --lr 0." in said
    assert f"wrote {out}" in noted
    assert out.read_bytes().startswith(b"\x89PNG")
    assert out.with_suffix(".csv").exists()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["-o", "curve.txt"], 2, "-o curve.txt: expected a name that ends in .png, .svg or .pdf"),
        (["--path", "images"], 2, "--path images is given, but the digits"),
        (["--steps", "3"], 1, "num_iter=3; expected an int of at least 10"),
        (["--rotate", "200"], 1, "rotate is 200.0; expected degrees from 0 to 180"),
    ],
)
def test_mistakes(options: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lr-find", "--data", "digits", *options]) == code
    assert message in capsys.readouterr().err
