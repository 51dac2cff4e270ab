"""The file of results of benchmarks.gpu: a line of JSON a case, each there to stay before the next case begins."""

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
    """The lines that are whole; of a case that was run again the last one."""
    found: dict[tuple[str, str], Line] = {}
    for text in results.read_text(encoding="utf-8").splitlines() if results.exists() else []:
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        found[line["family"], line["case"]] = line
    return list(found.values())
