"""Finds which of a student's files is their work, and describes it before it runs.

The file may be empty, unchanged, for another lab, or a copy of another student's work.

The judge does this within its own limits, because the student chooses how long it takes to read a file. It compares the
code without comments and empty lines, so it also finds copies with other names of files, cells and headings.
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

    It is the file that the student changed. If a notebook and a Python file hold the same code, it is the Python file.
    ValueError if several files hold different work.
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
    """Return the same; if the file cannot be read, say why, as another file may be the work."""
    try:
        return _seen(path, lab)
    except (ValueError, OSError) as error:
        return {"code": None, "prints": [], "remarks": [str(error)], "variant": ""}


def look(text: str, name: str, lab: Lab) -> dict[str, Any]:
    """Return `code`, a digest, None if there is nothing to compare; `prints`, its fingerprints; `remarks` on the file.

    The fingerprints leave out those of the stub that students get. `variant` is the code that the file names. JSON can
    hold all of it.
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
    """Return the lab in the variant of this code, and a remark if the file names another variant.

    said  the code in the file
    code  empty for the lab without a variant; None for the variant that the file names, ValueError if it is unknown
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
    """Return the code that a student begins with; empty if this machine has no such file."""
    try:
        return code(cells.read_percent(catalogue.notebook(lab)))
    except FileNotFoundError:
        return []


def code(found: Iterable[cells.Cell]) -> list[str]:
    """Return the lines that a student wrote or was given, without comments, empty lines and the lab's own cells."""
    own = [cell.text for cell in found if not cell.markdown and not LEFT_OUT & set(cell.tags)]
    lines = [line.rstrip() for text in own for line in text.splitlines()]
    return [line for line in lines if line and not line.lstrip().startswith("#")]


def lab_of(found: Sequence[cells.Cell]) -> int | None:
    """Return the number in the lab's heading, the first heading in a text cell."""
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
