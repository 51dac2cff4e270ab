"""Starts a sealed process: it reads the plan, seals itself, and only then imports the code that runs inside.

Before that, the process uses only the standard library. `import minorm` would import NumPy, so empty modules take the
place of minorm and minorm.labs until the walls are up (see BEGIN). The plan and the answer are one line of JSON each,
and are sent through the only socket that the process has.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

from minorm.labs.sealed import counting, landlock, namespaces, process_limits, seccomp

# The process runs this code first; its argument is the folder of the package minorm.
BEGIN = """
import sys, types
folder = sys.argv.pop()
for name, path in (("minorm", folder), ("minorm.labs", folder + "/labs")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from minorm.labs.sealed import entry
entry.main()
"""
STAGE = "stage"  # in the answer of a process that could not seal itself: the step that failed


def main() -> None:
    """Seal this process and run the function that the plan names."""
    line = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)  # a student's code reads this as its standard input
    os.dup2(nothing, 0)
    os.close(nothing)
    plan = json.loads(_read_line(line))
    if plan["runs"] and plan["counted"]:
        line = _beyond(line, process_limits.OPEN_FILES)
    for stage, step in _steps(plan, line):
        try:
            step()
        except OSError as error:
            os.write(line, json.dumps({STAGE: stage, "errno": error.errno, "said": str(error)}).encode() + b"\n")
            os._exit(1)
    os.write(line, b"{}\n")
    sys.path[:] = plan["path"]
    os.environ.update(plan["environment"])
    module, _, function = plan["then"].partition(":")
    if not module.startswith(__package__):
        for name in [name for name in sys.modules if name.split(".")[0] == "minorm"]:
            del sys.modules[name]
    try:
        getattr(importlib.import_module(module), function)(line, plan)
    except OSError as error:  # a Python that this user may not read
        os.write(line, json.dumps({"said": str(error)}).encode() + b"\n")
        os._exit(1)


def _steps(plan: dict[str, Any], line: int) -> Any:
    """Yield (name, function) for each wall, in the order in which the functions must be called."""
    folder, parent = plan["folder"], plan["parent"]
    yield (
        "limits",
        lambda: process_limits.set_limits(
            plan["memory"], seconds=process_limits.PROGRAM_SECONDS if plan["runs"] else 0
        ),
    )
    if plan["mounts"]:
        there = [*plan["reads"], *plan["runs"]]
        yield "mounts", lambda: namespaces.enter(there, plan["hidden"], folder, plan["writes"], *plan["share"])
    if plan["user"] is not None:
        yield "user", lambda: process_limits.become(plan["user"])
    yield "rights", process_limits.drop_rights
    yield "end", lambda: process_limits.end_with(parent)  # after the change of user, which would undo it
    yield "folder", lambda: os.chdir(folder)
    if plan["landlock"]:
        own = folder if plan["writes"] else None
        known = plan["landlock"]
        yield "landlock", lambda: landlock.restrict(plan["reads"], plan["lists"], own, plan["runs"], known)
    if plan["counted"]:
        yield "counting", lambda: counting.begin(line, bool(plan["runs"]))
    if plan["seccomp"]:
        yield "seccomp", lambda: seccomp.install(plan["writes"], starts=bool(plan["runs"]))


def _beyond(line: int, number: int) -> int:
    """Move the line to the descriptor `number`, which no file can get.

    Other programs close and reuse lower descriptors.
    """
    os.dup2(line, number, inheritable=False)
    os.close(line)
    return number


def closes_files(plan: dict[str, Any]) -> bool:
    """Return True if seccomp must forbid opening files.

    This is so if neither mounts nor Landlock decide which files may be opened.
    """
    return bool(plan["seccomp"] and not plan["mounts"] and not plan["landlock"])


def close_files() -> None:
    """Forbid this process to open files.

    This is called after all imports, if no other wall decides which files may be opened.
    """
    seccomp.install(False, opens=False)


def _read_line(descriptor: int) -> bytes:
    """Read one line, and not one byte more, from the descriptor."""
    found = bytearray()
    while not found.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            os._exit(1)
        found += byte
    return bytes(found)
