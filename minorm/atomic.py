"""A file is either the old one or the new one, never half of each: whatever happens while it is written.

The bytes go to a temporary file in the same folder; once they are on the disk (fsync), `os.replace` puts them
under the real name in one step, and an fsync of the folder makes that step last through a power cut.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

FilePath = str | os.PathLike[str]


@contextmanager
def replacing(path: FilePath, operation: str = "save") -> Iterator[BinaryIO]:
    """Yields a binary file to write; it takes the place of `path` when the block ends without an error.

    On an error (a full disk, Ctrl-C) the temporary file is removed and the old file stays as it was. Only a process
    killed outright leaves its temporary file, `.NAME.<random>.tmp`, behind: it is never read and may be deleted.
    The new file has the mode that the umask asks for. A symbolic link stays a link: the file it points at is replaced.
    """
    target = os.path.realpath(os.fsdecode(path))
    folder, name = os.path.split(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{operation}: the folder {folder!r} does not exist; create it first")
    if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
        raise OSError(f"{operation}: {os.fsdecode(path)!r} is a folder or a device; expected a file name")

    temporary = os.path.join(folder, f".{name[:40]}.{os.urandom(6).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)  # less the umask, as for any new file; tempfile's would be 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """fsync of a folder, where the system can do that: the new name is then on the disk too."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except PermissionError:  # a folder one may write but not list (and Windows, where folders cannot be opened)
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)
