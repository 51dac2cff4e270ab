"""Gives a process namespaces: a file system with only the files that it may read, no network, no shared memory.

Other files do not exist in this file system: the process cannot even find out their names.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from minorm.labs.sealed import counting

_NEW_MOUNTS, _NEW_USER, _NEW_IPC, _NEW_NETWORK = 0x00020000, 0x10000000, 0x08000000, 0x40000000
_BIND, _RECURSIVE, _PRIVATE = 1 << 12, 1 << 14, 1 << 18
_NO_SET_UID, _NO_DEVICES = 2, 4
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_READ_ONLY, _WHOLE_TREE, _HERE = 1, 0x8000, -100


def enter(
    reads: Iterable[str],
    hidden: Iterable[str],
    folder: str,
    writes: bool,
    size: int = counting.SIZE,
    files: int = counting.FILES,
) -> None:
    """Replace the file system by a new root in which everything has its usual path; raise OSError if this fails.

    reads   the paths that the new root has, for reading only
    hidden  paths below `reads` to leave out
    folder  an empty folder to build the root in; the new root has the process's own folder at this path
    writes  whether the process may write to this folder
    size    how many bytes this folder may hold
    files   how many files and folders it may hold, as each takes memory that no other limit counts

    If this fails half-way, the process must not go on.
    """
    os.umask(0o022)  # the folders of the new root are for the process's user too
    ids = os.getuid(), os.getgid()
    kinds = _NEW_MOUNTS | _NEW_IPC | _NEW_NETWORK
    if ids[0] != 0:
        _unshare(_NEW_USER)  # in which this user may mount
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{ids[0]} {ids[0]} 1")
        _write("/proc/self/gid_map", f"{ids[1]} {ids[1]} 1")
    _unshare(kinds)
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    _mount("tmpfs", folder, "tmpfs", _NO_SET_UID | _NO_DEVICES, "mode=755,size=1m")
    empty = folder + "/.empty"
    os.close(os.open(empty, os.O_CREAT | os.O_WRONLY, 0o644))
    for path in sorted(set(reads), key=len):
        if os.path.exists(path) and not os.path.lexists(folder + path):
            _place(path, folder + path)
            _mount(path, folder + path, None, _BIND | _RECURSIVE)
    for path in hidden:
        if os.path.isdir(folder + path):
            _mount("tmpfs", folder + path, "tmpfs", _NO_SET_UID | _NO_DEVICES, "mode=755,size=4k")
        elif os.path.exists(folder + path):
            _mount(empty, folder + path, None, _BIND)
    os.makedirs(folder + folder, exist_ok=True)
    _read_only(folder)
    if writes:
        most = f"mode=777,size={size},nr_inodes={files + 1}"
        _mount("tmpfs", folder + folder, "tmpfs", _NO_SET_UID | _NO_DEVICES, most)
    os.chdir(folder)
    _system_call(_PIVOT_ROOT[os.uname().machine], b".", b".")
    _detach(b".")
    os.chdir(folder)


def _place(path: str, target: str) -> None:
    """Make a folder or an empty file to mount on."""
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def _read_only(folder: str) -> None:
    """Make all mounts below read-only at once, with mount_setattr."""
    attributes = ctypes.create_string_buffer(struct.pack("=QQQQ", _READ_ONLY, 0, 0, 0), 32)
    _system_call(_MOUNT_SETATTR, _HERE, os.fsencode(folder), _WHOLE_TREE, ctypes.addressof(attributes), 32)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def _unshare(kinds: int) -> None:
    _checked(_library().unshare(kinds), "unshare")


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    done = _library().mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _checked(done, f"mount {target}")


def _detach(path: bytes) -> None:
    _checked(_library().umount2(path, _DETACH), "umount2")


def _system_call(number: int, *arguments: int | bytes) -> None:
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    _checked(_library().syscall(ctypes.c_long(number), *wide), f"system call {number}")


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
