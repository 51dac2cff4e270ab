"""--pixel-range scales mean and std, --freeze reads names, and some options need a file."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

import numpy as np
import pytest

import minorm as mn
from minorm import models
from minorm.cli.options import transfer_options
from minorm.cli.terminal.one_line_errors import UsageError
from minorm.training.settings import numbers


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    transfer_options.add(parser, functools.partial(parser.add_argument, default=None))
    for name in ("--model", "--image-size", "--max-bytes"):
        parser.add_argument(name)
    return argparse.Namespace(**vars(parser.parse_args(words)), trust=False, words=["train", *words])


@pytest.mark.parametrize(
    ("words", "mean", "std"),
    [
        ([], None, None),
        (["--pixel-range", "255"], [0], [1 / 255]),
        (["--pixel-range", "1"], [0], [1]),
        (["--pixel-range", "255", "--mean", "102,51,0", "--std", "51"], [0.4, 0.2, 0], [0.2]),
        (["--mean", "0.5", "--std", "0.25,0.25,0.5"], [0.5], [0.25, 0.25, 0.5]),
    ],
)
def test_pixels_from_0_to_1_and_from_0_to_255(words: list[str], mean: list[float] | None, std: list[float]) -> None:
    args = parsed(*words)
    assert transfer_options.resolve(args) is None
    for found, wanted in ((args.mean, mean), (args.std, std)):
        assert found is None if wanted is None else np.allclose(numbers(found) or [], wanted, rtol=1e-15)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ([], None),
        (["--pixel-range", "255", "--mean", "102,51,0", "--std", "51"], None),
        (["--mean", "0.40,0.2,0.0", "--std", "0.2,0.2,0.2"], None),
        (["--pixel-range", "255", "--std", "51"], None),
        (
            ["--pixel-range", "255"],
            "mean is '0' by --pixel-range 255; expected 0.4,0.2,0 for pixels from 0 to 1, as in the run in runs/mine",
        ),
        (["--mean", "0.4"], "mean is '0.4'; expected 0.4,0.2,0 for pixels from 0 to 1, as in the run in runs/mine"),
        (["--std", "51"], "std is '51'; expected 0.2,0.2,0.2"),
        (["--std", "many"], "std is 'many'; expected 0.2,0.2,0.2"),
    ],
)
def test_a_resumed_run_keeps_its_scaling(words: list[str], wrong: str | None) -> None:
    found = {"preprocessing": {"mean": [0.4, 0.2, 0.0], "std": [0.2, 0.2, 0.2]}}
    args = argparse.Namespace(**vars(parsed(*words)), out="runs/mine")
    if wrong is None:
        transfer_options.check_same_scaling(args, found)
        return
    with pytest.raises(ValueError, match=f"^{wrong}"):
        transfer_options.check_same_scaling(args, found)


def test_epochs_or_all() -> None:
    assert parsed("--freeze", "all").freeze == "all"
    assert parsed("--freeze", "3").freeze == 3
    with pytest.raises(SystemExit):
        parsed("--freeze", "some")


@pytest.mark.parametrize("option", [["--freeze", "2"], ["--layer-decay", "0.5"], ["--new-head"]])
def test_options_that_need_weights(option: list[str]) -> None:
    with pytest.raises(UsageError, match=f"{option[0]} needs initial weights; expected --init FILE as well"):
        transfer_options.resolve(parsed(*option))
    transfer_options.resolve(parsed(*option, "--model", "mine.py:build"))  # which may bring its own


def test_an_onnx_file_is_the_model_unless_another_is_said(tmp_path: Path) -> None:
    onnx = pytest.importorskip("minorm.onnx")
    path = str(tmp_path / "net.onnx")
    onnx.export(models.digits_cnn(), mn.zeros(1, 1, 8, 8), path)
    for words in (["--init", path], ["--model", path], ["--model", path, "--init", path]):
        args = parsed(*words)
        found = transfer_options.resolve(args)
        assert found is not None
        assert (args.model, args.code, args.init) == (path, found.graph, None)
    args = parsed("--init", path, "--model", "digits")
    transfer_options.resolve(args)
    assert (args.model, args.init) == ("digits", path)
