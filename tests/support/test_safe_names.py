"""Names that would steer a terminal, a page or a spreadsheet, as text that does not."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minorm.support import safe_names

ANYTHING = st.text(st.characters(exclude_categories=()))  # surrogates as well, as in a name that is not UTF-8


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("cat", "cat"),
        ("Jürgen 猫 ✓", "Jürgen 猫 ✓"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b31m", r"\x9b31m"),  # the same in one byte
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\u202eexe.png", r"\u202eexe.png"),  # from right to left
        ("a\u200bb", r"a\u200bb"),  # no width
        ("\U000e0041", r"\U000e0041"),
        ("j\udcfcrgen", r"j\xfcrgen"),  # the byte 0xFC
        ("\ud800", r"\ud800"),
    ],
)
def test_a_name_is_shown_in_one_line(name: str, shown: str) -> None:
    assert safe_names.printable(name) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("cat", "'cat'"),
        ("it's", '"it\'s"'),
        ("j\udcfcrgen", r"'j\xfcrgen'"),
        ("j\udcfc\udc80\n", r"'j\xfc\x80\n'"),
        (r"a\udcfc", r"'a\\udcfc'"),  # a backslash and letters
        ("a\\\udcfc", r"'a\\\xfc'"),
        ("\ud800\x1b", r"'\ud800\x1b'"),
    ],
)
def test_a_name_in_quotes(name: str, shown: str) -> None:
    assert safe_names.quoted(name) == shown


def test_an_error_of_python_s_own_names_a_file_in_the_same_form() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        Path("nothing-here/j\udcfcrgen").read_bytes()
    assert safe_names.message(caught.value).endswith(r"'nothing-here/j\xfcrgen'")


@given(ANYTHING)
def test_what_is_shown_is_printable_and_can_be_written(text: str) -> None:
    for shown in (safe_names.printable(text), safe_names.for_spreadsheet(text)):
        assert shown.isprintable()
        shown.encode()
    assert safe_names.printable(safe_names.printable(text)) == safe_names.printable(text)
    assert safe_names.printable_lines(text).replace("\n", "").isprintable()
    assert safe_names.printable_lines(text).count("\n") == text.count("\n")


def test_every_character_that_python_does_not_call_printable_is_an_escape() -> None:
    codes = (*range(0x3100), *range(0xD7F0, 0x10100), *range(0xE0000, 0xE0200), sys.maxunicode)
    hidden = [chr(code) for code in codes if not chr(code).isprintable()]
    assert all(re.fullmatch(r"\\[nrt]|\\x..|\\u....|\\U........", safe_names.printable(c)) for c in hidden)


@given(st.lists(ANYTHING, min_size=1))
def test_no_line_of_a_message_but_its_first_begins_at_the_left(lines: list[str]) -> None:
    first, *rest = safe_names.message("\n".join(lines)).split("\n")
    assert first == safe_names.printable(lines[0].split("\n")[0])
    assert all(line == "" or line.startswith("  ") for line in rest)


@given(ANYTHING)
def test_a_page_shows_the_name_and_takes_nothing_for_markup(text: str) -> None:
    shown = safe_names.for_page(text)
    assert not set("<>\"'") & set(shown)
    assert html.unescape(shown) == safe_names.printable_lines(text)


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_a_spreadsheet_takes_no_name_for_a_formula(start: str) -> None:
    assert safe_names.for_spreadsheet(start) == f"'{start}"


@pytest.mark.parametrize("start", ["\t=1", "\r=1", "\n=1", " =1", "a=1", ""])
def test_a_spreadsheet_has_other_names_as_they_are_shown(start: str) -> None:
    assert safe_names.for_spreadsheet(start) == safe_names.printable(start)
