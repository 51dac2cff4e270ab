"""Checks a command's output files before its work begins, and writes pictures."""

from __future__ import annotations

import os
from typing import Any

from minorm.cli.terminal.one_line_errors import UsageError
from minorm.serialization import atomic

PICTURES = (".png", ".svg", ".pdf")


def check(command: str, model: str, *paths: str | None) -> None:
    """Check that the output paths are different, are not the model, and can be written to.

    paths    the output paths; None for an option that was not given

    Raises UsageError for a path that is given twice or is the model, and OSError if no file can be written at a path.
    """
    targets: set[str] = set()
    for path in filter(None, paths):
        target = atomic.destination(path, command)
        if os.path.exists(path) and os.path.samefile(path, model):
            raise UsageError(f"{path} is the model itself; expected another file")
        if target in targets:
            raise UsageError(f"{path} is named twice; expected a file for each option")
        targets.add(target)


def check_picture(option: str, path: str | None) -> None:
    """Raise UsageError unless the path ends in .png, .svg or .pdf. The path is None if the option was not given."""
    if path and not path.lower().endswith(PICTURES):
        raise UsageError(f"{option} {path}: expected a name that ends in .png, .svg or .pdf")


def write_picture(command: str, figure: Any, path: str) -> None:
    """Write a matplotlib figure in the format that the path's ending names."""
    with atomic.replacing(path, command) as file:
        figure.savefig(file, format=path[-3:].lower(), dpi=130)
