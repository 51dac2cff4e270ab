"""What the commands write, so that no name of a file, a class, a node or a person can control the terminal.

    say, note     one line, on standard output or on standard error
    complain      an error, on standard error
    ask           a question at a terminal
    show          a text of several lines, in which names have been masked one by one
    show_json     a value for programs

`masked` stands around a whole command, for all that writes there without us: argparse, warnings, tracebacks, csv. Only
`minorm/cli/terminal/screen.py` writes past it, as colours are escape sequences too.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minorm.support.masking import message, printable, printable_lines


def say(line: object) -> None:
    """One line on standard output."""
    print(printable(line), flush=True)


def note(line: object) -> None:
    """One line on standard error."""
    print(printable(line), file=sys.stderr, flush=True)


def complain(text: object) -> None:
    """An error on standard error; lines after its first are indented."""
    print(message(text), file=sys.stderr, flush=True)


def show(text: object, end: str = "\n") -> None:
    """Several lines on standard output."""
    print(printable_lines(text), end=end, flush=True)


def show_json(value: Any, indent: int | None = 2) -> None:
    """A value as JSON, on standard output; a program reads every name as it is, whatever is in it."""
    show(json_text(value, indent))


def json_text(value: Any, indent: int | None = 2) -> str:
    """The same as a text, in which what could control a terminal is an escape of JSON."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = json.dumps(value, indent=indent, ensure_ascii=not encoding.lower().startswith("utf"))
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def safe(text: str, encoding: str | None) -> str:
    """The lines as this encoding can write them; characters that it lacks become escapes.

    Tabs stay: they are of a table or of what the user's own code prints, as those of a name are escaped before.
    """
    shown = "\t".join(map(printable_lines, text.split("\t")))
    return shown.encode(encoding, "backslashreplace").decode(encoding) if encoding else shown


def ask(question: str) -> str:
    """The answer typed to a question on standard error; "" unless standard input and error are both a terminal."""
    if sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and unmasked(sys.stderr).isatty()):
        return ""
    print(printable_lines(question), end=" ", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def unmasked(stream: Any) -> Any:
    """The stream below the mask, which alone says whether it is a terminal."""
    while isinstance(stream, Masked):
        stream = stream.raw
    return stream


class Masked:
    """A stream whose text goes through `safe` before it is written to the stream `raw`."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """The number of characters given, as every stream has it."""
        self.raw.write(safe(text, getattr(self.raw, "encoding", None)))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """One after the other."""
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        """No: Python colours what it says to a terminal, and here a colour would be shown as its escape."""
        return False

    def fileno(self) -> int:
        """None, for the same reason, and because what is written there would not be masked."""
        raise io.UnsupportedOperation("fileno")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def masked(for_good: bool = False) -> Iterator[None]:
    """Mask standard output and error inside the block; `for_good`: also what Python writes when the process ends."""
    before = sys.stdout, sys.stderr
    streams: Any = [stream and Masked(stream) for stream in before]  # None where a process was started without
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        if not for_good:
            sys.stdout, sys.stderr = before
