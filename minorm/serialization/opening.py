"""Opening a file to read: a regular one, at once, or an error in words that names it.

A pipe would be waited for and a device read without end, so what is no regular file is refused before it is opened,
for opening alone means something to a pipe or a tape. It is looked at once more when it is open: whoever swaps the
name meanwhile gains nothing.
"""

from __future__ import annotations

import os
import stat
from io import BufferedReader

from minorm.support.masking import quoted

FilePath = str | os.PathLike[str]

_KINDS = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
}


class Irregular(OSError):
    """There is something at the path, and it is no regular file: a folder, a pipe, a device, a socket."""


def regular(path: FilePath, operation: str, follow: bool = True) -> BufferedReader:
    """The regular file at `path`, open for reading.

    operation  who asks; the errors begin with it
    follow     whether the path may be a symbolic link

    FileNotFoundError, PermissionError and Irregular (an OSError) say in words what is wrong; `errno` is kept.
    """
    descriptor, _ = _opened(path, operation, follow)
    return open(descriptor, "rb")


def contents(path: FilePath, operation: str) -> bytes:
    """All bytes of the regular file at `path`, with as few calls to the system as it takes; errors as `regular`."""
    descriptor, size = _opened(path, operation)
    try:
        whole = os.read(descriptor, size + 1)
        while len(whole) != size and (more := os.read(descriptor, size + 1)):  # it came in parts, or has grown
            whole += more
    except OSError as error:
        raise in_words(error, f"{operation}: cannot read {quoted(os.fsdecode(path))}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return whole


def _opened(path: FilePath, operation: str, follow: bool = True) -> tuple[int, int]:
    """The descriptor of the regular file at `path`, and its size."""
    name = os.fsdecode(path)
    wanted = os.O_RDONLY | _flags("O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOCTTY")
    try:
        _check(os.stat(path, follow_symlinks=follow), name, operation)
        descriptor = os.open(path, wanted if follow else wanted | _flags("O_NOFOLLOW"))
    except Irregular:
        raise
    except FileNotFoundError as error:
        raise in_words(error, f"{operation}: there is no file {quoted(name)}") from error
    except OSError as error:
        raise in_words(error, f"{operation}: cannot read {quoted(name)}: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        _check(status, name, operation)
        return descriptor, status.st_size
    except BaseException:
        os.close(descriptor)
        raise


def exists(path: FilePath, operation: str) -> bool:
    """Whether there is anything at `path`; OSError in words where nobody may look."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise in_words(error, f"{operation}: cannot read {quoted(os.fsdecode(path))}: {error.strerror}") from error
    return True


def _check(status: os.stat_result, name: str, operation: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Irregular(f"{operation}: {quoted(name)} is {kind(status.st_mode)}; expected a regular file")


def kind(mode: int) -> str:
    """What a path with this `st_mode` is, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "no regular file")


def _flags(*names: str) -> int:
    """Those of the names that this system has."""
    return sum(getattr(os, name, 0) for name in names)


def in_words(error: OSError, text: str) -> OSError:
    """An error of the same errno, and of the class that Python gives that errno, which says `text`."""
    new = type(OSError(error.errno, ""))(text)
    new.errno = error.errno
    return new
