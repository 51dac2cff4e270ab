"""`--data` names a data set, or gives the path of a folder of images or of a .npz file."""

from __future__ import annotations

import argparse
import os
from typing import Any

from minorm.cli.terminal.one_line_errors import UsageError
from minorm.training.settings import MODEL_FOR


class DataSets(list[str]):
    """The accepted names of data sets. Paths that have a slash or exist are accepted too."""

    def __contains__(self, given: object) -> bool:
        is_path = isinstance(given, str) and (os.sep in given or "/" in given or os.path.exists(given))
        return is_path or super().__contains__(given)


def usual_data(path: str) -> str:
    """Return the kind of data at a path: `numpy` for a .npz file, else `folder`."""
    return "numpy" if path.endswith(".npz") else "folder"


def data_and_path(args: argparse.Namespace) -> tuple[Any, str | None]:
    """Return the name of the data set and the path to read. If --data is a path, the name follows from this path."""
    if args.data is None or args.data in MODEL_FOR:
        return args.data, args.path
    if args.path is not None:
        raise UsageError(f"--data {args.data} and --path {args.path} name two places; expected one")
    return usual_data(args.data), args.data
