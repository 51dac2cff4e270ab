"""Opens a regular file for reading and never waits, or raises an error that names the file and says what is wrong.

Reading a pipe could wait for ever, and a device may have no end. So we check that the path is a regular file. We check
this before we open it, because opening alone already affects a pipe or a tape. We check the open file again, so an
attacker gains nothing by replacing the file in between.
"""

from __future__ import annotations

import os
import stat
from io import BufferedReader

from minorm.support.safe_names import quoted

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
    """The path exists, but is not a regular file: it is a folder, a pipe, a device or a socket."""


def regular(path: FilePath, operation: str, follow: bool = True) -> BufferedReader:
    """Open the regular file at `path` for reading.

    operation  the name of the caller; error messages begin with it
    follow     True if the path may be a symbolic link

    Raises FileNotFoundError, PermissionError or Irregular (an OSError). The message says what is wrong, and `errno` is
    kept.
    """
    descriptor, _ = _opened(path, operation, follow)
    return open(descriptor, "rb")


def contents(path: FilePath, operation: str) -> bytes:
    """Return all bytes of the regular file at `path`, with few system calls; raise the same errors as `regular`."""
    descriptor, size = _opened(path, operation)
    try:
        whole = os.read(descriptor, size + 1)
        while len(whole) != size and (more := os.read(descriptor, size + 1)):  # partly read, or grown
            whole += more
    except OSError as error:
        raise in_words(error, f"{operation}: cannot read {quoted(os.fsdecode(path))}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return whole


def _opened(path: FilePath, operation: str, follow: bool = True) -> tuple[int, int]:
    """Open the regular file at `path`; return its descriptor and size."""
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
    """Return True if `path` exists; raise an OSError if the user may not look there."""
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
    """Return words for the kind of file that has this `st_mode`, such as "a folder"."""
    return _KINDS.get(stat.S_IFMT(mode), "no regular file")


def _flags(*names: str) -> int:
    """Combine the flags with these names; leave out flags that this system lacks."""
    return sum(getattr(os, name, 0) for name in names)


def in_words(error: OSError, text: str) -> OSError:
    """Return an error with this text and the same errno, of the class that Python uses for that errno."""
    new = type(OSError(error.errno, ""))(text)
    new.errno = error.errno
    return new
