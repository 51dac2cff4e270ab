"""`--tta hflip`: probabilities as the mean over several views of each image."""

from __future__ import annotations

import argparse
from typing import Any

from minorm.cli.terminal.one_line_errors import UsageError
from minorm.training import TTA


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument("--tta", metavar="VIEWS", help="the mean of the probabilities over views of each image: hflip, "
                        "vflip, rotations, crops, or several with commas, as hflip,crops")  # fmt: skip


def wrapped(model: Any, args: argparse.Namespace) -> Any:
    """The model that these options ask; UsageError for an unknown view."""
    if args.tta is None:
        return model
    try:
        return TTA(model, args.tta)
    except ValueError as error:
        raise UsageError(f"--tta: {str(error).removeprefix('TTA: ')}") from None
