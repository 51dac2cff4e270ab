"""`--data`: a data set by its name, or the place of a folder of images or of a .npz file."""

from __future__ import annotations

import argparse
import os

from minorm.cli.one_line_errors import UsageError
from minorm.training.settings import MODEL_FOR


class DataSets(list[str]):
    """The names of data sets; a place on the disk counts as one too, where there is something."""

    def __contains__(self, given: object) -> bool:
        return super().__contains__(given) or (isinstance(given, str) and os.path.exists(given))


def usual_data(path: str) -> str:
    """What images at a path are where nothing else is said."""
    return "numpy" if path.endswith(".npz") else "folder"


def data_and_path(args: argparse.Namespace) -> tuple[str | None, str | None]:
    """The data set and where it is; --data FOLDER says both."""
    if args.data is None or args.data in MODEL_FOR:
        return args.data, args.path
    if args.path is not None:
        raise UsageError(f"--data {args.data} and --path {args.path} name two places; expected one")
    return usual_data(args.data), args.data
