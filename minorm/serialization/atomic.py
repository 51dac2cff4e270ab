"""Replaces a file in one step: whatever happens while it is written, the path holds either the old or the new file.

The bytes are written to a file without a name. Once they are on the disk (fsync), the file gets a temporary name,
`.NAME.<random>.tmp`. `os.replace` renames it in one step, and an fsync of the folder makes sure that a power cut cannot
undo the step. If the process is killed, the system removes a file that has no name yet. On a system without O_TMPFILE,
the file has the temporary name from the start.

So a process that is killed just before the renaming, or on a system without O_TMPFILE, can leave a file with a
temporary name. The process holds a lock on this file (flock), and the lock ends with the process. The next process that
writes NAME removes all temporary files for NAME that are not locked.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from minorm.serialization.opening import FilePath, in_words, kind
from minorm.support.safe_names import quoted

LOCKS = sys.platform not in ("win32", "emscripten")  # elsewhere the files of a killed process stay
if LOCKS:
    import fcntl

_WRITE = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_BY_DESCRIPTOR = "/proc/self/fd"  # the path to a file without a name


@contextmanager
def replacing(path: FilePath, operation: str = "save") -> Iterator[BinaryIO]:
    """Yield a binary file to write; the file replaces `path` when the block ends without an error.

    On an error (a full disk, Ctrl-C) the old file stays unchanged, and the new file is removed. The new file's mode
    follows the umask. If `path` is a symbolic link, the file to which the link points is replaced. If two processes
    write the same name at the same time, one of the two files remains, and this file is complete.

    Every OSError names the file. If the block raises an OSError about another file, the error is not changed.
    """
    target = destination(path, operation)
    folder, name = os.path.split(target)
    with _errors_in_words(os.fsdecode(path), operation, folder, name):
        _sweep(folder, name)
        descriptor, temporary = _unnamed(folder) or _named(folder, name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if not temporary:
                    temporary = _give_name(file.fileno(), folder, name)
                if sys.platform == "win32":
                    file.close()  # Windows cannot rename an open file
                os.replace(temporary, target)  # before closing the file, which ends the lock
        except BaseException:
            if temporary:
                with suppress(OSError):
                    os.unlink(temporary)
            raise
        _sync_folder(folder)


@contextmanager
def passing(path: FilePath, operation: str) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the path of a new temporary file in the folder of `path`, and this file, open for writing.

    The temporary file is removed after the block.
    """
    folder, name = os.path.split(destination(path, operation))
    with _errors_in_words(os.fsdecode(path), operation, folder, name):
        descriptor, temporary = _named(folder, name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield temporary, file
        finally:
            with suppress(OSError):
                os.unlink(temporary)


def destination(path: FilePath, operation: str = "save") -> str:
    """Return the path of the file that `replacing` writes, without links. Raise OSError if no file can be there.

    The error is raised before anything is written. A name that ends in "/" means a folder, even if a file with this
    name exists.
    """
    given = os.fsdecode(path)
    folder, name = os.path.split(given)
    if name in ("", os.curdir, os.pardir):
        raise IsADirectoryError(f"{operation}: {quoted(given)} names a folder; expected a file name")
    try:
        mode = os.stat(given).st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = stat.S_IFREG  # a new file, or the missing target of a link
    except OSError as error:
        raise in_words(error, f"{operation}: cannot write {quoted(given)}: {error.strerror}") from error
    target = os.path.realpath(given)
    for place in (folder or os.curdir, os.path.dirname(target)):
        if not os.path.isdir(place):
            raise FileNotFoundError(f"{operation}: the folder {quoted(place)} does not exist; create it first")
    if not stat.S_ISREG(mode):
        raise OSError(f"{operation}: {quoted(given)} is {kind(mode)}; expected a file name")
    return target


@contextmanager
def making_folder(path: FilePath, operation: str) -> Iterator[None]:
    """Run `make_folder`; after the block, even after an error, remove the new folders that are still empty."""
    made = make_folder(path, operation)
    try:
        yield
    finally:
        remove_empty(made)


def make_folder(path: FilePath, operation: str) -> list[str]:
    """Make the folder and its missing parents; return the new folders, the outermost first.

    If this fails, remove the new folders, and raise an OSError with a text that says what is wrong.
    """
    given = os.fsdecode(path)
    made: list[str] = []
    try:
        for place in _missing(given):
            with suppress(FileExistsError):  # another process has made it meanwhile
                os.mkdir(place)
                made.append(place)
        if not os.path.isdir(given):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    except OSError as error:
        remove_empty(made)
        said = f"cannot make the folder {quoted(given)}: {error.strerror}"
        if isinstance(error, FileExistsError):
            said = f"{quoted(given)} is a file; expected a folder, or a new name for one"
        raise in_words(error, f"{operation}: {said}") from error
    return made


def remove_empty(folders: Sequence[str]) -> None:
    """Remove these folders, the last folder first, but keep folders that are not empty."""
    for folder in reversed(folders):
        with suppress(OSError):
            os.rmdir(folder)


def _missing(path: str) -> list[str]:
    """Return the folders of the path that do not exist, including the path itself, the outermost first."""
    found: list[str] = []
    while path and not os.path.lexists(path):
        found.insert(0, path)
        path = os.path.dirname(path.rstrip(os.sep))
    return found


# Files without a name, and files with a temporary name


def _unnamed(folder: str) -> tuple[int, str] | None:
    """Return (descriptor, "") of a new, locked file without a name; None if the system has no files without names."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir(_BY_DESCRIPTOR):
        return None
    try:
        descriptor = os.open(folder, _WRITE | os.O_TMPFILE, 0o666)  # minus the umask, as for any new file
    except OSError:  # if so, the attempt with a name raises the same error
        return None
    _lock(descriptor)
    return descriptor, ""


def _named(folder: str, name: str) -> tuple[int, str]:
    """Return (descriptor, path) of a new, locked file with a temporary name."""
    while True:
        path = _temporary(folder, name)
        descriptor = os.open(path, _WRITE | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(BlockingIOError):  # another process is removing it
            _lock(descriptor)
            if os.fstat(descriptor).st_nlink:
                return descriptor, path
        os.close(descriptor)


def _give_name(descriptor: int, folder: str, name: str) -> str:
    """Give the file a temporary name, and return its path."""
    temporary = _temporary(folder, name)
    source = f"{_BY_DESCRIPTOR}/{descriptor}"
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # Python follows the link in /proc to the file only if it also gets a directory
        os.link(source, os.path.basename(temporary), dst_dir_fd=directory)
    except OSError:  # a file system that cannot name such files
        return _copied(descriptor, source, folder, name)
    finally:
        os.close(directory)
    return temporary


def _copied(descriptor: int, source: str, folder: str, name: str) -> str:
    """Copy the file to a file with a temporary name, and return the path of the copy.

    After the call, `descriptor` refers to the copy.
    """
    copy, temporary = _named(folder, name)
    try:
        with open(source, "rb") as old, open(copy, "wb", closefd=False) as new:
            shutil.copyfileobj(old, new)
        os.fsync(copy)
        os.dup2(copy, descriptor, inheritable=False)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(copy)
    return temporary


def _temporary(folder: str, name: str) -> str:
    return os.path.join(folder, f".{name[:40]}.{os.urandom(6).hex()}.tmp")


def _lock(descriptor: int) -> bool:
    """Lock a file until it is closed; return False if the system has no locks. A locked file raises BlockingIOError."""
    if not LOCKS:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _sweep(folder: str, name: str) -> None:
    """Remove the temporary files for `name` that no running process has locked; ignore errors."""
    pattern = re.compile(re.escape(f".{name[:40]}.") + "[0-9a-f]{12}\\.tmp")
    with suppress(OSError):
        for found in filter(pattern.fullmatch, os.listdir(folder)):
            path = os.path.join(folder, found)
            with suppress(OSError):
                descriptor = os.open(path, _WRITE | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
                try:
                    if stat.S_ISREG(os.fstat(descriptor).st_mode) and _lock(descriptor):
                        os.unlink(path)
                finally:
                    os.close(descriptor)


@contextmanager
def _errors_in_words(given: str, operation: str, folder: str, name: str) -> Iterator[None]:
    """Put the file's name into an OSError of the system, unless the error is about another file of the block."""
    try:
        yield
    except OSError as error:
        place = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else folder
        ours = place == folder or place.startswith(os.path.join(folder, f".{name[:40]}."))
        if error.strerror is None or not (ours or place == os.path.join(folder, name)):
            raise
        raise in_words(error, f"{operation}: cannot write {quoted(given)}: {error.strerror}") from error


def _sync_folder(folder: str) -> None:
    """Call fsync on the folder, if the system supports this, so that the new name is on the disk too."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except PermissionError:  # a folder that one may write but not list (and Windows, which cannot open folders)
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)
