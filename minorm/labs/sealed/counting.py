"""Limits how much a process may write to a folder on the machine's disk: each write is counted before it happens.

It is not enough to look at the folder: a file that was unlinked while it was open or mapped still takes disk space, but
has no name. So the kernel asks the judge about each call that writes bytes or makes a file (seccomp's user
notification), and the judge counts bytes and files. Removed files stay counted, because a process that removes a name
may still hold the file.

The judge looks only at the numbers in a call, because another thread could change the memory that they point to. So
`writev`, whose sizes are in memory, is refused. Shared mappings are refused, too, because with them a process can fill
the holes of a file without any call. Bytes that the process sends through the line or prints are not counted, because
the judge reads them at once. The descriptors for these bytes cannot be exchanged for a file's descriptor. A process
that runs a compiler exchanges and closes descriptors. So in such a process everything is counted except bytes sent
through the line, whose descriptor has a number that no file can get. All processes together have one share.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
import struct
import threading
from collections.abc import Sequence
from typing import NamedTuple

from minorm.labs.sealed import seccomp, syscalls

SIZE = 64 << 20  # bytes in the process's own folder
FILES = 1000  # the judge would need long to remove more
BLOCK = 4096  # bytes of the smallest piece of a disk
_LISTENER = 8  # SECCOMP_FILTER_FLAG_NEW_LISTENER
_GO_ON = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_QUESTION, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_RECEIVE, _SEND = (3 << 30 | form.size << 16 | ord("!") << 8 | i for i, form in enumerate((_QUESTION, _ANSWER)))
_MAKES = os.O_CREAT | (getattr(os, "O_TMPFILE", 0) & ~getattr(os, "O_DIRECTORY", 0))


class Share(NamedTuple):
    """How much a process may write: bytes, and new files and folders."""

    size: int = SIZE
    files: int = FILES


def begin(line: int, starts: bool = False) -> None:
    """Let the kernel ask the judge about each write of this process from now on.

    The judge receives a descriptor for the kernel's questions over the line.

    starts  True if the process starts other programs, whose writes count as well
    """
    import _socket  # `socket` would bring more modules than these walls need

    program = _program_for_all(line) if starts else _program((1, 2, line), line)
    listener = seccomp.load(program, _LISTENER)
    own = _socket.socket(-1, -1, -1, line)
    own.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", listener))])
    own.detach()
    os.close(listener)


def _program(to_judge: Sequence[int], line: int) -> list[bytes]:
    """Return the filter of a process that starts no other programs.

    It allows calls without a rule here, because another filter already decides on them.
    """
    ask, allow = seccomp.returned(seccomp.ASK), seccomp.returned(seccomp.ALLOW)
    refuse, end = seccomp.refused(errno.EPERM), seccomp.returned(seccomp.KILL)
    ours = seccomp.if_any_of
    kept = [seccomp.argument(0), *ours((line,), end), *ours(to_judge, refuse), allow]
    over = [seccomp.argument(1), *ours(to_judge, refuse), allow]
    rules = {
        "write": [seccomp.argument(0), *ours(to_judge, allow), ask],
        "writev": [seccomp.argument(0), *ours(to_judge, allow), refuse],
        "close": kept,
        "dup2": over,
        "dup3": over,
    }
    return seccomp.by_name({**_rules(), **rules}, allow)


def _program_for_all(line: int) -> list[bytes]:
    """Return the filter of a process that starts other programs.

    Only writes to the line's descriptor are not counted.
    """
    ask, allow = seccomp.returned(seccomp.ASK), seccomp.returned(seccomp.ALLOW)
    rules = {
        "write": [seccomp.argument(0), *seccomp.if_any_of((line,), allow), ask],
        "writev": [seccomp.refused(errno.EPERM)],
    }
    return seccomp.by_name({**_rules(), **rules}, allow)


def _rules() -> dict[str, list[bytes]]:
    """Return the rules for calls that make files or folders, or that fill files without `write`.

    Both filters use these rules.
    """
    ask, allow = seccomp.returned(seccomp.ASK), seccomp.returned(seccomp.ALLOW)
    opened = [*seccomp.if_set(_MAKES, ask), allow]
    return {
        "pwrite64": [ask],
        "mkdir": [ask],
        "mkdirat": [ask],
        "open": [seccomp.argument(1), *opened],
        "openat": [seccomp.argument(2), *opened],
        "mmap": [
            seccomp.argument(3),
            *seccomp.if_set(mmap.MAP_ANONYMOUS, allow),
            *seccomp.if_set(mmap.MAP_SHARED, seccomp.refused(errno.EACCES)),
            allow,
        ],
    }


class Count:
    """Counts what one process writes, and how much of its share is left."""

    def __init__(self, share: Share) -> None:
        self._left, self._files = share.size, share.files
        self._writing = {syscalls.numbers()[name] for name in ("write", "pwrite64")}

    def allows(self, number: int, arguments: Sequence[int]) -> bool:
        """Return whether the bytes or the file of this call still fit into the share. If they fit, they are counted."""
        writes = number in self._writing
        # a write may begin within a block, or not fill it
        size = (arguments[2] // BLOCK + 2) * BLOCK if writes else BLOCK
        if size > self._left or (not writes and not self._files):
            return False
        self._left -= size
        self._files -= not writes
        return True


def serve(listener: int, share: Share, ending: threading.Event) -> None:
    """Answer the kernel's questions until the process is gone, then close the descriptor.

    This function runs in a thread of the judge.
    """
    count = Count(share)
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    library = ctypes.CDLL(None, use_errno=True)
    question, answer = ctypes.create_string_buffer(_QUESTION.size), ctypes.create_string_buffer(_ANSWER.size)
    try:
        while not ending.is_set():
            events = waiting.poll(200)
            if not events:
                continue
            if not events[0][1] & select.POLLIN:  # the process is gone
                return
            ctypes.memset(question, 0, _QUESTION.size)
            if library.ioctl(listener, ctypes.c_ulong(_RECEIVE), question) < 0:  # it was killed while it asked
                continue
            one, _, _, number, _, _, *arguments = _QUESTION.unpack(question.raw)
            goes_on = count.allows(number, arguments)
            answer.raw = _ANSWER.pack(one, 0, 0 if goes_on else -errno.ENOSPC, _GO_ON if goes_on else 0)
            library.ioctl(listener, ctypes.c_ulong(_SEND), answer)
    finally:
        os.close(listener)
