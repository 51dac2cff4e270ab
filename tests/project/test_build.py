"""setup.py on a project of one kernel: what it builds, what it builds again, and how it says that something is missing.

Compilers that lack something are played by a script in front of the real one, named in CC.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("Cython")
pytest.importorskip("setuptools")

CHECKOUT = Path(__file__).parents[2]
X86 = platform.machine().lower() in ("x86_64", "amd64")
LEVELS = ["baseline", "v3", "v4"] if X86 else ["baseline"]
COMPILER = shutil.which("gcc") or shutil.which("cc")
TOY = """# cython: language_level=3
from cython.parallel cimport prange
from minorm_ext.room.half cimport half

def total(int n, int threads):
    cdef int i
    cdef long sum = 0
    for i in prange(n, nogil=True, num_threads=threads):
        sum += half(2 * i)
    return sum
"""
HALF = """
cdef inline int half(int i) noexcept nogil:
    return i // 2
"""

if not (CHECKOUT / "setup.py").exists() or COMPILER is None:
    pytest.skip("needs a checkout and a compiler", allow_module_level=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "minorm_ext"
    for level in ("baseline", "v3", "v4"):
        (package / level).mkdir(parents=True)
        (package / level / "__init__.py").touch()
    for folder in ("runtime", "room"):
        (package / folder).mkdir()
        (package / folder / "__init__.pxd").touch()
    for name in ("__init__.py", "runtime/machine.pyx", "runtime/switch.pyx", "runtime/processors.h"):
        shutil.copy(CHECKOUT / "minorm_ext" / name, package / name)
    (package / "room" / "toy.pyx").write_text(TOY)
    (package / "room" / "half.pxd").write_text(HALF)
    shutil.copy(CHECKOUT / "setup.py", tmp_path)
    return tmp_path


def build(project: Path, *options: str, cc: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "CFLAGS", "LDSHARED")}
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace", *options],
        cwd=project,
        env=environment | ({"CC": cc} if cc else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=200,
    )


def compiler(project: Path, pattern: str, then: str) -> str:
    """The real compiler behind a script; `then` is what happens to arguments that fit the shell pattern."""
    script = project / "cc.sh"
    script.write_text(
        f'#!/bin/bash\nkept=()\nfor a in "$@"; do case "$a" in {pattern}) {then};; *) kept+=("$a");; esac; done\n'
        f'exec {COMPILER} "${{kept[@]}}"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def compiler_without(project: Path, pattern: str) -> str:
    return compiler(project, pattern, "exit 1")


def ask(project: Path, expression: str) -> str:
    program = f"import minorm_ext; print({expression})"
    result = subprocess.run([sys.executable, "-c", program], cwd=project, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def compiled(project: Path) -> dict[str, int]:
    """Level and module -> when it was built."""
    files = (project / "minorm_ext").glob("*/*.so")
    return {f"{file.parent.name}.{file.name.split('.')[0]}": file.stat().st_mtime_ns for file in files}


def sentence(result: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of a failed build."""
    assert result.returncode != 0
    assert "Traceback" not in result.stdout
    return result.stdout.strip().splitlines()[-1]


def test_every_level_is_built_and_only_what_changed_again(project: Path) -> None:
    result = build(project)
    assert result.returncode == 0, result.stdout
    first = compiled(project)
    assert sorted(first) == sorted(["baseline.machine", "baseline.switch", *(f"{level}.toy" for level in LEVELS)])
    for level in LEVELS:
        if level in ask(project, "minorm_ext.levels()"):
            assert ask(project, f"minorm_ext.kernels('toy', level={level!r}).total(10, 2)") == "45"

    assert list((project / "minorm_ext" / "__pycache__").glob("__init__.*.pyc"))

    # Generated C stays under build/.
    assert not list((project / "minorm_ext").rglob("*.c"))
    assert list((project / "build").rglob("toy.c"))

    # The flags that change numbers are nowhere, and those of a level only there.
    commands = [line for line in result.stdout.splitlines() if " -c " in line]
    for flag in ("-ffast-math", "-Ofast", "-fassociative-math", "-funsafe-math-optimizations", "-march=native"):
        assert flag not in result.stdout
    for line in commands:
        assert ("-march=x86-64-v4" in line) == ("/v4/" in line)
        assert ("-march=x86-64-v3" in line) == ("/v3/" in line)

    assert build(project).returncode == 0
    assert compiled(project) == first

    # A changed .pxd makes the kernels that use it again, and no other.
    (project / "minorm_ext" / "room" / "half.pxd").write_text(HALF.replace("i // 2", "i // 2 + 1"))
    assert build(project).returncode == 0
    assert ask(project, "minorm_ext.kernels('toy').total(10, 2)") == "55"
    assert compiled(project)["baseline.machine"] == first["baseline.machine"]


