"""Describes the walls around a student's process, and the files inside.

If a machine has no seccomp, the other kinds of walls do not count, and there are no walls.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[2]  # minorm
LABS = PACKAGE / "labs"
HIDDEN = (LABS / "checks", LABS / "wrong_kernels.py")  # these would tell a student's code the right answers
LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
FIRST_USER, LAST_USER = 61184, 65519  # systemd's range for temporary users, which no account has


@dataclass(frozen=True)
class Walls:
    """The walls around a student's process.

    absent  the walls that are missing, and why
    secret  paths to hide, in addition to the course's checks; copies: paths of copies of hidden files (see the module
            copies)
    counts  whether the kernel can ask the judge about writes, if no mount limits the size
    """

    mounts: bool = False
    user: bool = False
    landlock: int = 0
    seccomp: bool = False
    absent: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    counts: bool = True
    copies: tuple[str, ...] = ()

    @classmethod
    def of(cls, message: dict[str, Any]) -> Walls:
        """Restore walls from a dict of `dataclasses.asdict` that was sent as JSON."""
        several = {name: tuple(message[name]) for name in ("absent", "secret", "copies")}
        return cls(**{**message, **several})

    @property
    def hides(self) -> tuple[str, ...]:
        """The paths that are hidden in addition to the course's checks."""
        return (*self.secret, *self.copies)

    @property
    def stand(self) -> bool:
        """Whether code from a stranger may be graded behind these walls."""
        return self.seccomp

    @property
    def writes(self) -> bool:
        """Whether a process gets a folder of limited size to write in, and can write nowhere else."""
        return self.mounts or (bool(self.landlock) and self.counts)

    @property
    def closes(self) -> bool:
        """Whether a process must stop opening files after its imports, because no wall says which files are allowed."""
        return self.seccomp and not self.mounts and not self.landlock

    @property
    def counted(self) -> bool:
        """Whether the judge counts what a process writes."""
        return self.writes and self.seccomp and not self.mounts

    def __str__(self) -> str:
        if not self.stand:
            return "no walls, so only for your own work" + (f" ({'; '.join(self.absent)})" if self.absent else "")
        names = [
            "mounts" if self.mounts else "",
            "a separate user" if self.user else "",
            f"Landlock {self.landlock}" if self.landlock else "",
            "seccomp",
        ]
        missing = f"; not here: {', '.join(self.absent)}" if self.absent else ""
        return f"walls: {', '.join(filter(None, names))}{missing}"

    def for_lab(self, writes: bool) -> Walls:
        """Return the walls for a lab.

        If the lab's solutions write files but these walls cannot limit what is written, the result has no walls.
        """
        if self.stand and writes and not self.writes:
            needs = "this lab writes files, which needs mounts, or Landlock and a limit on what code can write"
            return Walls(absent=(needs,), secret=self.secret)
        return self


NONE = Walls()


def readable() -> list[str]:
    """Return the files and folders that a student's code needs: Python, its packages, shared libraries, minorm."""
    paths = sysconfig.get_paths()
    found = {paths["stdlib"], paths["platstdlib"], os.path.join(sys.base_prefix, "lib"), *LIBRARIES}
    found |= {entry for entry in import_path() if entry != str(PACKAGE.parent)}
    found |= {str(PACKAGE.parent / name) for name in ("minorm", "minorm_ext")}
    found |= {str(path) for path in PACKAGE.parent.glob("minorm_ext*")}
    return sorted(
        {os.path.realpath(path) for path in found if os.path.exists(path)} | {p for p in found if os.path.exists(p)}
    )


def import_path() -> list[str]:
    """Return the part of sys.path for a student's process: packages and Python, not a user's working folder."""
    root = str(PACKAGE.parent)
    own = tuple(os.path.realpath(prefix) + os.sep for prefix in (sys.base_prefix, sys.prefix))
    found = [os.path.abspath(entry) for entry in sys.path if entry]
    kept = [
        entry
        for entry in found
        if os.path.realpath(entry).startswith(own) or os.path.basename(entry) in ("site-packages", "dist-packages")
    ]
    return list(dict.fromkeys([*[entry for entry in kept if entry != root], root]))


def hidden(secret: Collection[str] = ()) -> list[str]:
    """Return the readable paths that must be hidden.

    This includes paths of compiled forms, which another process may write at any time.
    """
    checks, module = HIDDEN
    compiled = [cache_from_source(str(module), optimization=level) for level in ("", "1", "2")]
    compiled.append(os.path.dirname(cache_from_source(str(checks / "__init__.py"))))
    return [*map(str, HIDDEN), *compiled, *secret]


def secret(lab_dir: Path | None) -> tuple[str, ...]:
    """Return the paths that hide a teacher's own labs: the folder, its links' targets, its names in readable paths.

    If the folder also holds Python or minorm, for example because it is a course's whole folder, only its labs are
    hidden.
    """
    if lab_dir is None:
        return ()
    reads = {path: os.path.realpath(path) for path in readable()}
    whole = os.path.realpath(lab_dir)
    holds_python = any(_is_below(real, whole) for real in reads.values())
    labs = [str(entry) for entry in Path(whole).glob("lab*_*") if entry.is_dir()]
    linked = [os.path.realpath(lab) for lab in labs if os.path.islink(lab)]
    found = [*(labs if holds_python else [whole]), *linked]
    names = {os.path.join(p, os.path.relpath(one, r)) for one in found for p, r in reads.items() if _is_below(one, r)}
    return tuple(sorted({*found, *names}))


def _is_below(path: str, folder: str) -> bool:
    """Return whether a path is the folder or in the folder."""
    return os.path.join(path, "").startswith(os.path.join(folder, ""))


def narrow(paths: Collection[str], secret: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Split `paths` into paths to read and folders to list only, so that no hidden path can be read under any name.

    The process then sees neither hidden files nor files that are later made beside hidden files.
    """
    out = {os.path.realpath(one) for one in hidden(secret)}
    above = {str(folder) for one in out for folder in Path(one).parents}
    reads, lists = [], {str(PACKAGE.parent)}
    for path in paths:
        real = os.path.realpath(path)
        if real in out:
            continue
        if real not in above:
            reads.append(path)
            continue
        reads += _around(path, real, out, above)
        lists |= {path, *(folder for folder in above if _is_below(folder, real))}
    return reads, sorted(lists)


def _around(folder: str, real: str, out: Collection[str], above: Collection[str]) -> Iterator[str]:
    """Yield paths in the folder that cover everything but hidden files. A folder without hidden files is one of these
    paths; of other folders, only parts are.
    """
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        link = entry.is_symlink()
        leads = os.path.realpath(entry.path) if link else os.path.join(real, entry.name)
        if leads in out:
            continue
        if leads not in above:
            yield entry.path
        elif not link:  # a link may lead back here, and its target has its own name
            yield from _around(entry.path, leads, out, above)
