"""The commands' output is masked, in any encoding, and nothing gets past the mask."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import minorm
from minorm.cli.terminal import output

PACKAGE = Path(minorm.__file__).parent
HOSTILE = "a\x1b[31m\udcfc\u202e\nFORGED"
Capture = pytest.CaptureFixture[str]


def written(encoding: str, text: str) -> str:
    """Return the text that reaches a stream of this encoding through the mask."""
    raw = io.BytesIO()
    stream = output.Masked(io.TextIOWrapper(raw, encoding))
    assert stream.write(text) == len(text)
    stream.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp1252", "utf-16"])
def test_every_text_can_be_written_in_every_encoding(encoding: str) -> None:
    assert written(encoding, "a\x1b[31m\n") == "a\\x1b[31m\n"
    shown = written(encoding, "caf\xe9 \u732b …")
    assert shown == {"utf-8": "café 猫 …", "utf-16": "café 猫 …"}.get(
        encoding, {"ascii": r"caf\xe9 \u732b \u2026", "latin-1": r"café \u732b \u2026"}.get(encoding, r"café \u732b …")
    )


def test_a_line_is_one_line(capsys: Capture) -> None:
    output.say(HOSTILE)
    output.note(HOSTILE)
    said = capsys.readouterr()
    assert said.out == said.err == "a\\x1b[31m\\xfc\\u202e\\nFORGED\n"


def test_an_error_has_lines_of_which_none_looks_like_another_message(capsys: Capture) -> None:
    output.complain("two:\n  one\n" + HOSTILE)
    assert capsys.readouterr().err == "two:\n  one\n  a\\x1b[31m\\xfc\\u202e\n  FORGED\n"


def test_json_has_null_for_nan_and_infinity() -> None:
    value = {"a": [float("nan"), 1.5, {"b": (float("inf"), -float("inf"), 2)}], "c": float("nan")}
    assert json.loads(output.json_text(value), parse_constant=pytest.fail) == {
        "a": [None, 1.5, {"b": [None, None, 2]}],
        "c": None,
    }


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_json_reads_back_to_the_same(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"name": HOSTILE + "é猫\U000e0041\x7f\x9b", "n": [1, None]}
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding))
    with output.masked():
        output.show_json(value)
    text = raw.getvalue().decode(encoding)
    assert json.loads(text) == value
    assert all(c.isprintable() or c == "\n" for c in text)
    assert ("é猫" in text) is (encoding == "utf-8")


def test_what_others_write_is_masked_meanwhile_and_not_after(capsys: Capture) -> None:
    before = sys.stdout, sys.stderr
    with output.masked(), output.masked():  # around a bar, within a command
        print("\x1b]0;x\x07")
        sys.stderr.writelines(["\x1b[1m", "\n"])
        assert not sys.stdout.isatty()
        with pytest.raises(io.UnsupportedOperation):
            sys.stdout.fileno()
        assert output.unmasked(sys.stdout) is before[0]
    assert (sys.stdout, sys.stderr) == before
    said = capsys.readouterr()
    assert said.out == "\\x1b]0;x\\x07\n"
    assert said.err == "\\x1b[1m\n"


def test_a_process_without_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with output.masked():
        output.say("x")
        assert sys.stdout is None


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_question_is_asked_at_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, shown, answer in ((Terminal, Terminal, "y"), (Terminal, io.StringIO, ""), (io.StringIO, Terminal, "")):
        monkeypatch.setattr(sys, "stdin", given("y \n"))
        stderr = shown()
        monkeypatch.setattr(sys, "stderr", stderr)
        with output.masked():
            assert output.ask("Run \x1b[31m.py? [y/N]") == answer
        assert stderr.getvalue() == (r"Run \x1b[31m.py? [y/N] " if answer else "")


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "minorm", *words], capture_output=True, check=False, env={**os.environ, **environment}
    )


def test_python_s_last_word_is_masked_as_well(tmp_path: Path) -> None:
    """A traceback goes out when `main` has ended."""
    done = command("plot", f"{tmp_path}/{HOSTILE}", "--traceback")
    assert done.returncode == 1
    assert b"Traceback" in done.stderr
    assert b"FileNotFoundError" in done.stderr
    assert all(chr(byte).isprintable() or byte == 10 for byte in done.stderr)


def test_an_ascii_terminal_stops_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "café"
    folder.mkdir()
    encoded = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii:strict"}
    done = command("labs", "start", "0", "-o", str(folder), **encoded)
    assert done.returncode == 0, done.stderr
    assert rb"caf\xc3\xa9/lab00_axes.py" in done.stdout
    assert done.stdout.isascii()


WRITERS = {
    "print": {
        "cli/terminal/output.py",
        "config.py",
    },  # config.py: show_config, whose purpose it is, prints what is ours
    "Console": set(),  # of rich: Screen is the one
    "sys.stdout.write": set(),
    "sys.stderr.write": {"distributed/mpi.py"},  # through the mask, if one is set
}


def test_nothing_is_printed_elsewhere() -> None:
    found: dict[str, set[str]] = {name: set() for name in WRITERS}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        if not any(f"{name}(" in text for name in WRITERS):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and (called := ast.unparse(node.func)) in WRITERS:
                found[called].add(path.relative_to(PACKAGE).as_posix())
    assert found == WRITERS


def test_a_stream_s_other_attributes_are_the_stream_s() -> None:
    raw: Any = io.TextIOWrapper(io.BytesIO(), "latin-1")
    assert output.Masked(raw).encoding == "latin-1"
    assert not output.Masked(raw).closed
