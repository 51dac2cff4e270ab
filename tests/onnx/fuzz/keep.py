"""Copies to kept/ the fewest models of a folder that reach new lines of minorm/onnx: `... keep.py FOLDER [MOST]`.

New is what neither the seeds nor the models of kept/ reach. Of several models the one with most new lines is taken
first, and of equal ones the smallest, until MOST (40) are taken or none has three new lines.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import trial

import minorm.onnx as mo

Lines = set[tuple[str, int]]
ROOM = str(Path(mo.__file__).parent)
FEWEST, SMALL = 3, 2000  # new lines, and bytes of a model


def lines_of(tried: trial.Trial, contents: bytes) -> Lines:
    """The lines of minorm/onnx that one model reaches."""
    found: Lines = set()

    def trace(frame: Any, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(ROOM):
            return None
        if event == "line":
            found.add((name, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        tried(contents)
    finally:
        sys.settrace(None)
    return found


def main() -> None:
    source, most = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 40
    with tempfile.TemporaryDirectory() as folder:
        tried = trial.Trial(folder)
        known: Lines = set()
        for contents in [seed.model.SerializeToString() for seed in tried.seeds] + [
            file.read_bytes() for file in trial.KEPT.iterdir()
        ]:
            known |= lines_of(tried, contents)
        contents_of = [file.read_bytes() for file in sorted(source.iterdir())]
        reached = {contents: lines_of(tried, contents) for contents in contents_of if len(contents) <= SMALL}
    print(f"{len(known)} lines are known; {len(set().union(*reached.values()) - known)} more in {len(reached)} models")
    for _ in range(most):
        contents = max(reached, key=lambda c: (len(reached[c] - known), -len(c)), default=b"")
        if not contents or len(reached[contents] - known) < FEWEST:
            break
        (trial.KEPT / f"{hashlib.sha256(contents).hexdigest()[:12]}.onnx").write_bytes(contents)
        print(f"{len(contents)} bytes: {len(reached[contents] - known)} lines")
        known |= reached[contents]


if __name__ == "__main__":
    main()
