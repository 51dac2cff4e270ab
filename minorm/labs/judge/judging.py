"""Judges one submission: its code runs in a process with limits, and the checks run in the judge's process."""

from __future__ import annotations

import codecs
import contextlib
import math
import os
import time
from pathlib import Path

from minorm.labs import cells
from minorm.labs.lab import Lab
from minorm.labs.remote import Remote
from minorm.labs.scores import Report
from minorm.labs.sealed import finding, walls
from minorm.serialization.opening import regular
from minorm.support.safe_names import printable

SEED = 1
LARGEST_FILE = 32 << 20
ENCODINGS = (  # in the order in which they are tried; some editors put a mark in front of UTF-8
    ("utf-8-sig", ""),
    ("utf-16", "read as UTF-16, because it is not UTF-8"),
    ("latin-1", "read as Latin-1, because it is not UTF-8"),
)
LEAST_MEMORY = 256  # MB: with less Python and NumPy do not start, and every right answer counts as wrong
MOST_MEMORY = 1 << 24  # MB: more than any machine has, and setrlimit still takes it
MOST_PATIENCE = 1000.0


def require(seed: int, memory: int | None, patience: float) -> None:
    """Raise ValueError if one of these values cannot be used.

    If grading began and failed later, students would lose points.
    """
    if seed < 0:
        raise ValueError(f"seed {seed}: expected a whole number of at least 0")
    if memory is not None and memory != 0 and not LEAST_MEMORY <= memory <= MOST_MEMORY:
        raise ValueError(f"memory {memory}: expected MB from {LEAST_MEMORY} to {MOST_MEMORY}, or 0 for no limit")
    if not (math.isfinite(patience) and 0 < patience <= MOST_PATIENCE):
        raise ValueError(f"patience {patience:g}: expected a factor above 0 and at most {MOST_PATIENCE:g}")


def judge(
    lab: Lab,
    path: str | Path,
    seed: int = SEED,
    memory: int | None = None,
    patience: float = 1.0,
    around: walls.Walls | None = None,
    hints: bool = False,
    task: str | None = None,
) -> Report:
    """Run all checks of the lab on the file.

    seed      the seed of the numbers that the checks draw; choose your own seed and keep it secret
    memory    MB of address space for the student's process; 0 for no limit, None for the lab's limit
    patience  a factor for all time limits, for slow machines
    around    the walls; None for the walls that this machine has
    hints     whether to name the mistake that explains the student's answers
    task      the only task whose checks run; None for all tasks

    ValueError is raised if an argument cannot be used, or if the file is too large, not text or not a notebook.
    ImportError is raised if this machine lacks what the lab needs.
    """
    start = time.monotonic()
    require(seed, memory, patience)
    lab.require()
    lab = lab if task is None else lab.of_task(task)
    text, note = read(Path(path))
    cells.read(text, Path(path).name)
    around = finding.find(secret=walls.secret(lab.lab_dir), programs=lab.programs) if around is None else around
    bytes_each = (lab.memory if memory is None else memory) << 20
    with Remote(text, Path(path).name, lab.beside, bytes_each, patience, around, lab.seconds) as student:
        outcomes = [row if hints else row.but(hint="") for row in lab.run(student, seed)]
        student.close()
        return Report(
            lab.number,
            lab.title + (f", {lab.variant}" if lab.variant.code else ""),
            printable(Path(path).name),
            outcomes,
            [*filter(None, [note]), *student.notes],
            student.printed,
            student.beginning,
            time.monotonic() - start,
            str(around),
        )


def read(path: Path) -> tuple[str, str]:
    """Return the text of a submission, and a note if it is not in UTF-8, as it should be."""
    if path.suffix not in (".py", ".ipynb"):
        raise ValueError(f"{path.name}: expected a .py file or an .ipynb notebook")
    with regular(path, "labs", follow=False) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_FILE:
            raise ValueError(f"{path.name} has {size >> 20} MB; expected at most {LARGEST_FILE >> 20}")
        data = file.read(LARGEST_FILE + 1)
    for encoding, note in ENCODINGS:
        if encoding == "utf-16" and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            continue
        with contextlib.suppress(UnicodeDecodeError):
            text = data.decode(encoding)
            if "\0" not in text:
                return text.replace("\r\n", "\n").replace("\r", "\n"), note
    raise ValueError(f"{path.name} is not text")
