"""The first moments of the command line: which processes it is, what Ctrl-C and a broken environment do there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

import minorm as mn
from minorm.support.startup import _is_importing, is_command_line, startup


@pytest.mark.parametrize(
    ("argv", "original", "expected"),
    [
        (["-m", "train"], ["python", "-m", "minorm", "train"], True),
        (["-m"], ["python", "-X", "dev", "-m", "minorm.cli"], True),
        (["-m", "-m", "minorm"], ["python", "-mminorm", "-m", "minorm"], True),
        (["/usr/bin/minorm", "train"], ["python", "/usr/bin/minorm", "train"], True),
        (["minorm.exe"], ["python", "minorm.exe"], True),
        (["-m", "minorm"], ["python", "-m", "pytest", "minorm"], False),
        (["-m"], ["python", "-m", "minorm.labs.calling.worker"], False),
        (["-c", "-m", "minorm"], ["python", "-c", "import minorm", "-m", "minorm"], False),
        (["train.py"], ["python", "train.py"], False),
        (["minorm-train"], ["python", "minorm-train"], False),
        ([""], ["python"], False),
        ([], ["python"], False),
        (["-m", "minorm"], [], False),
    ],
)
def test_which_processes_are_the_command_line(argv: list[str], original: list[str], expected: bool) -> None:
    assert is_command_line(argv, original) is expected


def python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=60, check=False, env=os.environ | environment
    )


def test_little_is_imported_before_ctrl_c_is_handled() -> None:
    """Without the packages of `site`, which other distributions extend; so NumPy is missing afterwards."""
    code = f"import sys; sys.path.insert(0, {os.path.dirname(os.path.dirname(mn.__file__))!r}); import minorm"
    found = python("-S", "-X", "importtime", "-c", code).stderr
    before = found.partition(" minorm.support.startup\n")[0]
    assert "minorm.support.safe_names" in before
    assert not {"re", "enum", "typing", "signal", "numpy"} & {
        line.rpartition("|")[2].strip() for line in before.splitlines()
    }


def test_a_program_that_imports_the_library_keeps_its_handlers() -> None:
    program = """
        import signal, sys
        import minorm
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert sys.excepthook is sys.__excepthook__ and sys.unraisablehook is sys.__unraisablehook__
        print("as they were")
    """
    assert python("-c", "\n".join(line.strip() for line in program.splitlines())).stdout == "as they were\n"
    assert signal.getsignal(signal.SIGINT) is not startup.interrupt


def test_the_library_raises_what_the_command_line_says() -> None:
    done = python("-c", "import minorm", MINORM_MAX_LEVEL="v5")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    said = "ValueError: minorm: MINORM_MAX_LEVEL='v5' in the environment; expected baseline, v3, v4 or amx"
    assert said in done.stderr


@pytest.mark.parametrize("name", ["minorm", "minorm.cli"])
def test_an_error_while_the_library_is_imported_is_one_line(name: str) -> None:
    done = python("-m", name, "check", "x", MINORM_MAX_LEVEL="v5")
    assert done.returncode == 1
    assert done.stderr == "minorm: MINORM_MAX_LEVEL='v5' in the environment; expected baseline, v3, v4 or amx\n"
    assert done.stdout == ""
    assert "Traceback" in python("-m", name, "check", "x", "--traceback", MINORM_MAX_LEVEL="v5").stderr


class Ended(BaseException):
    """In place of the process's end."""


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def exit_(code: int) -> Any:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", exit_)
    monkeypatch.setattr(startup, "ready", False)
    monkeypatch.setattr(startup, "pressed", False)


def test_ctrl_c_ends_where_nobody_would_catch_it(end: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Ended, match="130"):
        startup.interrupt(signal.SIGINT, None)
    monkeypatch.setattr(startup, "ready", True)
    with pytest.raises(KeyboardInterrupt):
        startup.interrupt(signal.SIGINT, sys._getframe())
    with pytest.raises(Ended, match="130"):  # pressed again
        startup.interrupt(signal.SIGINT, sys._getframe())


def test_ctrl_c_ends_where_an_import_would_swallow_it(
    end: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "pressing_ctrl_c.py").write_text(
        "import sys\nfrom minorm.support.startup import startup\nstartup.interrupt(2, sys._getframe())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(startup, "ready", True)
    assert not _is_importing(sys._getframe())
    with pytest.raises(Ended, match="130"):
        import pressing_ctrl_c  # noqa: F401


def test_an_interrupt_that_python_would_ignore_is_not(end: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(sys, "__unraisablehook__", seen.append)

    class What:
        exc_type: type[BaseException] = KeyboardInterrupt

    with pytest.raises(Ended, match="130"):
        startup.unraisablehook(What)
    What.exc_type = ValueError
    startup.unraisablehook(What)
    assert seen == [What]


def test_errors_after_the_start_are_shown_as_ever(end: None, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "__excepthook__", lambda *what: seen.append(what[0]))
    monkeypatch.setattr(startup, "begun", True)
    startup.excepthook(ValueError, ValueError("x"), None)
    monkeypatch.setattr(startup, "begun", False)
    startup.excepthook(AssertionError, AssertionError("x"), None)  # a fault of ours: where it arose is worth knowing
    assert seen == [ValueError, AssertionError]
    startup.excepthook(ImportError, ImportError("no numpy"), None)
    assert capfd.readouterr().err == "minorm: no numpy\n"
    with pytest.raises(Ended, match="130"):
        startup.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)


def test_all_public_names_are_there_after_the_import() -> None:
    shown = python("-c", "import minorm; print(*dir(minorm)); print(*vars(minorm))").stdout.splitlines()
    for listed in shown:
        assert {"Tensor", "tensor", "zeros", "cat", "nn", "optim", "functional", "cuda"} <= set(listed.split())
    assert {"explain", "autocast"} <= set(shown[0].split())  # loaded when they are asked for
    assert callable(mn.tensor)
