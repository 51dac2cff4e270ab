"""The folder of a run: its files, the lock of the one process that writes there, and a copy of the model's own file.

    DIR/checkpoint.safetensors   the last finished epoch
    DIR/best.safetensors         the model of the best epoch
    DIR/FILE.py                  a copy of the user's file that builds the model, as it was when the run began
    DIR/FILE.onnx                a copy of the ONNX file whose graph is the model
    DIR/.lock                    while a process trains there

The lock (flock) ends with its process, however that ends, so a file that a killed process leaves locks nothing. A child
that the process forks would hold the lock too, and so closes its file first. On systems without flock, Windows among
them, and on disks that have no locks, nothing keeps two runs apart. Of several ranks the first one writes.
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

_mine = threading.local()  # .folders: those that this thread has locked
_held: set[int] = set()  # descriptors of locked files
_opening = threading.Lock()  # no fork comes between opening a file and adding it to those


def weights_file(given: str) -> str:
    """Return the file with the weights: of a run's folder that of its best epoch, else that of its last one."""
    if not os.path.isdir(given):
        return given
    paths = [os.path.join(given, name) for name in (BEST, CHECKPOINT)]
    for path in paths:
        if os.path.exists(path):
            return path
    raise FileNotFoundError(f"{given} is a folder without {BEST} and {CHECKPOINT}; expected that of a run")


@contextmanager
def locked(out: str) -> Iterator[None]:
    """Lock the folder inside the block, so that no other run trains there; make it if it is missing.

    BlockingIOError where another run has the lock. A thread that has it may ask again.
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
                    os.unlink(path)  # before the lock ends: the file is still ours
                _close(descriptor)
    finally:
        atomic.remove_empty(made)  # of a run that wrote nothing


def _folders() -> set[str]:
    """Return the folders that this thread has locked."""
    found: set[str] = _mine.__dict__.setdefault("folders", set())
    return found


def _lock(path: str, out: str) -> int | None:
    """Return an open and locked file at the path; None where there are no locks."""
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
            raise opening.in_words(error, f"another run trains in {out} at this moment; wait for its end, or choose "
                                   "another --out")  from None  # fmt: skip
        except OSError:  # a disk without locks
            _close(descriptor)
            return None
        if _is_at(descriptor, path):
            return descriptor
        _close(descriptor)  # the run before has removed it meanwhile


def _open(path: str) -> int:
    """Return a descriptor of the file; make it if it is missing. Another user's file need not be writable."""
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
    """Whose file it is and what to do, where another user has left one that this user may not even read."""
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
    return f"; it is a file of {name}'s: if no run of theirs trains there, have it removed; else choose another --out"


def _close(descriptor: int) -> None:
    _held.discard(descriptor)
    os.close(descriptor)


def _in_child() -> None:
    """Release the locks in a forked child: the child of a run is not a run."""
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
    """Raise ValueError if a file to write is a link out of the folder: then the link would choose the written file."""
    for name in WRITTEN:
        path = os.path.join(place, name)
        if os.path.islink(path) and os.path.dirname(os.path.realpath(path)) != place:
            raise ValueError(f"train: {path} is a link to {os.path.realpath(path)}; expected a file in its own folder, "
                             "as a run writes there alone")  # fmt: skip


def check_copy(out: str, code: Code | Graph) -> None:
    """Raise ValueError where the folder has another file in the place of the copy."""
    path = os.path.join(out, code.file)
    if os.path.lexists(path) and _contents(path) != code.contents:
        raise ValueError(f"{out} holds another {code.file} than {code.path}, of which a run keeps a copy there; "
                         "move it away, or choose another --out")  # fmt: skip


def keep_copy(out: str, code: Code | Graph) -> None:
    """Write the copy, unless it is there."""
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
    """Call it on rank 0; where it raises there, RankError on the others."""
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
