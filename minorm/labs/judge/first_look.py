"""Finds which of a student's files is their work, and describes this file before it runs.

The file may be empty, unchanged, for another lab, or a copy of another student's work.

This is done in a judge's process with limits, because a student's file may take arbitrarily long to read. The code is
compared without comments and empty lines, so copies are found even if files, cells and headings have other names.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from minorm.labs import catalogue, cells
from minorm.labs.calling.submission import LEFT_OUT
from minorm.labs.judge import judging, similarity
from minorm.labs.lab import Lab
from minorm.labs.varied import rendering
from minorm.labs.varied.choices import PLAIN, Variant


def chosen(paths: Sequence[Path], lab: Lab) -> tuple[Path, dict[str, Any]]:
    """Choose the file that is the student's work, and return it with what `look` says about it.

    The student's work is the file that differs from the stub that students get. If a notebook and a Python file hold
    the same code, the Python file is chosen. ValueError is raised if several files hold different work.
    """
    if len(paths) == 1:
        return paths[0], _seen(paths[0], lab)
    seen = {path: _seen_if_read(path, lab) for path in paths}
    changed = [path for path in paths if seen[path]["code"] is not None]
    named = [path for path in changed if path.stem.startswith(lab.file)] or changed
    if len({seen[path]["code"] for path in named}) > 1:
        raise ValueError(f"{len(named)} files that hold different work: {', '.join(path.name for path in named)}; "
                         f"expected one {lab.file}.py or .ipynb")  # fmt: skip
    best = (named or list(paths))[0]
    others = [path.name for path in paths if path != best]
    remarks = [*seen[best]["remarks"], f"taken from {best.name}; left out: {', '.join(others[:5])}"]
    return best, {**seen[best], "remarks": remarks}


def _seen(path: Path, lab: Lab) -> dict[str, Any]:
    return look(judging.read(path)[0], path.name, lab)


def _seen_if_read(path: Path, lab: Lab) -> dict[str, Any]:
    """Return what `look` says about the file, or only a remark if the file cannot be read."""
    try:
        return _seen(path, lab)
    except (ValueError, OSError) as error:
        return {"code": None, "prints": [], "remarks": [str(error)], "variant": ""}


def look(text: str, name: str, lab: Lab) -> dict[str, Any]:
    """Return a dict, which JSON can hold, with what a first look at a file says about it.

    `code` is a digest of the code, or None if there is nothing to compare. `prints` are the code's fingerprints without
    those of the stub that students get. `remarks` are about the file, and `variant` is the variant's code that the file
    names.
    """
    found = cells.read(text, name)
    lines, remarks = code(found), []
    variant = rendering.said(found)
    lab = lab.of_variant(_variant(lab, variant) or PLAIN)
    if not lines:
        remarks.append("the file has no code")
    elif lines == _handed_out(lab):
        remarks.append("the file is unchanged since it was handed out")
    number = lab_of(found)
    if number is not None and number != lab.number:
        remarks.append(f"the file says that it is of lab {number}; expected lab {lab.number}")
    own = set() if remarks else similarity.fingerprints(lines) - similarity.fingerprints(_handed_out(lab))
    return {
        "code": None if remarks else digest(lines),
        "prints": sorted(own),
        "remarks": remarks,
        "variant": variant,
    }


def asked(lab: Lab, said: str, code: str | None) -> tuple[Lab, str]:
    """Return the lab in the variant to grade, and a remark if the file names another variant, else an empty text.

    said  the code of the variant that the file names
    code  the code of the variant to grade: empty for the plain lab; None for the variant that the file names

    ValueError is raised if there is no variant with the code.
    """
    if code is None or code == said:
        return lab.of_variant(lab.variants.read(said)), ""
    variant, named = lab.variants.read(code), _variant(lab, said)
    there = f"it names the variant {said!r}, which this lab does not have" if named is None else f"it is {named}"
    return lab.of_variant(variant), f"{there}; graded as {variant}"


def _variant(lab: Lab, code: str) -> Variant | None:
    try:
        return lab.variants.read(code)
    except ValueError:
        return None


def _handed_out(lab: Lab) -> list[str]:
    """Return the lines of code in the notebook that students get.

    The list is empty if this machine does not have the notebook.
    """
    try:
        return code(cells.read_percent(catalogue.notebook(lab)))
    except FileNotFoundError:
        return []


def code(found: Iterable[cells.Cell]) -> list[str]:
    """Return the lines of code in the student's part of a file and in the code given to students.

    Comments, empty lines, and cells tagged "check" or "plot" are left out.
    """
    own = [cell.text for cell in found if not cell.markdown and not LEFT_OUT & set(cell.tags)]
    lines = [line.rstrip() for text in own for line in text.splitlines()]
    return [line for line in lines if line and not line.lstrip().startswith("#")]


def lab_of(found: Sequence[cells.Cell]) -> int | None:
    """Return the lab's number from the first heading in a text cell."""
    for cell in found:
        if cell.markdown and (heading := re.match(r"#+ *Lab (\d+)\b", cell.text)):
            return int(heading[1])
    return None


def digest(lines: Iterable[str]) -> str:
    """Hash the lines: equal lines have equal digests."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@functools.cache
def seed_hash(seed: int) -> str:
    """Hash a seed, to tell seeds apart in a CSV; the hash is slow, so that trying all seeds takes too long."""
    return hashlib.scrypt(str(seed).encode(), salt=b"minorm labs", n=1 << 14, r=8, p=1, dklen=6).hex()
