"""No user can open files that no rule names; a folder's rule holds for all below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from minorm.labs.sealed import landlock
from tests.labs.sealed.alone import alone

pytestmark = pytest.mark.skipif(not landlock.version(), reason="no Landlock")
CODE = """
import os
from minorm.labs.sealed import landlock, process_limits
place = sys.argv[1]
process_limits.drop_rights()
landlock.restrict([place + "/read"], [place + "/listed"], place + "/own", known=int(sys.argv[2]))

def tried(attempt, *arguments):
    try:
        return attempt(*arguments) is not None
    except OSError:
        return False

print(
    tried(open, place + "/read/below/x"), tried(open, place + "/read/x", "a"), tried(os.listdir, place + "/listed"),
    tried(open, place + "/listed/x"), tried(open, place + "/own/new", "w"), tried(open, place + "/other/x"),
    tried(os.listdir, place),
)
"""


@pytest.mark.parametrize("known", [0, *range(1, min(landlock.version(), 7) + 1)])
def test_what_may_be_opened(tmp_path: Path, known: int) -> None:
    """With each version of the interface that this kernel knows: older kernels have no later one."""
    for name in ("read/below", "listed", "own", "other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("read/x", "read/below/x", "listed/x", "other/x"):
        (tmp_path / name).write_text("")
    assert alone(CODE, str(tmp_path), str(known)).split() == [
        "True",
        "False",
        "True",
        "False",
        "True",
        "False",
        "False",
    ]
