"""The command itself: help, version, exit codes, one sentence where something is missing."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import minorm
from minorm import cli
from minorm.cli.terminal import extras
from minorm.support.startup import startup


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


def parsers(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield every command, and subcommands under names such as `labs grade`."""
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    yield from [] if found else [(name, parser)]
    for action in found:
        for word, below in action.choices.items():
            yield from parsers(below, f"{name} {word}".strip())


def test_every_command_that_writes_a_file_takes_o_and_out() -> None:
    """Those that do not print, or ask for a folder of something."""
    options = {
        name: [action.option_strings[:2] for action in parser._actions if {"-o", "--out"} & set(action.option_strings)]
        for name, parser in parsers(cli._parser())
    }
    assert all(found in ([], [["-o", "--out"]]) for found in options.values())
    printing = {"evaluate", "predict", "conform", "completion", "labs list", "labs check"}
    assert {name for name, found in options.items() if not found} == printing


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
            "minorm demo: needs rich and scikit-learn; install with: pip install rich scikit-learn",
        ),
        (["export", "x"], ["onnx"], "minorm export: needs onnx; install with: pip install onnx"),
        (["check", "x"], ["onnx"], "minorm check: needs onnx; install with: pip install onnx"),
    ],
)
def test_a_missing_package_is_one_sentence(
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


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["export", "nowhere"], "load: there is no file 'nowhere'"),
        (["export", "x", "--out", "new/"], "'new/' names a folder; expected a file name"),
        (["check", "nowhere.onnx"], "there is no file 'nowhere.onnx'"),
        (["check", "--json", "nowhere/m.onnx"], "there is no file 'nowhere/m.onnx'"),
        (["check", "pipe"], "'pipe' is a pipe; expected a regular file"),
        (["check", "/dev/zero"], "'/dev/zero' is a device; expected a regular file"),
        (["check", "."], "'.' is a folder; expected a regular file"),
        (["convert", "nowhere.onnx", "--opset", "17"], "load: there is no file 'nowhere.onnx'"),
        (["convert", "pipe", "--opset", "17"], "load: 'pipe' is a pipe; expected a regular file"),
        (["export", "pipe"], "load: 'pipe' is a pipe; expected a regular file"),
        (["train", "--resume", "--out", "nowhere"], "load: there is no file 'nowhere/checkpoint.safetensors'"),
        (["train", "--epochs", "1", "--out", "file"], "'file' is a file; expected a folder, or a new name for one"),
        (["demo", "--out", "file"], "'file' is a file; expected a folder, or a new name for one"),
        (["labs", "start", "0", "--to", "file"], "'file' is a file; expected a folder, or a new name for one"),
        (["labs", "check", "0", "nowhere.py"], "there is no file 'nowhere.py'"),
        (["labs", "check", "0", "pipe.py"], "'pipe.py' is a pipe; expected a regular file"),
        (["labs", "grade", "0", "nowhere"], "cannot list the folder 'nowhere': No such file or directory"),
    ],
)
@pytest.mark.timeout(30)
def test_files_that_are_not_there_or_none_are_said_in_words_at_once(
    argv: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("onnx", "rich", "sklearn"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkfifo("pipe.py")
    Path("file").write_bytes(b"old")
    assert cli.main(argv) == 1
    assert capsys.readouterr().err == f"minorm {argv[0]}: {message}\n"
    assert sorted(os.listdir()) == ["file", "pipe", "pipe.py"]


@pytest.mark.parametrize(
    ("error", "said"), [(MemoryError(), "short of memory"), (MemoryError("a is large"), "a is large")]
)
def test_short_of_memory_is_one_line(
    error: MemoryError, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(args: argparse.Namespace) -> Any:
        raise error

    monkeypatch.setattr(cli.check, "run", run)
    assert cli.main(["check", "x"]) == 1
    assert capsys.readouterr().err == f"minorm check: {said}\n"


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
    extras.need("onnx")
