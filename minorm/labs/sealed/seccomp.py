"""Installs a seccomp filter, which the kernel runs before each system call and which cannot be removed.

The filter lists the allowed calls, because a list of forbidden calls would be out of date with the next kernel. If a
process cannot use fork, exec, sockets and signals, it has no hidden descendants. So nothing is left when the process
ends, and its memory limit limits everything.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping, Sequence

from minorm.labs.sealed import syscalls

ALLOW, KILL, ASK, REFUSE = 0x7FFF0000, 0x80000000, 0x7FC00000, 0x00050000  # REFUSE + errno; ASK: the judge is asked
_LOAD, _EQUAL, _ABOVE, _SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_THREAD = 0x10000  # CLONE_THREAD
# CLONE_PARENT and CLONE_NEW*: a child that is not this process's own, or that has rights in namespaces
_SEPARATE_CHILD = 0x00008000 | 0x7E020000
_SECCOMP = {"x86_64": 317, "aarch64": 277}  # the system call
_OPENED_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# These calls may have only some arguments: which argument, its values, the errno for all other values.
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
    "arch_prctl": (0, (0x1002,), errno.EINVAL),  # ARCH_SET_FS, where a program puts what belongs to its thread
}


def install(writes: bool, opens: bool = True, starts: bool = False) -> None:
    """Filter the system calls of this thread and of all that it starts. Raise OSError if the kernel has no seccomp.

    writes  whether the process may make and remove files and open them to write; mounts and Landlock decide which files
    opens   whether the process may open and look at any files
    starts  whether the process may start other programs, as compilers do; the filter holds for these programs, too
    """
    numbers = syscalls.numbers()
    if not numbers:
        raise OSError(errno.ENOSYS, "no table of system calls for this machine")
    if starts:
        numbers |= syscalls.starting()
    load(_program(numbers, writes, opens))


def load(instructions: Sequence[bytes], flags: int = 0) -> int:
    """Add a filter to the process; a system call is allowed only if all filters allow it.

    If `flags` ask for a descriptor, return this descriptor.
    """
    program = b"".join(instructions)
    buffer = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    header = Program(len(program) // 8, ctypes.addressof(buffer))
    library = ctypes.CDLL(None, use_errno=True)
    prctl, call = library.prctl, library.syscall
    prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
    call.argtypes = [ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_void_p]
    found = prctl(38, 1, None, 0, 0)  # NO_NEW_PRIVS
    if found == 0 and flags:  # SECCOMP_SET_MODE_FILTER
        found = int(call(_SECCOMP[platform.machine()], 1, flags, ctypes.addressof(header)))
    elif found == 0:  # PR_SET_SECCOMP, which the first filter leaves open for a second
        found = prctl(22, 2, ctypes.addressof(header), 0, 0)
    if found < 0:
        raise OSError(ctypes.get_errno(), "seccomp: " + os.strerror(ctypes.get_errno()))
    return found


def by_name(rules: Mapping[str, Sequence[bytes]], otherwise: bytes) -> list[bytes]:
    """Return a filter that treats each system call by the rule for its name, and other calls by `otherwise`.

    A call of another architecture ends the process.
    """
    here = syscalls.ARCHITECTURES[platform.machine()]
    lines = [_line(_LOAD, _ARCHITECTURE), _line(_EQUAL, here, 1, 0), returned(KILL), _line(_LOAD, _NUMBER)]
    if platform.machine() == "x86_64":  # the x32 calls, whose numbers begin here
        lines += [_line(_ABOVE, 0x40000000, 0, 1), returned(KILL)]
    for name, number in (syscalls.numbers() | syscalls.starting()).items():
        if rule := rules.get(name):
            lines += [_line(_EQUAL, number, 0, len(rule)), *rule]
    return [*lines, otherwise]


def _program(numbers: dict[str, int], writes: bool, opens: bool) -> list[bytes]:
    """Return the filter that allows these system calls, with a rule for each.

    If `execve` is one of them, the process may start programs.
    """
    starts = "execve" in numbers
    return by_name({name: _rule(name, writes, opens, starts) for name in numbers}, refused(errno.EPERM))


def _rule(name: str, writes: bool, opens: bool, starts: bool) -> list[bytes]:
    """Return the instructions that decide on the system call with this name."""
    allow = returned(ALLOW)
    if not opens and name in syscalls.OPENING | syscalls.LOOKING | syscalls.WRITING:
        return [refused(errno.EACCES)]
    if not writes and name in syscalls.WRITING:
        return [refused(errno.EROFS)]
    if name in syscalls.OPENING:
        flags = argument(1 if name == "open" else 2)
        if writes:
            return [flags, *_opens()]
        return [flags, *if_set(_OPENED_TO_WRITE, refused(errno.EROFS)), allow]
    if name == "clone3":  # its flags are in memory, where no filter can look; the C library then takes clone
        return [refused(errno.ENOSYS)]
    if name == "clone" and starts:
        return [argument(0), *if_set(_SEPARATE_CHILD, refused(errno.EPERM)), allow]
    if name == "clone":
        return [argument(0), *if_set(_THREAD, allow), refused(errno.EPERM)]
    if name == "tgkill":  # abort() and the like
        return _one_of(0, (os.getpid(),), errno.EPERM)
    if name == "prlimit64":
        return _one_of(0, (0, os.getpid()), errno.EPERM)
    if name in _VALUES:
        return _one_of(*_VALUES[name])
    return [allow]


def _opens() -> list[bytes]:
    """Return instructions that allow opening a file to read, to write, or both.

    Truncating is allowed only if the file is opened to write.

    Landlock checks the mode in which a file is opened. Before version 3, it treats O_RDONLY with O_TRUNC as reading,
    and does not check mode 3, which opens a file neither to read nor to write. Both modes empty the file.
    """
    return [
        _line(_SET, os.O_WRONLY, 0, 1),
        _line(_SET, os.O_RDWR, 2, 3),
        _line(_SET, os.O_RDWR, 2, 0),
        *if_set(os.O_TRUNC, refused(errno.EPERM)),
        returned(ALLOW),
    ]


def _one_of(place: int, values: tuple[int, ...], otherwise: int) -> list[bytes]:
    """Return instructions that allow a call if the argument at `place` is one of `values`.

    Otherwise, the call is refused with the errno `otherwise`.
    """
    return [argument(place), *if_any_of(values, returned(ALLOW)), refused(otherwise)]


def if_any_of(values: Sequence[int], then: bytes) -> list[bytes]:
    """Return instructions that run `then` if the loaded value is one of `values`."""
    last = len(values) - 1
    return [*(_line(_EQUAL, value, last - i, i == last) for i, value in enumerate(values)), then]


def if_set(bits: int, then: bytes) -> list[bytes]:
    """Return instructions that run `then` if the loaded value has at least one of these bits."""
    return [_line(_SET, bits, 0, 1), then]


def argument(place: int) -> bytes:
    """Return an instruction that loads the lower 32 bits of an argument.

    The arguments that the filter checks have no more bits.
    """
    return _line(_LOAD, _ARGUMENTS + 8 * place)


def refused(number: int) -> bytes:
    """Return an instruction that ends the filter and refuses the call with the errno `number`."""
    return returned(REFUSE | number)


def returned(value: int) -> bytes:
    """Return an instruction that ends the filter with the verdict `value` on the call."""
    return _line(_RETURN, value)


def _line(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """Return one instruction, a struct sock_filter.

    It skips the next `yes` instructions if its comparison is true, and otherwise the next `no`.
    """
    return struct.pack("=HBBI", code, yes, no, value)