def test_only_builds_what_is_named(project: Path) -> None:
    (project / "minorm_ext" / "room" / "broken.pyx").write_text("this is no Cython(\n")
    assert build(project, "--only", "machine").returncode == 0
    assert sorted(compiled(project)) == ["baseline.machine"]
    assert "--only: no module conv in minorm_ext; there are broken, machine, switch, toy" in sentence(
        build(project, "--only", "conv")
    )


@pytest.mark.skipif(not X86, reason="one level here")
def test_level_builds_one_instruction_set_and_leaves_the_others(project: Path) -> None:
    other = project / "minorm_ext" / "v4" / "toy.of-an-earlier-build.so"
    other.touch()
    before = compiled(project)
    result = build(project, "--only", "toy", "--level", "v3")
    assert result.returncode == 0, result.stdout
    assert "minorm: kernels for v3;" in result.stdout
    assert compiled(project).keys() == {"v3.toy", "v4.toy"}
    assert compiled(project)["v4.toy"] == before["v4.toy"]


@pytest.mark.skipif(not X86, reason="one level here")
def test_a_level_of_the_module_that_lists_the_levels_leaves_them_in_the_list(project: Path) -> None:
    """Their libraries are still there."""
    result = build(project, "--only", "machine", "--level", "baseline")
    assert result.returncode == 0, result.stdout
    assert re.search(r"-DMINORM_LEVELS=\W+baseline v3 v4 amx\W", result.stdout)


@pytest.mark.skipif(not X86, reason="one level here")
def test_a_level_that_cannot_be_built_is_said_and_nothing_is_built(project: Path) -> None:
    last = sentence(build(project, "--only", "toy", "--level", "v5"))
    assert "--level: no level v5 in minorm_ext; there are baseline, v3, v4" in last
    last = sentence(build(project, "--only", "machine,toy", "--level", "v3"))
    assert "--level: machine of --only is compiled for baseline alone; got v3" in last
    last = sentence(build(project, "--level", "v4", cc=compiler_without(project, "-march=x86-64-v4")))
    assert "--level: the C compiler does not know v4; it knows baseline, v3" in last
    assert not compiled(project)


EDITABLE = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
WHEEL = EDITABLE.replace("build_editable", "build_wheel")


def install(project: Path, hook: str, store: Path | None = None) -> str:
    """Call the hook that pip calls once the packages that a build needs are there; return its output."""
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "CFLAGS", "LDSHARED")}
    environment |= {"PYTHONPATH": ""} | ({"MINORM_KERNEL_STORE": str(store)} if store else {})
    wheels = project / "wheels"
    wheels.mkdir(exist_ok=True)
    run = [sys.executable, "-c", hook, str(wheels)]
    result = subprocess.run(
        run, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


def compilations(printed: str) -> int:
    """How many kernels were compiled."""
    return len(re.findall(r"^.* -c build/\S+\.c ", printed, re.MULTILINE))


@pytest.fixture
def distribution(project: Path) -> Path:
    """The project with what makes a wheel of it."""
    (project / "minorm").mkdir()
    (project / "minorm" / "config.py").write_text('__version__ = "1.0"\n')
    (project / "minorm" / "__init__.py").touch()
    (project / "examples" / "labs").mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, project)
    return project


def test_a_second_installation_compiles_nothing_again(distribution: Path) -> None:
    """Another extra, with -e or without it: the kernels are the same."""
    (distribution / "minorm_ext" / "room" / "toy.pyx").unlink()
    assert compilations(install(distribution, EDITABLE)) == 2
    first = compiled(distribution)
    assert compilations(install(distribution, EDITABLE)) == 0
    assert compilations(install(distribution, WHEEL)) == 0
    assert compiled(distribution) == first


