"""The table of system calls against the headers of this machine; the filter, run here, against the table."""

from __future__ import annotations

import errno
import os
import platform
import re
from pathlib import Path

import pytest

from minorm.labs.sealed import seccomp, syscalls
from tests.labs.sealed.filters import said

HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}
here = pytest.mark.skipif(not syscalls.numbers(), reason="no table for this system")


@pytest.mark.skipif(platform.system() != "Linux", reason="tables of Linux")
@pytest.mark.parametrize("machine", HEADERS)
def test_the_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    paths = [Path(path) for path in HEADERS[machine] if Path(path).exists()]
    if not paths:
        pytest.skip("no headers")
    found = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", paths[0].read_text()))
    never = {name: number for name, number in syscalls.never(machine).items() if name in found}  # some are newer
    for name, number in {**syscalls.numbers(machine), **syscalls.starting(machine), **never}.items():
        theirs = "fstatat" if machine == "aarch64" and name == "newfstatat" else name
        assert int(found[theirs]) == number, name


def test_an_unknown_machine_has_no_table() -> None:
    assert syscalls.numbers("pdp11") == syscalls.starting("pdp11") == syscalls.never("pdp11") == {}


@pytest.mark.parametrize("machine", HEADERS)
def test_what_must_never_be_allowed_is_not(machine: str) -> None:
    assert not syscalls.numbers(machine).keys() & syscalls.never(machine).keys()
    assert syscalls.starting(machine).keys() & syscalls.never(machine).keys() <= {"execve", "fork"}
    assert not syscalls.starting(machine).keys() & syscalls.numbers(machine).keys()


def result(name: str, arguments: tuple[int, ...] = (), writes: bool = False, opens: bool = True) -> int:
    """Return the filter's verdict on a call."""
    return said(seccomp._program(syscalls.numbers(), writes, opens), name, arguments)


@here
def test_what_the_filter_allows_and_refuses() -> None:
    refused = seccomp.REFUSE | errno.EPERM
    assert result("read") == result("mmap") == result("exit_group") == seccomp.ALLOW
    assert result("fork") == result("socket") == result("kill") == result("execve") == refused
    assert result("clone", (0x10000,)) == seccomp.ALLOW
    assert result("clone", (17,)) == refused
    assert result("clone3") == seccomp.REFUSE | errno.ENOSYS
    assert result("tgkill", (1, 1, 9)) == refused
    assert result("prlimit64", (1,)) == refused
    assert result("prlimit64", (0,)) == seccomp.ALLOW
    assert result("prctl", (1,)) == refused  # PR_SET_PDEATHSIG
    assert result("ioctl", (0, 0x5412)) == seccomp.REFUSE | errno.ENOTTY  # TIOCSTI
    assert result("madvise", (0, 0, 4)) == seccomp.ALLOW
    assert result("madvise", (0, 0, 21)) == refused  # MADV_PAGEOUT
    assert result("openat", (0, 0, 0)) == seccomp.ALLOW
    assert result("openat", (0, 0, 1)) == seccomp.REFUSE | errno.EROFS
    assert result("openat", (0, 0, 1), writes=True) == seccomp.ALLOW
    assert result("openat", (0, 0, 0), opens=False) == seccomp.REFUSE | errno.EACCES
    assert result("renameat") == seccomp.REFUSE | errno.EROFS


@here
def test_where_a_compiler_runs_programs_start_and_nothing_else_is_new() -> None:
    allowed, refused = seccomp.ALLOW, seccomp.REFUSE | errno.EPERM
    program = seccomp._program(syscalls.numbers() | syscalls.starting(), True, True)
    assert {said(program, name) for name in ("execve", "wait4")} == {allowed}
    assert said(program, "clone", (17,)) == said(program, "clone", (0x4111,)) == allowed  # fork; vfork
    for apart in (0x8000, 0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert said(program, "clone", (apart | 17,)) == refused, hex(apart)
    for name in ("socket", "kill", "truncate", "chmod"):
        assert said(program, name) == refused
    assert said(program, "prctl", (1,)) == refused
    assert said(program, "openat", (0, 0, os.O_TRUNC)) == refused
    if "arch_prctl" in syscalls.starting():
        assert said(program, "arch_prctl", (0x1002,)) == allowed
        assert said(program, "arch_prctl", (0x1001,)) == seccomp.REFUSE | errno.EINVAL


@here
@pytest.mark.parametrize("name", ["open", "openat"])
def test_a_file_is_emptied_only_by_who_opens_it_to_write(name: str) -> None:
    """Landlock below version 3 lets O_RDONLY with O_TRUNC empty files, and the mode 3, which opens for neither."""
    if name not in syscalls.numbers():
        pytest.skip("this machine has no such call")
    refused = seccomp.REFUSE | errno.EPERM
    flags = {mode | more: mode for mode in range(4) for more in (0, os.O_CREAT, os.O_TRUNC, os.O_CREAT | os.O_TRUNC)}
    for value, mode in flags.items():
        arguments = (0, value) if name == "open" else (0, 0, value)
        wanted = mode in (os.O_WRONLY, os.O_RDWR) or (mode == os.O_RDONLY and not value & os.O_TRUNC)
        assert result(name, arguments, writes=True) == (seccomp.ALLOW if wanted else refused), oct(value)


@here
def test_truncating_by_path_is_in_no_list() -> None:
    assert "truncate" not in syscalls.numbers("x86_64")
    assert "truncate" not in syscalls.numbers("aarch64")
    assert result("ftruncate", writes=True) == seccomp.ALLOW
