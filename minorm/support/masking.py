"""What files, folders and people are called, as text that is safe to show.

A name may hold anything: bytes that move a cursor or colour a terminal, letters that turn a line around, a line break
that begins a false line of output, bytes that are not UTF-8. Each of those is shown as its escape, so that a reader
sees it, and no terminal acts on it.
"""

from __future__ import annotations

import re

_CARRIED = re.compile(r"(?<!\\)((?:\\\\)*)\\udc([89a-f][0-9a-f])")  # as repr shows what PEP 383 makes of a byte
_AS_BYTE = r"\1\\x\2"
FORMULA = ("=", "+", "-", "@")  # with which a cell of a spreadsheet begins to compute


def printable(text: object) -> str:
    r"""In one line: what `str.isprintable` denies becomes its escape, `\x1b`, `\n` or `\u202e`.

    A byte of a file's name that is not UTF-8 comes as that byte: `j\xfcrgen`.
    """
    shown = str(text)
    return shown if shown.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in shown)


def quoted(name: object) -> str:
    r"""In quotes, as `repr` does it, but for a byte that is not UTF-8, which comes as in `printable`: `'j\xfcrgen'`."""
    return _CARRIED.sub(_AS_BYTE, repr(name))


def printable_lines(text: object) -> str:
    """The same of several lines, whose line breaks stay."""
    return "\n".join(map(printable, str(text).split("\n")))


def message(text: object) -> str:
    """The same of an error or a warning: all lines but the first are indented, so that no name begins a line.

    Python's own errors name files as `repr` does; a byte that is not UTF-8 looks the same there too.
    """
    first, *rest = printable_lines(_CARRIED.sub(_AS_BYTE, str(text))).split("\n")
    return "\n".join([first, *(line if not line or line.startswith("  ") else f"  {line}" for line in rest)])


def for_page(text: object) -> str:
    """The same for HTML, between tags and in attributes."""
    import html  # late: the first moments of a command are counted (startup.py), and this takes a millisecond

    return html.escape(printable_lines(text))


def for_spreadsheet(text: object) -> str:
    """In one line, with an apostrophe in front of what a spreadsheet would take for a formula."""
    shown = printable(text)
    return f"'{shown}" if shown.startswith(FORMULA) else shown


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # how Python carries a byte that is not UTF-8: PEP 383
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
