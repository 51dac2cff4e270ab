"""Makes the names of files, folders and people safe to show.

A name may contain anything: bytes that move a cursor or colour a terminal, letters that reverse a line, a line break
that begins a false line of output, bytes that are not UTF-8. Each such character is shown as an escape, so that a
reader sees it and no terminal interprets it.
"""

from __future__ import annotations

_CARRIED = r"(?<!\\)((?:\\\\)*)\\udc([89a-f][0-9a-f])"  # repr of a byte that PEP 383 escapes
_AS_BYTE = r"\1\\x\2"
FORMULA = ("=", "+", "-", "@")  # a cell that begins with one of them is a formula


def printable(text: object) -> str:
    r"""Return the text in one line; each character that is not printable becomes an escape, such as `\x1b` or `\u202e`.

    A byte of a file's name that is not UTF-8 is shown by its value, such as `j\xfcrgen`.
    """
    shown = str(text)
    return shown if shown.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in shown)


def quoted(name: object) -> str:
    r"""Return repr(name), with bytes that are not UTF-8 in the same form as in `printable`, such as `'j\xfcrgen'`."""
    return _with_bytes(repr(name))


def printable_lines(text: object) -> str:
    """Return the text after applying `printable` to each line; line breaks stay."""
    return "\n".join(map(printable, str(text).split("\n")))


def message(text: object) -> str:
    """Return an error or a warning as printable text; later lines are indented, so that no name begins a line.

    Python's own errors show the names of files by `repr`. Bytes in these names that are not UTF-8 are shown in the same
    form as by `printable`.
    """
    first, *rest = printable_lines(_with_bytes(str(text))).split("\n")
    return "\n".join([first, *(line if not line or line.startswith("  ") else f"  {line}" for line in rest)])


def for_page(text: object) -> str:
    """Return the text in printable form and escaped for HTML, for use between tags and in attributes."""
    import html  # late: a command must start fast (startup.py), and this takes a millisecond

    return html.escape(printable_lines(text))


def for_spreadsheet(text: object) -> str:
    """Return the text in one line, with an apostrophe in front if a spreadsheet would read it as a formula."""
    shown = printable(text)
    return f"'{shown}" if shown.startswith(FORMULA) else shown


def _with_bytes(shown: str) -> str:
    """Return a text that has names by `repr`, with bytes that are not UTF-8 by their value, as in `printable`."""
    if "\\udc" not in shown:
        return shown
    import re  # late: Ctrl-C is not handled before this module is imported (startup.py), and this takes milliseconds

    return re.sub(_CARRIED, _AS_BYTE, shown)


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8, as PEP 383 stores it
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
