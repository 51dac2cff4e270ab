"""Writes the labs that students get, from the solutions: `python examples/labs/make_stubs.py`.

A solution is the whole notebook. Between `# SOLUTION 3.2: what to do` and `# END` stands what students write; in the
stub file a line that raises NotImplementedError takes its place. Everything else is the same, so the two cannot drift
apart.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BEGIN = re.compile(r"^(?P<indent> *)# SOLUTION (?P<task>\d+\.\d+): (?P<what>.*)$")
END = re.compile(r"^ *# END$")


def stub(solution: str) -> str:
    """The text of the stub file."""
    lines: list[str] = []
    inside = False
    for number, line in enumerate(solution.splitlines(), 1):
        begin = BEGIN.match(line)
        if begin is not None:
            if inside:
                raise ValueError(f"line {number}: a SOLUTION inside another")
            what = begin["what"].replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'{begin["indent"]}raise NotImplementedError("Task {begin["task"]}: {what}")')
            inside = True
        elif END.match(line):
            inside = False
        elif not inside:
            lines.append(line)
    if inside:
        raise ValueError("a SOLUTION without END")
    return "\n".join(lines) + "\n"


def main() -> None:
    for path in sorted((HERE / "solutions").glob("lab*.py")):
        (HERE / path.name).write_text(stub(path.read_text()))
        print(path.name)


if __name__ == "__main__":
    sys.exit(main())
