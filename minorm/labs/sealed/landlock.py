"""Limits which files a process may open, with Landlock. It needs no rights, and holds for root as well.

A rule cannot have exceptions: a rule for a folder holds for everything below. To hide one folder, the folders above it
may only be listed, and each of its neighbours gets a separate rule. Landlock does not limit stat, chmod, utime, chdir,
UDP and System V's memory, and before version 3 (Linux 6.2) it does not limit shortening a file: seccomp closes those.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on all machines
_READ_FILE, _READ_DIR, _EXECUTE = 1 << 2, 1 << 3, 1 << 0
_OF_A_FILE = _EXECUTE | 1 << 1 | _READ_FILE | 1 << 14 | 1 << 15  # rights that a file has; a folder has more


def version() -> int:
    """Return the kernel's version of the Landlock interface, from 1; 0 if the kernel has no Landlock."""
    try:
        found = _call(_CREATE, 0, 0, 1)
    except OSError:
        return 0
    return found


def restrict(
    reads: Iterable[str], lists: Iterable[str], folder: str | None, runs: Iterable[str] = (), known: int = 0
) -> None:
    """Forbid all files but these, for good; NO_NEW_PRIVS must be set.

    reads   files and folders, with all in them, to read; runs: the same to run as well
    lists   folders whose names may be listed, without reading what is in them
    folder  where everything is allowed
    known   the version of the interface to use; 0 is the kernel's
    """
    known = known or version()
    every = (1 << (13, 14, 15, 15)[min(known, 4) - 1]) - 1 | (1 << 15 if known >= 5 else 0)
    network, scope = (3 if known >= 4 else 0), (3 if known >= 6 else 0)  # TCP; abstract sockets and signals
    attributes = struct.pack("=QQQ", every, network, scope)[: 24 if known >= 6 else 16 if known >= 4 else 8]
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    ruleset = _call(_CREATE, ctypes.addressof(buffer), len(attributes), 0)
    for path in reads:
        _allow(ruleset, path, _READ_FILE | _READ_DIR)
    for path in runs:
        _allow(ruleset, path, _READ_FILE | _READ_DIR | _EXECUTE)
    for path in lists:
        _allow(ruleset, path, _READ_DIR)
    if folder is not None:
        _allow(ruleset, folder, every)
    _call(_RESTRICT, ruleset, 0, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Add a rule for a path, if the path exists."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):
        rights &= _OF_A_FILE
    if rights:
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor), 12)
        _call(_ADD, ruleset, 1, ctypes.addressof(rule), 0)
    os.close(descriptor)


def _call(number: int, *arguments: int) -> int:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    found = int(call(ctypes.c_long(number), *map(ctypes.c_ulong, arguments)))
    if found < 0:
        raise OSError(ctypes.get_errno(), "Landlock: " + os.strerror(ctypes.get_errno()))
    return found
