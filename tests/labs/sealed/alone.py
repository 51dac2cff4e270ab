"""Code in a process of its own, with the sealed modules and without NumPy: what a wall does cannot be undone."""

from __future__ import annotations

import subprocess
import sys

from minorm.labs.sealed import entry, walls

BEGIN = entry.BEGIN.replace("from minorm.labs.sealed import entry\nentry.main()\n", "")


def alone(code: str, *arguments: str) -> str:
    """What the code prints; AssertionError with what it says where it fails."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", BEGIN + code, *arguments, str(walls.PACKAGE)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
