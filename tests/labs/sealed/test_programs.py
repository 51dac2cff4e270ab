"""The trial of a process that compiles: its attempts succeed without walls, and fail behind them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minorm.labs.sealed import compile_process, compiler, finding, programs

GCC = compiler.LINK[0]
needs_gcc = pytest.mark.skipif(shutil.which(GCC) is None, reason="no gcc")
needs_walls = pytest.mark.skipif(not finding.find().writes, reason="no walls behind which a compiler may run")
WITHOUT = [(), ("mounts", "user")]


@pytest.fixture
def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], Any]]:
    """Made here, without walls."""
    monkeypatch.chdir(tmp_path)
    hidden = tmp_path / "hidden.py"
    hidden.write_text("x = 'a line that is no C'\n")
    plan = {"task": {"programs": [GCC], "files": [str(hidden)]}, "share": (1 << 20, 8)}
    return programs.attempts(plan) | programs.filling(plan)


@needs_gcc
@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="calls of Linux")
@pytest.mark.parametrize(
    "name",
    ["include", "assemble", "printed", "another process", "namespaces", "beside this one"],
)
def test_each_attempt_succeeds_without_walls(name: str, attempts: dict[str, Callable[[], Any]]) -> None:
    (attempt,) = [attempt for words, attempt in attempts.items() if name in words]
    try:
        attempt()
    except PermissionError:
        if name != "namespaces":
            raise
        pytest.skip("this system gives users no namespaces")


@needs_gcc
def test_a_compiler_that_reads_nothing_proves_nothing(
    attempts: dict[str, Callable[[], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match=f"{GCC} works"):
        attempts[f"stop {GCC} from working"]()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(programs.NotTried, match=f"{GCC} does not run behind the walls"):
        attempts[f"stop {GCC} from working"]()


@needs_gcc
@needs_walls
@pytest.mark.parametrize("without", WITHOUT)
def test_the_walls_of_compilers_hold(without: tuple[str, ...]) -> None:
    around = finding.find(without)
    if around.writes:
        attacks = {language: compile_process.attack(around, names) for language, names in compiler.PROGRAMS.items()}
        assert attacks == {language: {"succeeded": []} for language in compiler.PROGRAMS}


@needs_gcc
@needs_walls
@pytest.mark.parametrize("without", WITHOUT)
def test_a_file_that_a_compiler_can_read_is_a_hole(without: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    if not finding.find(without).writes:
        pytest.skip("nothing says which files may be read")
    tools = compile_process._tools
    monkeypatch.setattr(compile_process, "_tools", lambda names: [*tools(names), "/etc/passwd"])
    finding._try_compilers.cache_clear()
    with pytest.raises(finding.Hole, match=r"around compilers do not hold.* include /etc/passwd.*assemble /etc"):
        finding.find(without, programs=[GCC])
    monkeypatch.setattr(compile_process, "_tools", lambda _: ["/dev/null"])
    with pytest.raises(finding.Hole, match=r"could not be tried: .* does not run behind the walls"):
        finding.find(without, programs=[GCC])
    assert finding.find(without, programs=["octave"]).stand, "what is no compiler of ours is not tried"
    finding._try_compilers.cache_clear()
