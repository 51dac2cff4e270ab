"""Limits a process's memory, files and threads, changes its user, and lets it end with its parent.

Memory is limited because a machine that swaps cannot grade. File sizes are limited because of the disk, and threads are
limited for both reasons.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys

FILE_SIZE = 64 << 20
OPEN_FILES = 256
PROGRAM_SECONDS = 3600  # of a processor: so a program ends even if it outlives a killed judge
MORE_THREADS = 256  # beyond what the user runs already
_PDEATHSIG, _SET_DUMPABLE, _NO_NEW_PRIVS = 1, 4, 38


def set_limits(memory: int, file_size: int = FILE_SIZE, files: int = OPEN_FILES, seconds: int = 0) -> None:
    """Limit this process permanently: to `memory` bytes of address space (0: no limit), small files, few threads.

    seconds  the processor time of this process, and of each program that the process starts; 0 means no limit
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    wanted = [
        (resource.RLIMIT_AS, memory or resource.RLIM_INFINITY),
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_CORE, 0),
    ]
    if seconds:
        wanted.append((resource.RLIMIT_CPU, seconds))
    if hasattr(resource, "RLIMIT_NPROC") and (running := _tasks_of_user()):
        wanted.append((resource.RLIMIT_NPROC, running + MORE_THREADS))
    for kind, limit in wanted:
        with contextlib.suppress(ValueError, OSError):  # a lower one is set already
            resource.setrlimit(kind, (limit, limit))


def become(user: int) -> None:
    """Become another user and group without rights, permanently."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def drop_rights() -> None:
    """Drop all capabilities permanently. Not even a set-user-id program can give this process rights afterwards."""
    if sys.platform == "linux":
        header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0), 8)
        library = ctypes.CDLL(None, use_errno=True)
        library.capset(header, ctypes.create_string_buffer(24))
        library.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)


def end_with(parent: int) -> None:
    """End this process when its parent ends. A later change of the user would cancel this."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.name == "posix" and os.getppid() != parent:  # the parent ended first
        os._exit(1)


def hide() -> None:
    """Hide this process's memory, descriptors and environment from other processes of this user."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def _tasks_of_user() -> int:
    """Count the processes and threads that this user runs; return 0 if /proc cannot be read."""
    count = 0
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count
