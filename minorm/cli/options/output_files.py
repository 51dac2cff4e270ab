"""The files that a command writes: checked before its work, and not after it."""

from __future__ import annotations

import os

from minorm.cli.one_line_errors import UsageError
from minorm.serialization import atomic


def check(command: str, model: str, *paths: str | None) -> None:
    """UsageError for a path that is the model itself, or that two options name; OSError where no file can be.

    paths    None for an option that was not given
    """
    targets: set[str] = set()
    for path in filter(None, paths):
        target = atomic.destination(path, command)
        if os.path.exists(path) and os.path.samefile(path, model):
            raise UsageError(f"{path} is the model itself; expected another file")
        if target in targets:
            raise UsageError(f"{path} is named twice; expected a file for each option")
        targets.add(target)
