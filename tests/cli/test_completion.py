"""Tab completion, asked of the shells themselves."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from minorm import cli

LINES = [  # what is typed, and what a Tab makes of its last word
    ("minorm ev", "evaluate"),
    ("minorm train --opt", "--optimizer"),
    ("minorm train --optimizer adamw --data fo", "folder"),
    ("minorm labs li", "list"),
    ("minorm labs grade --ref", "--reference"),
    ("minorm labs start --lab", "--lab-dir"),
    ("minorm predict run pict", "picture.png"),
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a picture, and with a command `minorm`, as fish completes no other."""
    (tmp_path / "minorm").write_text("#!/bin/sh\n")
    (tmp_path / "minorm").chmod(0o755)
    (tmp_path / "picture.png").touch()
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    path = f"{home}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "HOME": str(home), "ZDOTDIR": str(home), "PATH": path, "TERM": "dumb"}


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


def need(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")


def test_bash(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need("bash")
    text = script("bash", capsys)
    for line, wanted in LINES:
        ask = f'COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _minorm; echo "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", f"{text}\n{ask}"], capture_output=True, text=True, check=True, cwd=home)
        assert done.stderr == ""
        assert done.stdout.split() == ([] if "." in wanted else [wanted])  # files are what `-o default` adds


def test_fish(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need("fish")
    folder = home / ".config" / "fish" / "completions"
    folder.mkdir(parents=True)
    (folder / "minorm.fish").write_text(script("fish", capsys))
    for line, wanted in LINES:
        command = ["fish", "-c", f"complete -C '{line}'"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=home, env=environment(home))
        assert done.stdout.split() == [wanted], line


@pytest.mark.parametrize("sourced", [False, True])
def test_zsh(home: Path, capsys: pytest.CaptureFixture[str], sourced: bool) -> None:
    """From the first Tab on; a zsh completes at a terminal alone, so it is given one."""
    need("zsh")
    pty = pytest.importorskip("pty")
    (home / "_minorm").write_text(script("zsh", capsys))
    (home / ".zshrc").write_text(
        f"{'' if sourced else f'fpath=({home} $fpath)'}\nautoload -U compinit && compinit -u -D\n"
        f"{f'source {home}/_minorm' if sourced else ''}\nPS1='ready> '\n"
    )
    for line, wanted in LINES[:1] if sourced else LINES:
        master, slave = pty.openpty()
        process = subprocess.Popen(
            ["zsh", "-d", "-i"], stdin=slave, stdout=slave, stderr=slave, cwd=home, env=environment(home),
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        try:
            await_text(master, "ready> ")
            os.write(master, f"{line}\t".encode())
            await_text(master, f"{line.rpartition(' ')[0]} {wanted}")
        finally:
            process.kill()
            process.wait()
            os.close(master)


def await_text(terminal: int, wanted: str, seconds: float = 20) -> None:
    """Read what the shell shows until this stands there."""
    seen, end = "", time.monotonic() + seconds
    while wanted not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
        assert ready, f"{wanted!r} is not in {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace")
