"""What a student's process may use: set by the process itself, before it sees the student's code, and not to be undone.

Memory, because a machine that swaps grades nobody; processes, because of fork; the size of a file, because of disks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

FILE_SIZE = 256 << 20
MORE_TASKS = 256  # processes and threads beyond those that the user runs already


def set_limits(memory: int) -> None:
    """Limit this process and its children to `memory` bytes of address space each (0: any), and their number.

    It also ends when the process that started it does, however that ends.
    """
    _end_with_parent()
    try:
        import resource
    except ImportError:  # Windows
        return
    wanted = [
        (resource.RLIMIT_AS, memory or resource.RLIM_INFINITY),
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_CORE, 0),
    ]
    if hasattr(resource, "RLIMIT_NPROC") and (running := _tasks_of_user()):
        wanted.append((resource.RLIMIT_NPROC, running + MORE_TASKS + 4 * (os.cpu_count() or 1)))
    for kind, limit in wanted:
        with contextlib.suppress(ValueError, OSError):  # a lower one is set already
            resource.setrlimit(kind, (limit, limit))


def _end_with_parent() -> None:
    """Linux: prctl(PR_SET_PDEATHSIG, SIGKILL)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def _tasks_of_user() -> int:
    """How many processes and threads this user runs; 0 where /proc does not tell."""
    count = 0
    with contextlib.suppress(OSError):
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if folder.stat().st_uid == os.getuid():
                    count += len(os.listdir(folder / "task"))
    return count
