"""What a look at a file shows before it runs: nothing in it, nothing done, another lab's, or somebody else's work.

The judge looks, within its limits: reading a student's file is work that the student chooses. What is compared is the
code without comments and empty lines, so a copy is one under other names of files, cells and headings too.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from minorm.labs import catalogue, cells
from minorm.labs.calling.submission import LEFT_OUT
from minorm.labs.lab import Lab


def look(text: str, name: str, lab: Lab) -> dict[str, Any]:
    """`code`, a digest of it, None where there is nothing to compare; `remarks` on the file. As JSON carries them."""
    found = cells.read(text, name)
    lines, remarks = code(found), []
    if not lines:
        remarks.append("there is no code in it")
    elif lines == _handed_out(lab):
        remarks.append("it is as it was handed out")
    number = lab_of(found)
    if number is not None and number != lab.number:
        remarks.append(f"it says that it is lab {number}; this is lab {lab.number}")
    return {"code": None if remarks else digest(lines), "remarks": remarks}


def _handed_out(lab: Lab) -> list[str]:
    """The code that a student begins with; none where this machine has no such file."""
    try:
        return code(cells.read_percent(catalogue.notebook(lab)))
    except FileNotFoundError:
        return []


def code(found: Iterable[cells.Cell]) -> list[str]:
    """The lines that a student has written or was given, without comments, empty lines and the lab's own cells."""
    own = [cell.text for cell in found if not cell.markdown and not LEFT_OUT & set(cell.tags)]
    lines = [line.rstrip() for text in own for line in text.splitlines()]
    return [line for line in lines if line and not line.lstrip().startswith("#")]


def lab_of(found: Sequence[cells.Cell]) -> int | None:
    """The number in the lab's heading, which is the first that a cell of text has."""
    for cell in found:
        if cell.markdown and (heading := re.match(r"#+ *Lab (\d+)\b", cell.text)):
            return int(heading[1])
    return None


def digest(lines: Iterable[str]) -> str:
    """Equal for equal lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@functools.cache
def seed_hash(seed: int) -> str:
    """Tells seeds apart in a CSV; slow to compute, so that trying seeds one by one is no way back."""
    return hashlib.scrypt(str(seed).encode(), salt=b"minorm labs", n=1 << 14, r=8, p=1, dklen=6).hex()
