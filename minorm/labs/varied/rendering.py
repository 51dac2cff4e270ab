"""Writes the text of a lab in a variant.

The table of a lab has the pieces of the lab's text that mention a value. A variant replaces these pieces by its own
pieces. A variant also has one more cell, after the lab's first cell, that names the variant and its values. The plain
text does not change. So one file is the solution of all variants, and stubs are made from this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from minorm.labs.cells import Cell
from minorm.labs.varied.choices import Variant, Variants

HEAD = """\
# %% [markdown]
# ## The numbers of this variant
#
# This is variant {code} of the lab. The text, the checks and the bugs use the values below. Your functions must
# use them, too: by name, or as numbers.

# %%
VARIANT = "{code}"  # the checks read this line: leave it as it is
"""
SAID = re.compile(r"^VARIANT *= *[\"'](\w{0,20})[\"']", re.MULTILINE)
FIRST_CELL = re.compile(r"^check = checker\(.*\)\n", re.MULTILINE)


def rendered(text: str, variants: Variants, variant: Variant) -> str:
    """Return the text of the lab, in the percent format, for a variant."""
    if not variant.code:
        return text
    text = with_pieces(text, variants, variant)
    first = FIRST_CELL.search(text)
    if first is None:
        raise ValueError(
            f"{variants.lab}: no line begins with `check = checker(`; expected such a line, because the values of a "
            "variant are written after it"
        )
    return f"{text[: first.end()]}\n{_cell(variants, variant)}{text[first.end() :]}"


def with_pieces(text: str, variants: Variants, variant: Variant) -> str:
    """Replace the pieces of the plain text that vary by the variant's pieces. All pieces are replaced at once."""
    pieces: dict[str, str] = {}
    for name, row in variants.rows.items():
        place = variant.places.get(name, 0)
        pieces |= dict(zip(row.texts[0], row.texts[place], strict=True))
    if not variant.code or not pieces:
        return text
    longest_first = sorted(pieces, key=len, reverse=True)
    found = re.compile("|".join(f"({_pattern(piece)})" for piece in longest_first))
    return found.sub(lambda match: pieces[longest_first[match.lastindex - 1]] if match.lastindex else match[0], text)


def missing(text: str, variants: Variants) -> list[str]:
    """Return the pieces of the table that the lab's text does not have, because only the text was changed."""
    return [
        piece for row in variants.rows.values() for piece in row.texts[0] if re.search(_pattern(piece), text) is None
    ]


def said(cells: Iterable[Cell]) -> str:
    """Return the code of the variant that a file names; empty if it names no variant."""
    for cell in cells:
        if not cell.markdown and (match := SAID.search(cell.text)):
            return match[1]
    return ""


def _pattern(piece: str) -> str:
    """Return a regular expression for the piece.

    It also matches if line breaks split the piece, even in a comment, but not inside a longer word.
    """
    words = r"\s+(?:# *)?".join(re.escape(word) for word in piece.split())
    return (
        f"{'(?<![A-Za-z0-9_])' if piece[0].isalnum() else ''}{words}{'(?![A-Za-z0-9_])' if piece[-1].isalnum() else ''}"
    )


def _cell(variants: Variants, variant: Variant) -> str:
    """Return the cell that only a variant's file has: it names the variant and its values."""
    lines = [
        f"{name.upper()} = {row.shown[variant.places[name]]}  # {row.about}\n"
        for name, row in variants.rows.items()
        if row.about
    ]
    return HEAD.format(code=variant.code) + "".join(lines)
