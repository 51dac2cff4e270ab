"""In its own file system a process finds what it was given, read-only, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from minorm.labs.sealed import finding
from tests.labs.sealed.alone import alone

pytestmark = pytest.mark.skipif(not finding.find().mounts, reason="no mounts here")
CODE = """
import os
from minorm.labs.sealed import namespaces
place = sys.argv[1]
namespaces.enter([place + "/read"], [place + "/read/hidden", place + "/read/secret"], place + "/own", writes=True)
print(sorted(os.listdir(place)), sorted(os.listdir(place + "/read")), os.listdir(place + "/read/hidden"))
print(open(place + "/read/x").read(), os.path.getsize(place + "/read/secret"), os.path.exists("/proc"))
open("mine", "w").write("x" * 100)
for path in (place + "/read/x", place + "/elsewhere", "/x"):
    try:
        open(path, "w")
        print("written")
    except OSError:
        pass
print(os.listdir("."), os.getcwd() == place + "/own")
"""


def test_a_file_system_of_its_own(tmp_path: Path) -> None:
    for name in ("read/hidden", "own", "other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("read/x", "read/secret", "read/hidden/y"):
        (tmp_path / name).write_text("text")
    said = alone(CODE, str(tmp_path)).splitlines()
    assert said == ["['own', 'read'] ['hidden', 'secret', 'x'] []", "text 0 False", "['mine'] True"]
    assert list((tmp_path / "own").iterdir()) == []
