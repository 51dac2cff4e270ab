"""Makes the students' notebook from the solved one, so that both always have the same text and checks.

Students write the part between `# SOLUTION 3.2: what to do` and `# END`. In the stub, this part is replaced by a
statement that raises NotImplementedError. Everything else stays the same.
"""

from __future__ import annotations

import re

BEGIN = re.compile(r"^(?P<indent> *)# SOLUTION (?P<task>\d+\.\d+): (?P<what>.*)$")
END = re.compile(r"^ *# END$")
WIDTH = 90  # columns of a line of code in a lab


def stub(solution: str) -> str:
    """Return the text with stubs; raise ValueError for marks that do not come in pairs."""
    lines: list[str] = []
    inside = 0
    for number, line in enumerate(solution.splitlines(), 1):
        begin = BEGIN.match(line)
        if begin is not None:
            if inside:
                raise ValueError(f"line {number}: a SOLUTION inside the SOLUTION that begins in line {inside}")
            what = begin["what"].replace("\\", "\\\\").replace('"', '\\"')
            lines += refusal(begin["indent"], f"Task {begin['task']}: {what}")
            inside = number
        elif END.match(line):
            inside = 0
        elif not inside:
            lines.append(line)
    if inside:
        raise ValueError(f"line {inside}: this SOLUTION has no END")
    return "\n".join(lines) + "\n"


def refusal(indent: str, said: str) -> list[str]:
    """Return the lines that raise NotImplementedError: one, or three if one would be wider than WIDTH."""
    line = f'{indent}raise NotImplementedError("{said}")'
    if len(line) <= WIDTH:
        return [line]
    return [f"{indent}raise NotImplementedError(", f'{indent}    "{said}"', f"{indent})"]
