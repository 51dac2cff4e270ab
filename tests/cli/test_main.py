"""The command itself: help, version, exit codes, one sentence where something is missing."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import minorm
from minorm import cli
from minorm.cli import extras
from minorm.startup import startup


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(f"\n    {name} " in text for name in ("demo", "train", "export", "check"))


@pytest.mark.parametrize("command", ["demo", "train", "export", "check"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    assert f"usage: minorm {command}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["minorm", "minorm.cli"])
def test_version_and_both_names_of_the_module(name: str) -> None:
    done = subprocess.run([sys.executable, "-m", name, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"minorm {minorm.__version__}\n"


def test_the_script_starts_main() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert tomllib.loads(text)["project"]["scripts"] == {"minorm": "minorm.cli:main"}


@pytest.mark.parametrize("argv", [[], ["frobnicate"], ["train", "--data", "imagenet"], ["train", "--epochs", "many"]])
def test_wrong_usage_is_exit_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 2
    assert "usage: minorm" in capsys.readouterr().err


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make packages look as if they were not installed."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in names else find_spec(name, *rest)
    )


@pytest.mark.parametrize(
    ("argv", "hidden", "message"),
    [
        (
            ["demo"],
            ["rich", "sklearn"],
            'minorm demo: needs rich and scikit-learn; install with: pip install "minorm[demo]"',
        ),
        (["train"], ["rich"], 'minorm train: needs rich; install with: pip install "minorm[demo]"'),
        (["export", "x"], ["onnx"], 'minorm export: needs onnx; install with: pip install "minorm[onnx]"'),
        (["check", "x"], ["onnx"], 'minorm check: needs onnx; install with: pip install "minorm[onnx]"'),
    ],
)
def test_a_missing_extra_is_one_sentence(
    argv: list[str],
    hidden: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hide(monkeypatch, *hidden)
    assert cli.main(argv) == 1
    captured = capsys.readouterr()
    assert captured.err == f"{message}\n"
    assert captured.out == ""


def test_errors_are_one_line_and_a_traceback_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", "nowhere.safetensors"]) == 1
    assert "nowhere.safetensors" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError):
        cli.main(["export", "nowhere.safetensors", "--traceback"])


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(args: argparse.Namespace) -> Any:
        raise KeyboardInterrupt("what is left is here")

    monkeypatch.setattr(cli.check, "run", interrupted)
    assert cli.main(["check", "x"]) == 130
    assert capsys.readouterr().err == "\nminorm check: stopped; what is left is here\n"


def test_an_error_that_ctrl_c_was_made_into_is_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(args: argparse.Namespace) -> Any:
        monkeypatch.setattr(startup, "ready", True)
        try:
            startup.interrupt(2, None)
        except KeyboardInterrupt as error:
            raise RuntimeError("a bad installation, perhaps") from error

    monkeypatch.setattr(startup, "pressed", False)
    monkeypatch.setattr(cli.check, "run", interrupted)
    assert cli.main(["check", "x"]) == 130
    assert capsys.readouterr().err == "\nminorm check: stopped\n"


def test_need_says_nothing_where_all_is_there() -> None:
    extras.need("demo", "onnx")
