"""`--logger` names a tracker, which gets the numbers of each epoch in addition to log.csv."""

from __future__ import annotations

import argparse
import importlib.util

from minorm.cli.terminal import extras, output
from minorm.training import Callback, MLflowCallback, TensorBoardCallback, WandbCallback

LOGGERS = ("tensorboard", "wandb", "mlflow")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument("--logger", choices=LOGGERS, help="also write each epoch's numbers to this tracker, which "
                        "must be installed (default: tensorboard if it is installed)")  # fmt: skip


def check(logger: str | None) -> None:
    """Raise ImportError with a message of one sentence if the package of this tracker is not installed."""
    if logger is not None:
        extras.need(logger)


def callbacks(logger: str | None, folder: str) -> list[Callback]:
    """Return the callbacks for a run in `folder`: TensorBoard's, if it is installed, and the one of `logger`."""
    found = _tensorboard(folder)
    if logger == "wandb":
        found.append(WandbCallback())
    if logger == "mlflow":
        found.append(MLflowCallback())
    return found


def _tensorboard(folder: str) -> list[Callback]:
    if importlib.util.find_spec("tensorboard") is None:
        return []
    try:
        folder.encode()
    except UnicodeEncodeError:
        output.note(f"minorm train: {folder} is not UTF-8, as tensorboard needs; nothing is written for tensorboard")
        return []
    return [TensorBoardCallback(folder)]
