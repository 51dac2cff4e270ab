"""Run code in a separate process, with the sealed modules and without NumPy: the effect of a wall cannot be undone."""

from __future__ import annotations

import subprocess
import sys

from minorm.labs.sealed import entry, walls

BEGIN = entry.BEGIN.replace("from minorm.labs.sealed import entry\nentry.main()\n", "")


def alone(code: str, *arguments: str) -> str:
    """Run the code and return its output; raise an AssertionError with its stderr if it fails."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", BEGIN + code, *arguments, str(walls.PACKAGE)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
