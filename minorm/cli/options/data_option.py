"""`--data`: a data set by its name, or the place of a folder of images or of a .npz file."""

from __future__ import annotations

import argparse
import os
from typing import Any

from minorm.cli.terminal.one_line_errors import UsageError
from minorm.training.settings import MODEL_FOR


class DataSets(list[str]):
    """The names of data sets; a path counts as one too: a text with a slash, or a file or folder that exists."""

    def __contains__(self, given: object) -> bool:
        is_path = isinstance(given, str) and (os.sep in given or "/" in given or os.path.exists(given))
        return is_path or super().__contains__(given)


def usual_data(path: str) -> str:
    """The kind of data that a path means by itself: a .npz file or a folder."""
    return "numpy" if path.endswith(".npz") else "folder"


def data_and_path(args: argparse.Namespace) -> tuple[Any, str | None]:
    """The data set and where it is; --data FOLDER says both."""
    if args.data is None or args.data in MODEL_FOR:
        return args.data, args.path
    if args.path is not None:
        raise UsageError(f"--data {args.data} and --path {args.path} name two places; expected one")
    return usual_data(args.data), args.data
