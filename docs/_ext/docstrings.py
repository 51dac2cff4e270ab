"""Turns our docstrings, plain text with `code` in single quotes and indented examples, into reStructuredText.

They are written for `help()`. Here an indented block becomes a literal block, and *, | and _ stay plain characters. The
sections that napoleon reads (Args, Raises ...) are left to it.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

SECTION = re.compile(r"(Args|Arguments|Attributes|Example|Examples|Note|Raises|References|Returns|Warning|Yields):$")
CODE = re.compile(r"(`[^`]+`)")
BUILTIN = ("bool", "float", "int")  # types; the element types of the same names are others
VALUES = ("attribute", "data", "property")
MARKUP = re.compile(r"([*|\\]|_(?!\w))")
ENTRY = re.compile(r"(\w+(?:, \w+)*)(?: {2,}([^\s=].*))?")
ITEM = re.compile(r"(?:[-*]|\d+\.) ")

_kept: dict[str, list[str]] = {}  # docstrings of values between the two hooks


def to_rst(text: list[str]) -> list[str]:
    """Turn the lines of a docstring, without their common indentation, into lines of reStructuredText."""
    done: list[str] = []
    lines = list(text)
    while lines:
        line = lines.pop(0)
        if SECTION.match(line):
            body = []
            while lines and (lines[0].startswith(" ") or not lines[0]):
                body.append(lines.pop(0))
            done += [line, *_section(line, body)]
        elif table := _table([line, *lines]):
            done += ["", *table]
            del lines[: [*lines, ""].index("")]
        elif line.startswith(" "):
            block = [line]
            while lines and (lines[0].startswith(" ") or (not lines[0] and len(lines) > 1 and lines[1][:1] == " ")):
                block.append(lines.pop(0))
            done += ["", *_indented(done, block), ""]
        else:
            done.append(_plain(line))
    return done


def _table(lines: list[str]) -> list[str]:
    """Turn a table of names and, after two spaces or more, their meanings into a list of definitions.

    Return an empty list if the paragraph is not such a table.
    """
    rows = textwrap.dedent("\n".join(lines[: [*lines, ""].index("")])).split("\n")
    entries = [ENTRY.fullmatch(row) for row in rows if not row.startswith(" ")]
    if not all(entries) or not (entries[0] and entries[0][2]):
        return []
    done: list[str] = []
    for row in rows:
        if entry := ENTRY.fullmatch(row):
            done += [f"``{entry[1]}``", *([f"    {_plain(entry[2])}"] if entry[2] else [])]
        else:
            done.append(f"    {_plain(row.strip())}")
    return done


def _indented(before: list[str], block: list[str]) -> list[str]:
    """Keep a formula, a table or a drawing literally, but not the second lines of a list's items."""
    last = next((line for line in reversed(before) if line), "")
    if ITEM.match(last) and before[-1]:
        return [_plain(line) for line in block]
    return ["::", "", *block]


def _section(head: str, body: list[str]) -> list[str]:
    """Escape the entries of a section; doctests stay unchanged."""
    if head.startswith("Example"):
        return body
    entry = re.compile(r"( {4}\*{0,2}\w[\w, *]*(?: \(.*?\))?:)(.*)")
    done = []
    for line in body:
        found = entry.fullmatch(line)
        done.append(found[1] + _plain(found[2]) if found else _plain(line))
    return done


def _plain(line: str) -> str:
    """Make `code` in a line of prose literal, and escape the characters that reStructuredText reads as markup."""
    parts = CODE.split(line)
    return "".join(f"`{part}`" if CODE.fullmatch(part) else MARKUP.sub(r"\\\1", part) for part in parts)


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Convert a docstring before napoleon reads it (autodoc-process-docstring)."""
    lines[:] = to_rst(lines)
    if what in VALUES:
        _kept[name] = list(lines)


def restore(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Undo napoleon's work on a value's docstring: it takes the words before a colon on the first line for a type."""
    if what in VALUES:
        lines[:] = _kept.pop(name)


def tidy(app: Sphinx, doctree: Any) -> None:
    """Write "name (type): text" for Sphinx' "name (type) -- text", and do not link int to minorm.int (doctree-read)."""
    from sphinx.addnodes import pending_xref

    for text in list(doctree.findall(lambda node: node == " -- ")):
        text.parent.replace(text, type(text)(": "))
    for link in list(doctree.findall(pending_xref)):
        if link["reftype"] == "class" and link["reftarget"] in BUILTIN:
            link.replace_self(link.children)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process, priority=400)
    app.connect("autodoc-process-docstring", restore, priority=600)
    app.connect("doctree-read", tidy)
    return {"parallel_read_safe": True}
