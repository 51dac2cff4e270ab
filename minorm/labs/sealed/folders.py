"""Removes a folder that a student's code has filled, however deep it is and whatever modes its folders have."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Iterator


def remove(folder: str) -> None:
    """Remove the folder and all below it, as far as this user may, without following links.

    shutil.rmtree calls itself for each level, and a path of thousands of levels is too long for the kernel. So the
    contents of each folder are moved to the top before the folder itself is removed.
    """
    free = (path for number in itertools.count() if not os.path.lexists(path := os.path.join(folder, f"{number}")))
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)
        pending = [os.path.join(folder, name) for name in os.listdir(folder)]
        while pending:
            pending += _removed(pending.pop(), free)
        os.rmdir(folder)


def _removed(path: str, free: Iterator[str]) -> list[str]:
    """Remove a file or a folder. Before a folder is removed, its contents get names from `free`; return these names."""
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return []
        os.chmod(path, 0o700)
        held = []
        for name in os.listdir(path):
            held.append(next(free))
            os.rename(os.path.join(path, name), held[-1])
        os.rmdir(path)
        return held
    return []
