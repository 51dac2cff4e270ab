"""Writes the labs that students get, from the solutions: `python examples/labs/make_stubs.py`.

A solution is the whole notebook; minorm/labs/stubs.py says how it marks what students write.
"""

from __future__ import annotations

import sys
from pathlib import Path

from minorm.labs.stubs import stub

HERE = Path(__file__).resolve().parent


def main() -> None:
    for path in sorted((HERE / "solutions").glob("lab*.py")):
        (HERE / path.name).write_text(stub(path.read_text()))
        print(path.name)


if __name__ == "__main__":
    sys.exit(main())
