"""seccomp: a filter that the kernel runs before each system call, and that nothing can take off again.

It is a list of what is allowed. A list of what is forbidden is out of date with the next kernel. The simplest sure end
of a process is that nothing can start: without fork, exec, sockets and signals it has no descendants that hide, and
the limit of its own memory is the limit of all.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from minorm.labs.sealed import syscalls

ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000  # REFUSE + errno
_LOAD, _EQUAL, _ABOVE, _SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_THREAD = 0x10000  # CLONE_THREAD
_OPENED_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Of these calls only some arguments are allowed: which one, the values, the errno for all others.
_VALUES: dict[str, tuple[int, tuple[int, ...], int]] = {
    # is it a terminal, how much is there to read; TIOCSTI would type into the teacher's terminal
    "ioctl": (1, (0x5401, 0x5413, 0x541B), errno.ENOTTY),
    # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC; locks would be a memory between two processes
    "fcntl": (1, (0, 1, 2, 3, 4, 1030), errno.EPERM),
    # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA; PR_SET_SECCOMP and NO_NEW_PRIVS, for a second filter, which forbids more;
    # not PR_SET_PDEATHSIG, with which it would outlive the judge
    "prctl": (0, (15, 16, 0x53564D41, 22, 38), errno.EPERM),
    # MADV_DONTNEED, MADV_FREE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, which allocators use; others ask about the page cache
    "madvise": (2, (4, 8, 14, 15), errno.EPERM),
    "sched_setaffinity": (0, (0,), errno.EPERM),
}


def install(writes: bool, opens: bool = True) -> None:
    """Filter this thread and all that it starts. OSError where the kernel has no seccomp.

    writes  whether files may be opened to write, made and removed; which ones, mounts and Landlock say
    opens   whether files may be opened and looked at at all
    """
    numbers = syscalls.numbers()
    if not numbers:
        raise OSError(errno.ENOSYS, "no table of system calls for this machine")
    program = b"".join(_program(numbers, writes, opens))
    buffer = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    header = Program(len(program) // 8, ctypes.addressof(buffer))
    library = ctypes.CDLL(None, use_errno=True)
    prctl = library.prctl
    prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
    if prctl(38, 1, None, 0, 0) or prctl(22, 2, ctypes.addressof(header), 0, 0):  # NO_NEW_PRIVS, SECCOMP
        raise OSError(ctypes.get_errno(), "seccomp: " + os.strerror(ctypes.get_errno()))


def _program(numbers: dict[str, int], writes: bool, opens: bool) -> list[bytes]:
    """The filter as instructions. A foreign architecture's calls have other numbers, so they end the process."""
    here = syscalls.ARCHITECTURES[platform.machine()]
    lines = [_line(_LOAD, _ARCHITECTURE), _line(_EQUAL, here, 1, 0), _line(_RETURN, KILL), _line(_LOAD, _NUMBER)]
    if platform.machine() == "x86_64":  # the x32 calls, whose numbers begin here
        lines += [_line(_ABOVE, 0x40000000, 0, 1), _line(_RETURN, KILL)]
    for name, number in numbers.items():
        rule = _rule(name, writes, opens)
        lines += [_line(_EQUAL, number, 0, len(rule)), *rule]
    return [*lines, _refused(errno.EPERM)]


def _rule(name: str, writes: bool, opens: bool) -> list[bytes]:
    """What to do with a call of this name."""
    if not opens and name in syscalls.OPENING | syscalls.LOOKING | syscalls.WRITING:
        return [_refused(errno.EACCES)]
    if not writes and name in syscalls.WRITING:
        return [_refused(errno.EROFS)]
    if not writes and name in syscalls.OPENING:
        flags = 1 if name == "open" else 2
        return [_argument(flags), _line(_SET, _OPENED_TO_WRITE, 0, 1), _refused(errno.EROFS), _line(_RETURN, ALLOW)]
    if name == "clone3":  # its flags are in memory, where no filter can look; the C library then takes clone
        return [_refused(errno.ENOSYS)]
    if name == "clone":
        return [_argument(0), _line(_SET, _THREAD, 1, 0), _refused(errno.EPERM), _line(_RETURN, ALLOW)]
    if name == "tgkill":  # abort() and the like
        return _one_of(0, (os.getpid(),), errno.EPERM)
    if name == "prlimit64":
        return _one_of(0, (0, os.getpid()), errno.EPERM)
    if name in _VALUES:
        return _one_of(*_VALUES[name])
    return [_line(_RETURN, ALLOW)]


def _one_of(place: int, values: tuple[int, ...], otherwise: int) -> list[bytes]:
    """Allow the call if this argument is one of the values."""
    tests = [_line(_EQUAL, value, len(values) - i, 0) for i, value in enumerate(values)]
    return [_argument(place), *tests, _refused(otherwise), _line(_RETURN, ALLOW)]


def _argument(place: int) -> bytes:
    """Load the lower half of an argument: all of it, for those that are looked at."""
    return _line(_LOAD, _ARGUMENTS + 8 * place)


def _refused(number: int) -> bytes:
    return _line(_RETURN, REFUSE | number)


def _line(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """One instruction, struct sock_filter: jump over `yes` or `no` others."""
    return struct.pack("=HBBI", code, yes, no, value)
