"""Writes the output of commands, and escapes characters in names that could control the terminal.

    say, note     one line, on standard output or on standard error
    complain      an error, on standard error
    ask           a question at a terminal
    show          a text of several lines; names in it must be escaped already
    show_json     a value for programs

A whole command runs in the block `with masked()`, which also escapes the output of argparse, warnings, tracebacks and
csv. Only `minorm/cli/terminal/screen.py` bypasses this block, because colours are escape sequences too.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minorm.support.safe_names import message, printable, printable_lines


def say(line: object) -> None:
    """Print one line on standard output."""
    print(printable(line), flush=True)


def note(line: object) -> None:
    """Print one line on standard error."""
    print(printable(line), file=sys.stderr, flush=True)


def complain(text: object) -> None:
    """Print an error on standard error; all lines after the first line are indented."""
    print(message(text), file=sys.stderr, flush=True)


def show(text: object, end: str = "\n") -> None:
    """Print several lines on standard output."""
    print(printable_lines(text), end=end, flush=True)


def show_json(value: Any, indent: int | None = 2) -> None:
    """Print a value as JSON on standard output. A program that reads this JSON gets every name unchanged."""
    show(json_text(value, indent))


def json_text(value: Any, indent: int | None = 2) -> str:
    """Return a value as JSON. Characters that could control a terminal are escaped; NaN and infinity become null."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = json.dumps(_finite(value), indent=indent, ensure_ascii=not encoding.lower().startswith("utf"))
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _finite(value: Any) -> Any:
    """Return the value with None in place of NaN and infinity, which are not part of JSON."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def safe(text: str, encoding: str | None) -> str:
    """Return the text with escapes for characters that could control a terminal or that the encoding lacks.

    Tabs are not escaped: they come from a table or from the user's own code. Tabs in names were escaped before.
    """
    shown = "\t".join(map(printable_lines, text.split("\t")))
    return shown.encode(encoding, "backslashreplace").decode(encoding) if encoding else shown


def ask(question: str) -> str:
    """Print a question on standard error, and return the typed answer.

    Return "" if standard input or error is not a terminal.
    """
    if sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and unmasked(sys.stderr).isatty()):
        return ""
    print(printable_lines(question), end=" ", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def unmasked(stream: Any) -> Any:
    """Return the stream below `stream` if this is a Masked stream.

    Only the stream below knows whether it is a terminal.
    """
    while isinstance(stream, Masked):
        stream = stream.raw
    return stream


class Masked:
    """A stream that passes each text through `safe` and then writes the text to the stream `raw`."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write the escaped text; return the length of the given text, as `write` of any stream does."""
        self.raw.write(safe(text, getattr(self.raw, "encoding", None)))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write the lines one after another."""
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        """Return False, so that Python does not colour its messages.

        The escape sequences of colours would be shown as text.
        """
        return False

    def fileno(self) -> int:
        """Raise io.UnsupportedOperation, because text written to a file descriptor would not be escaped."""
        raise io.UnsupportedOperation("fileno")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def masked(for_good: bool = False) -> Iterator[None]:
    """Escape all text on standard output and standard error in the block.

    With `for_good=True`, text is also escaped after the block.
    """
    before = sys.stdout, sys.stderr
    streams: Any = [stream and Masked(stream) for stream in before]  # None if a process has no such stream
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        if not for_good:
            sys.stdout, sys.stderr = before