def test_an_installation_compiles_what_changed(distribution: Path) -> None:
    assert compilations(install(distribution, EDITABLE)) == len(LEVELS) + 2
    (distribution / "minorm_ext" / "room" / "half.pxd").write_text(HALF.replace("i // 2", "i // 2 + 1"))
    assert compilations(install(distribution, WHEEL)) == len(LEVELS)  # not machine and switch
    assert compilations(install(distribution, EDITABLE)) == 0
    assert ask(distribution, "minorm_ext.kernels('toy').total(10, 2)") == "55"


def test_checkouts_may_share_a_store(distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    store = tmp_path_factory.mktemp("store")
    other = tmp_path_factory.mktemp("other") / "checkout"
    shutil.copytree(distribution, other)
    assert compilations(install(distribution, EDITABLE, store)) == len(LEVELS) + 2
    assert compilations(install(other, EDITABLE, store)) == 0
    assert ask(other, "minorm_ext.kernels('toy').total(10, 2)") == "45"


def test_a_wheel_has_no_module_that_was_moved_since_the_build_before(distribution: Path) -> None:
    gone = distribution / "minorm" / "gone.py"
    gone.touch()
    install(distribution, WHEEL)
    gone.unlink()
    install(distribution, WHEEL)
    (wheel,) = (distribution / "wheels").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "minorm/config.py" in names
    assert "minorm/gone.py" not in names


def test_another_header_compiler_or_flag_is_another_kernel(project: Path) -> None:
    """The contents that an object is made from decide whether it is compiled again, not the time of its files."""
    assert build(project, "--only", "machine,switch").returncode == 0
    assert compilations(build(project, "--only", "machine,switch").stdout) == 0
    header = project / "minorm_ext" / "runtime" / "processors.h"
    times = header.stat().st_atime_ns, header.stat().st_mtime_ns
    header.write_text(header.read_text() + "/* changed */\n")
    os.utime(header, ns=times)
    assert compilations(build(project, "--only", "switch").stdout) == 1
    printed = build(project, "--only", "switch", cc=compiler(project, "-no-such-flag", "true")).stdout
    assert compilations(printed) == 1
    assert compilations(build(project, "--only", "switch", "--force").stdout) == 1
    assert len(list((project / "build" / "kernels").glob("minorm_ext.baseline.switch.*.so"))) == 3


def test_without_openmp_the_build_is_serial(project: Path) -> None:
    result = build(project, cc=compiler_without(project, "-fopenmp"))
    assert result.returncode == 0, result.stdout
    assert "no OpenMP, so serial" in result.stdout
    assert ask(project, "minorm_ext.openmp(), minorm_ext.kernels('toy').total(10, 2)") == "0 45"


@pytest.mark.skipif(not X86, reason="one level here")
def test_a_compiler_that_does_not_know_a_level(project: Path) -> None:
    result = build(project, "--only", "machine", cc=compiler_without(project, "-march=x86-64-v4"))
    assert result.returncode == 0, result.stdout
    build(project, "--only", "switch")  # minorm_ext imports it
    assert ask(project, "minorm_ext.baseline.machine.built_levels()") == "('baseline', 'v3')"


@pytest.mark.skipif(not X86, reason="one level, without flags of its own, here")
@pytest.mark.parametrize("flag", ["-fvect-cost-model=*", "-fno-thread-jumps"])
def test_a_compiler_that_does_not_know_what_spares_gcc_work(project: Path, flag: str) -> None:
    """As clang, where both are errors."""
    result = build(project, cc=compiler_without(project, flag))
    assert result.returncode == 0, result.stdout
    assert sorted(compiled(project)) == sorted(
        ["baseline.machine", "baseline.switch", *(f"{level}.toy" for level in LEVELS)]
    )


def test_modules_declare_that_they_need_no_global_lock(project: Path) -> None:
    assert build(project, "--only", "machine").returncode == build(project, "--only", "switch").returncode == 0
    assert "Py_MOD_GIL_NOT_USED" in (project / "build" / "cython" / "minorm_ext" / "runtime" / "machine.c").read_text()


def test_without_a_compiler(project: Path) -> None:
    last = sentence(build(project, cc="no-such-cc"))
    assert "the C compiler `no-such-cc` is missing or does not work" in last
    assert "apt-get install gcc" in last


def test_without_the_python_headers(project: Path) -> None:
    last = sentence(build(project, cc=compiler(project, "-I*python3*", "true")))
    assert "Python.h of Python 3." in last
    assert "apt-get install python3-dev" in last
