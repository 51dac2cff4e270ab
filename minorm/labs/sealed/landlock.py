"""Limits which files a process may open, with Landlock. A process needs no rights for this, and root is limited, too.

A rule cannot have exceptions: a rule for a folder holds for everything below the folder. To hide one folder, the
folders above it may only be listed, and each of its neighbours gets a separate rule. Landlock does not limit stat,
chmod, utime, chdir, UDP and System V's memory. Before version 3 (Linux 6.2), it does not limit shortening a file.
seccomp forbids these calls.
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
    """Permanently limit the files that this process may open to those given here. NO_NEW_PRIVS must be set.

    reads   files and folders that may be read, with all that is in the folders; runs: those that may also be run
    lists   folders whose files may be listed but not read
    folder  the folder in which everything is allowed; None if there is no such folder
    known   the version of the interface to use; 0 for the kernel's version
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
