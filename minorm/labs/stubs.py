"""The notebook that students get, made of the solved one, so that the two cannot drift apart.

Between `# SOLUTION 3.2: what to do` and `# END` stands what students write. A line that raises NotImplementedError
takes its place; everything else stays the same.
"""

from __future__ import annotations

import re

BEGIN = re.compile(r"^(?P<indent> *)# SOLUTION (?P<task>\d+\.\d+): (?P<what>.*)$")
END = re.compile(r"^ *# END$")


def stub(solution: str) -> str:
    """The text with stubs; ValueError for marks that do not come in pairs."""
    lines: list[str] = []
    inside = 0
    for number, line in enumerate(solution.splitlines(), 1):
        begin = BEGIN.match(line)
        if begin is not None:
            if inside:
                raise ValueError(f"line {number}: a SOLUTION inside another, which begins in line {inside}")
            what = begin["what"].replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'{begin["indent"]}raise NotImplementedError("Task {begin["task"]}: {what}")')
            inside = number
        elif END.match(line):
            inside = 0
        elif not inside:
            lines.append(line)
    if inside:
        raise ValueError(f"line {inside}: a SOLUTION without END")
    return "\n".join(lines) + "\n"
