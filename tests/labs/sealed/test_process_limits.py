"""Limits hold; a process ends with the one that started it, and cannot become anybody else again."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from minorm.labs.sealed import process_limits, walls
from tests.labs.sealed.alone import BEGIN, alone

LIMITED = """
from minorm.labs.sealed import process_limits
import resource
process_limits.set_limits(1 << 28, seconds=50)
print(resource.getrlimit(resource.RLIMIT_AS)[1], resource.getrlimit(resource.RLIMIT_FSIZE)[1])
print(resource.getrlimit(resource.RLIMIT_CPU)[1])
try:
    bytes(1 << 29)
except MemoryError:
    print("too much")
"""
BECOME = """
from minorm.labs.sealed import process_limits
import os
process_limits.become(61234)
process_limits.drop_rights()
print(os.getresuid(), os.getresgid(), os.getgroups())
try:
    os.setuid(0)
except OSError:
    print("for good")
"""
CHILD = """
from minorm.labs.sealed import process_limits
import os, time
process_limits.end_with(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_memory_and_files() -> None:
    assert alone(LIMITED).split() == [str(1 << 28), str(process_limits.FILE_SIZE), "50", "too", "much"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can")
def test_another_user() -> None:
    assert alone(BECOME).splitlines() == ["(61234, 61234, 61234) (61234, 61234, 61234) []", "for good"]


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_the_end_of_its_parent_is_its_end() -> None:
    parent = (
        "import os, subprocess, sys; child = subprocess.Popen([sys.executable, '-I', '-S', '-c', sys.argv[1], "
        "str(os.getpid()), sys.argv[2]], stdout=subprocess.PIPE, text=True); print(child.stdout.readline(), flush=True)"
    )
    command = [sys.executable, "-c", parent, BEGIN + CHILD, str(walls.PACKAGE)]
    pid = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")
