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


SHARE = """
import os
from minorm.labs.sealed import namespaces
namespaces.enter([], [], sys.argv[1] + "/own", True, 1 << 16, 20)
makes = {"files": lambda i: os.close(os.open(f"m{i}", os.O_CREAT)), "folders": lambda i: os.mkdir(f"d{i}")}
for kind, make in makes.items():
    try:
        for i in range(40):
            make(i)
    except OSError as error:
        print(kind, i, error.errno)
try:
    print(os.write(os.open("m0", os.O_WRONLY), bytes(1 << 20)) <= 1 << 16)
except OSError as error:
    print(error.errno)
"""


def test_its_own_folder_has_a_size_and_a_number_of_files(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    assert alone(SHARE, str(tmp_path)).splitlines() == ["files 20 28", "folders 0 28", "True"]


def test_a_file_system_of_its_own(tmp_path: Path) -> None:
    for name in ("read/hidden", "own", "other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("read/x", "read/secret", "read/hidden/y"):
        (tmp_path / name).write_text("text")
    said = alone(CODE, str(tmp_path)).splitlines()
    assert said == ["['own', 'read'] ['hidden', 'secret', 'x'] []", "text 0 False", "['mine'] True"]
    assert list((tmp_path / "own").iterdir()) == []
