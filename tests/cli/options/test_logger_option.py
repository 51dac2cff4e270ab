"""--logger: which trackers a run gets, and that one which is missing is said before the run begins."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from minorm import cli
from minorm.cli.options import logger_option
from minorm.training import MLflowCallback, TensorBoardCallback, WandbCallback

TRAIN = ["train", "--data", "digits", "--epochs", "1", "--out"]


def installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    found = logger_option.importlib.util.find_spec  # type: ignore[attr-defined]
    trackers = {*logger_option.LOGGERS}
    monkeypatch.setattr(
        logger_option.importlib.util,  # type: ignore[attr-defined]
        "find_spec",
        lambda name, *rest: (object() if name in names else None) if name in trackers else found(name, *rest),
    )


@pytest.mark.parametrize(
    ("logger", "there", "kinds"),
    [
        (None, [], []),
        (None, ["tensorboard", "wandb"], [TensorBoardCallback]),
        ("wandb", ["wandb"], [WandbCallback]),
        ("mlflow", ["tensorboard", "mlflow"], [TensorBoardCallback, MLflowCallback]),
        ("tensorboard", ["tensorboard"], [TensorBoardCallback]),
    ],
)
def test_which_trackers_a_run_gets(
    monkeypatch: pytest.MonkeyPatch, logger: str | None, there: list[str], kinds: list[type]
) -> None:
    installed(monkeypatch, *there)
    logger_option.check(logger)
    assert [type(callback) for callback in logger_option.callbacks(logger, "runs/ü")] == kinds


def test_a_tracker_that_is_missing_is_said_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(monkeypatch)
    assert cli.main([*TRAIN, str(tmp_path / "run"), "--logger", "wandb"]) == 1
    assert "needs wandb; install with: pip install wandb" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_command_hands_its_epochs_to_the_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    installed(monkeypatch, "wandb")
    seen: list[Any] = []
    package = ModuleType("wandb")
    package.init = lambda **options: package  # type: ignore[attr-defined]
    package.log = lambda values, step: seen.append((step, sorted(values)))  # type: ignore[attr-defined]
    package.finish = lambda exit_code: seen.append(int(exit_code))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", package)
    assert cli.main([*TRAIN, str(tmp_path / "run"), "--logger", "wandb"]) == 0
    columns = ["accuracy/train", "accuracy/val", "learning_rate", "loss/train", "loss/val"]
    assert seen == [(1, columns), 0]
    seen.clear()
    assert cli.main(["train", "--resume", "--out", str(tmp_path / "run"), "--logger", "wandb"]) == 0
    assert seen == []  # the run was finished


def test_a_folder_that_tensorboard_cannot_name_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(monkeypatch, "tensorboard")
    assert logger_option.callbacks(None, f"{tmp_path}/run\udcfc") == []
    assert r"run\xfc is not UTF-8, as tensorboard needs" in capsys.readouterr().err


def test_before_the_first_epoch_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "tensorboard")
    (tmp_path / "file").write_bytes(b"")
    logger_option.callbacks(None, str(tmp_path / "file"))  # that no folder can be made there, the run says
    logger_option.callbacks(None, str(tmp_path / "run"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
