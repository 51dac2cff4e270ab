"""rich with hostile names: its own colours and movements come through, those in a text do not."""

from __future__ import annotations

import io
import re
import sys

import pytest

pytest.importorskip("rich")

from rich.table import Table
from rich.text import Text

from minorm.cli.terminal import output, training_progress
from minorm.cli.terminal.screen import Screen
from minorm.training import Score

NAME = "cat\x1b[31m\x9b2J\u202e[red]:star:\udcfc"
SHOWN = r"cat\x1b[31m\x9b2J\u202e[red]:star:\xfc"
OURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # what rich writes between texts


class Terminal(io.StringIO):
    """A terminal as rich sees it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stdout a terminal from here to the end of the test."""
    found = Terminal()
    monkeypatch.setattr(sys, "stdout", found)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    return found


def test_texts_tables_and_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = in_a_terminal(monkeypatch)
    with output.masked():
        screen = Screen()
        screen.print(NAME)
        screen.print(Text(NAME, "bold"))
        table = Table(NAME, title=NAME, min_width=60)
        table.add_row(NAME)
        table.add_row(Text(NAME))
        screen.print(table)
    said = terminal.getvalue()
    assert said.count(SHOWN) == 6
    assert "\x1b[1m" in said, "bold is rich's own"
    assert all(c.isprintable() or c == "\n" for c in OURS.sub("", said))
    assert "\x1b[31m" not in said


def test_a_bar_with_a_line_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that is printed meanwhile also goes above the bar; rich would interpret it, so it is masked first."""
    terminal = in_a_terminal(monkeypatch)
    with output.masked():
        told = training_progress.BarDisplay()
        with told.following(4, 0) as after_step:
            after_step(Score())
            told.say(f"epoch {NAME}\nFORGED")
            print(f"warned {NAME}")
    said = terminal.getvalue()
    assert f"epoch {SHOWN}\\nFORGED" in said
    assert f"warned {SHOWN}" in said
    assert "\x1b[?25l" in said, "rich hides the cursor"
    assert "\x1b[31m" not in said
    assert all(c.isprintable() or c in "\r\n" for c in OURS.sub("", said))


def test_a_terminal_without_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii"))
    with output.masked():
        screen = Screen()
        screen.print(Table("é", "…"))
        screen.print("café")
        screen.file.flush()
    assert rb"caf\xe9" in raw.getvalue()
