"""`--tta hflip` averages the probabilities over several views of each image."""

from __future__ import annotations

import argparse
from typing import Any

from minorm.cli.sources import Source
from minorm.cli.terminal.one_line_errors import UsageError
from minorm.training import TTA


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument("--tta", metavar="VIEWS", help="average the probabilities over several views of each image: "
                        "hflip, vflip, rotations, crops, or several of these with commas, such as "
                        "hflip,crops")  # fmt: skip


def wrapped(source: Source, args: argparse.Namespace) -> Any:
    """Return the model; if --tta is given, return a TTA of the model. Raise UsageError for an unknown view."""
    if args.tta is None:
        return source.model
    try:
        return TTA(source.model, args.tta, source.gives_probabilities)
    except ValueError as error:
        raise UsageError(f"--tta: {str(error).removeprefix('TTA: ')}") from None
