"""--device: which commands have it, one refusal where the device is not there, and results of a model on the CPU."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from minorm import cli, devices
from minorm.cli.options import device_option
from tests.cli.test_main import parsers

COMPUTING = {
    "check": ["m.onnx"],
    "demo": [],
    "doctor": ["run"],
    "evaluate": ["run"],
    "lr-find": [],
    "predict": ["run", "a.png"],
    "profile": ["run"],
    "quantize": ["run"],
    "train": [],
}
# Files that do not depend on a device, compared with runtimes on the CPU; a picture of numbers; notebooks; a script.
ON_THE_CPU = {"export", "convert", "conform", "plot", "completion"}


def test_every_command_that_computes_has_the_option_with_the_same_words() -> None:
    helps = {}
    for name, parser in parsers(cli._parser()):
        found = [action for action in parser._actions if "--device" in action.option_strings]
        if found:
            helps[name] = found[0].help or ""
        else:
            assert name in ON_THE_CPU or name.startswith("labs"), name
    assert helps.keys() == COMPUTING.keys()
    assert all(text.startswith("the device: cpu (default), cuda or cuda:1") for text in helps.values())


@pytest.mark.parametrize("command", COMPUTING)
def test_without_a_gpu_every_command_refuses_at_once_in_the_same_words(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files of the command are not there: the device is looked at first."""
    for package in ("rich", "matplotlib", "sklearn", "onnx", "onnxruntime", "PIL"):
        pytest.importorskip(package)

    def missing() -> Any:
        raise RuntimeError("cuda: no NVIDIA driver was found; or compute on 'cpu'")

    monkeypatch.setattr(devices, "library", missing)
    monkeypatch.chdir(tmp_path)
    assert cli.main([command, *COMPUTING[command], "--device", "cuda"]) == 1
    said = capsys.readouterr().err
    assert said == f"minorm {command}: --device cuda: no NVIDIA driver was found; or compute on 'cpu'\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:"])
def test_a_name_that_is_no_device_is_wrong_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", "run", "--device", name]) == 2
    assert f"minorm evaluate: --device {name}: '{name}' is not supported" in capsys.readouterr().err


def test_the_cpu_is_always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "library", None)
    device_option.check(argparse.Namespace(device="cpu"))
