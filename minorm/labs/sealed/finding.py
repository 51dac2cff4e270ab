"""Finds the walls that this machine has, by raising them in a child process and attacking them from inside.

If a mount fails half-way, the process must not go on. So each combination of walls is tried in a separate child
process, and the best combination is tried first.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Collection
from dataclasses import replace

from minorm.labs.sealed import compile_process, copies, landlock, process, syscalls
from minorm.labs.sealed.walls import Walls


class Hole(RuntimeError):
    """Raised if no student can be graded: an attack got through the walls, or Python does not run behind the walls."""


def find(
    without: Collection[str] = (),
    secret: Collection[str] = (),
    landlock: int | None = None,
    programs: Collection[str] = (),
) -> Walls:
    """Try the walls of this machine and return those that hold; raise Hole if an attack gets through them.

    without   walls to leave out, for tests: "mounts", "user", "landlock", "counting", "seccomp"
    secret    paths that the walls hide in addition to the course's checks, from walls.secret
    landlock  the newest version of Landlock to use, for tests of older kernels
    programs  programs of which a lab needs one; if there are compilers among them, the walls are tried with a compiler,
              too
    """
    around = _found(tuple(sorted(without)), tuple(secret), landlock)
    if not around.stand:
        return around
    around = replace(around, copies=copies.found())
    compilers = tuple(name for name in programs if name in compile_process.KNOWN)
    if compilers and around.writes:
        _try_compilers(around, compilers)
    return around


@functools.cache
def _try_compilers(around: Walls, programs: tuple[str, ...]) -> None:
    """Raise Hole if an attack gets through the walls of a process that compiles, or if no compiler runs there."""
    answer = compile_process.attack(around, programs)
    if "succeeded" not in answer:
        raise Hole(f"the walls around compilers could not be tried: {answer.get('said', 'no answer')}")
    if answer["succeeded"]:
        raise Hole(f"the walls around compilers do not hold; code inside them can {answer['succeeded']}")


@functools.cache
def _found(without: tuple[str, ...], secret: tuple[str, ...] = (), newest: int | None = None) -> Walls:
    if not syscalls.numbers() or "seccomp" in without:
        return Walls(absent=("no seccomp for this system",), secret=secret)
    absent: list[str] = []
    version = 0 if "landlock" in without else landlock.version()
    if newest is not None:
        version = min(version, newest)
    if not version:
        absent.append("Landlock")
    user = hasattr(os, "geteuid") and os.geteuid() == 0 and "user" not in without
    if not user:
        absent.append("a separate user")
    for mounts, counts in _ways(bool(version)):
        if "mounts" in without and mounts:
            absent.append("mounts")
            continue
        if "counting" in without and counts and not mounts:
            absent.append("a limit on what code can write")
            continue
        around = Walls(mounts, user, version, True, tuple(absent), secret, counts, copies.found())
        answer = process.attack(around)
        if "succeeded" in answer:
            if answer["succeeded"]:
                raise Hole(f"the walls around students' code do not hold; code inside them can {answer['succeeded']}")
            return around
        why = errno.errorcode.get(answer.get("errno") or 0, "") or answer.get("said", "no answer")
        if answer.get("stage") == "seccomp":
            return Walls(absent=(f"no seccomp ({why})",), secret=secret)
        if answer.get("stage") == "counting":
            absent.append(f"a limit on what code can write ({why})")
        elif mounts:
            absent.append(f"mounts ({why})")
        else:
            raise Hole(_unreadable(answer, why))
    raise Hole("the walls could not be tried")


def _ways(landlock: bool) -> list[tuple[bool, bool]]:
    """Return the pairs (mounts, counting) to try, the best pair first.

    If both mounts and Landlock are missing, no process may write.
    """
    return [(True, True), (False, True), *([(False, False)] if landlock else [])]


def _unreadable(answer: dict[str, object], why: str) -> str:
    if answer.get("stage"):
        return f"a process could not be sealed: {answer['stage']}: {why}"
    return (
        f"the user that students' code runs as cannot read this Python ({sys.prefix}: {why}), and mounts are not "
        "allowed here; install Python where every user may read it"
    )
