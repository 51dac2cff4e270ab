"""The folder of a run: its files, the lock of the process that writes them, and a copy of the model's own file.

    DIR/checkpoint.safetensors   the last finished epoch
    DIR/best.safetensors         the model of the best epoch
    DIR/FILE.py                  a copy of the user's file that builds the model, as it was when the run began
    DIR/FILE.onnx                a copy of the ONNX file whose graph is the model
    DIR/.lock                    exists while a process trains there

The lock (flock) ends when its process ends, even if the process is killed, so a lock file that is left behind locks
nothing. A forked child would keep the lock too, so the child closes the lock file first. On systems without flock, such
as Windows, and on disks without locks, two runs can write to one folder. Only rank 0 writes files.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from minorm.distributed import Group, RankError
from minorm.serialization import atomic, opening
from minorm.support.safe_names import quoted
from minorm.training.files.log_file import LOG
from minorm.training.model.onnx_graph import Graph
from minorm.training.model.own_code import Code

if atomic.LOCKS:
    import fcntl
    import pwd

CHECKPOINT, BEST, LOCK = "checkpoint.safetensors", "best.safetensors", ".lock"
OUTCOME = "outcome.json"
WRITTEN = (CHECKPOINT, BEST, LOG, OUTCOME, "report.html", "curves.png", "confusion.png")

_mine = threading.local()  # .folders: the folders that this thread has locked
_held: set[int] = set()  # descriptors of locked files
_opening = threading.Lock()  # held so that no fork comes between opening a file and adding its descriptor to _held


def weights_file(given: str) -> str:
    """Return the file of weights.

    In a run's folder, this is the file of the best epoch or, if this file is missing, the file of the last epoch.
    """
    if not os.path.isdir(given):
        return given
    paths = [os.path.join(given, name) for name in (BEST, CHECKPOINT)]
    for path in paths:
        if os.path.exists(path):
            return path
    raise FileNotFoundError(f"{given} is a folder without {BEST} and {CHECKPOINT}; expected the folder of a run")


@contextmanager
def locked(out: str) -> Iterator[None]:
    """Lock the folder during the block, so that no other run trains there; make the folder if it is missing.

    Raises BlockingIOError if another run has the lock. The thread that has the lock may ask for it again.
    """
    place = os.path.realpath(out)
    if place in _folders():
        yield
        return
    made = atomic.make_folder(out, "train")
    path = os.path.join(place, LOCK)
    try:
        descriptor = _lock(path, out)
        _folders().add(place)
        try:
            _check_links(place)
            yield
        finally:
            _folders().discard(place)
            if descriptor in _held:  # else this is a child of the process that has the lock
                with suppress(OSError):
                    os.unlink(path)  # before the lock ends, while the file is still ours
                _close(descriptor)
    finally:
        atomic.remove_empty(made)  # of a run that wrote nothing


def _folders() -> set[str]:
    """Return the folders that this thread has locked."""
    found: set[str] = _mine.__dict__.setdefault("folders", set())
    return found


def _lock(path: str, out: str) -> int | None:
    """Open and lock the file at the path, and return its descriptor; return None if the system or disk has no locks."""
    if not atomic.LOCKS:
        return None
    while True:
        with _opening:
            descriptor = _open(path)
            _held.add(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            _close(descriptor)
            raise opening.in_words(error, f"another run is training in {out}; wait until that run ends, or choose "
                                   "another --out")  from None  # fmt: skip
        except OSError:  # a disk without locks
            _close(descriptor)
            return None
        if _is_at(descriptor, path):
            return descriptor
        _close(descriptor)  # the earlier run has removed the file in the meantime


def _open(path: str) -> int:
    """Open the file, or make it if it is missing, and return its descriptor. The file need not be writable."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if isinstance(error, PermissionError):
            with suppress(OSError):
                return os.open(path, flags | os.O_RDONLY)
        said = f"train: cannot write {quoted(path)}: {error.strerror}"
        raise opening.in_words(error, said + _whose(path)) from error


def _whose(path: str) -> str:
    """If another user's lock file cannot be read, return whose file it is and what to do. Otherwise return ""."""
    try:
        owner = os.stat(path, follow_symlinks=False).st_uid
    except OSError:
        return ""
    if owner == os.geteuid():
        return ""
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"the user with id {owner}"
    return (
        f"; the file belongs to {name}. If {name} has no run in this folder, ask for the file to be removed; "
        "otherwise choose another --out"
    )


def _close(descriptor: int) -> None:
    _held.discard(descriptor)
    os.close(descriptor)


def _in_child() -> None:
    """Release the locks in a forked child, because the child of a run is not a run."""
    for descriptor in [*_held]:
        with suppress(OSError):
            _close(descriptor)
    _folders().clear()
    _opening.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_in_child)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _check_links(place: str) -> None:
    """Raise ValueError if a file that a run writes is a link to a file outside the folder.

    The run would overwrite the file outside.
    """
    for name in WRITTEN:
        path = os.path.join(place, name)
        if os.path.islink(path) and os.path.dirname(os.path.realpath(path)) != place:
            raise ValueError(f"train: {path} is a link to {os.path.realpath(path)}; expected a file in this folder, "
                             "because a run writes only into its own folder")  # fmt: skip


def check_copy(out: str, code: Code | Graph) -> None:
    """Raise ValueError if the folder has a different file with the name of the copy."""
    path = os.path.join(out, code.file)
    if os.path.lexists(path) and _contents(path) != code.contents:
        raise ValueError(f"{out} has a {code.file} that differs from {code.path}, but a run keeps its copy there; move "
                         "the old file away, or choose another --out")  # fmt: skip


def keep_copy(out: str, code: Code | Graph) -> None:
    """Write the copy of the model's file into the folder, unless it is already there."""
    check_copy(out, code)
    path = os.path.join(out, code.file)
    if not os.path.lexists(path):
        with atomic.replacing(path, "train") as file:
            file.write(code.contents)


def _contents(path: str) -> bytes | None:
    try:
        return opening.contents(path, "train")
    except OSError:
        return None


def on_rank_0(group: Group | None, act: Callable[[], Any]) -> None:
    """Call act() on rank 0 only. If act() raises an exception, raise RankError on the other ranks."""
    if group is None or group.size == 1:
        act()
        return
    try:
        if group.rank == 0:
            act()
    except (OSError, ValueError) as error:
        group.all_gather_text(str(error), "what was written")
        raise
    if said := group.all_gather_text("", "what was written")[0]:
        raise RankError(f"rank 0 could not write: {said}")
