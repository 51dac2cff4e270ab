"""Submissions that want points for nothing, from cheats.txt: each with its trick, its lab, and the most it may earn.

A cheat is code at the end of a lab's file with stubs. Paths stand in braces: {neighbour} is another student's full
solution, {folder} the folder of all submissions, {csv} the table of grades, {solutions} and {checks} those of the
checkout. Pieces that several share stand in angle brackets.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Cheat(NamedTuple):
    """A cheat: its code, and the points that it may get."""

    lab: int
    code: str
    most: float


PIECES = {
    "FORGED": """
import json, os, struct
text = json.dumps({"report": {"lab": 1, "title": "", "file": "", "outcomes": [{"task": "1.1", "title": "x",
    "points": 21, "earned": 21, "status": "passed"}]}, "value": 1, "tasks": {"1.1": 21}}).encode()
message = struct.pack("<QQ", len(text), 0) + text
def everywhere():
    for descriptor in range(0, 300):
        for data in (message, text + b"\\n"):
            try:
                os.write(descriptor, data)
            except OSError:
                pass
""",
    "TAKE": """
def _take(text):
    names = {}
    for cell in text.split("# %%"):
        try:
            exec(cell.partition("\\n")[2], names)
        except BaseException:
            pass
    globals().update({k: v for k, v in names.items() if callable(v)})
""",
    "REMEMBER": """
def test_all(norm):
    if _count() >= 2:
        raise AssertionError
""",
    "ORACLE": """
def test_all(norm):
    right = _right()
    x = np.random.default_rng(0).standard_normal((4, 3, 2))
    s, b = np.ones(3), np.zeros(3)
    assert np.allclose(norm.forward(x, s, b), right["forward"](x, s, b))
    for mine, other in zip(norm.backward(x, x, s), right["backward"](x, x, s)):
        assert np.allclose(mine, other)
""",
}
HEAD = re.compile(r"^## (\w+): lab (\d+), at most (\d+)(, line by line)?\n", re.MULTILINE)


def _read() -> dict[str, Cheat]:
    _, *found = HEAD.split((Path(__file__).parent / "cheats.txt").read_text())
    cheats = {}
    for name, lab, most, by_line, text in zip(*[iter(found)] * 5, strict=True):
        code = re.sub(r"^####.*\n", "", text, flags=re.MULTILINE)
        if by_line:  # whatever became of the lines before
            lines = [f"try:\n    {line}\nexcept BaseException:\n    pass" for line in code.strip().splitlines()]
            code = PIECES["TAKE"] + "\n".join(lines) + "\n"
        for piece, lines_of_it in PIECES.items():
            code = code.replace(f"<{piece}>\n", lines_of_it)
        cheats[name] = Cheat(int(lab), code, float(most))
    return cheats


CHEATS = _read()
