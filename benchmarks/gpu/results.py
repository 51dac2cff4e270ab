"""The file of results of benchmarks.gpu: one line of JSON for each case, written to the disk before the next case."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def write(results: Path, line: Line) -> None:
    """Add a line, after the half of one that a process left when it was cut short."""
    torn = results.exists() and results.read_bytes()[-1:] not in (b"", b"\n")
    with results.open("a", encoding="utf-8") as file:
        file.write("\n" * torn + json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read(results: Path) -> list[Line]:
    """Return the complete lines; the last one if a case ran again."""
    found: dict[tuple[str, str], Line] = {}
    for text in results.read_text(encoding="utf-8").splitlines() if results.exists() else []:
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        found[line["family"], line["case"]] = line
    return list(found.values())
