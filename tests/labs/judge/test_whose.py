"""Names and numbers find the student of a submission by whole words, in any case, order and spelling."""

from __future__ import annotations

import pytest

from minorm.labs.judge import whose

ROWS = [
    {"id": "12", "name": "Ada Lovelace"},
    {"id": "123", "name": "Anna Maria"},
    {"id": "1234", "name": "Anna Maria Schmidt"},
    {"id": "5", "name": "Müller, José"},
    {"id": "6", "name": "Ben Ng"},
    {"id": "7", "name": "Ng Ben"},
    {"id": "8", "name": "Ærø Łukasz"},
    {"id": "9", "name": ""},
]


def students(rows: list[dict[str, str]], *keys: str) -> list[set[whose.Words]]:
    """Return the forms of each row."""
    return [{words for key in keys for words in whose.forms(row[key])} for row in rows]


STUDENTS = students(ROWS, "id", "name")


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("12.py", [0]),
        ("lab_123.ipynb", [1]),
        ("123_1.zip", [1]),
        ("ADA LOVELACE_98", [0]),
        ("lovelaceada_77_lab.py", [0]),
        ("adalovelace.py", [0]),
        ("Lovelace, Ada.py", [0]),
        ("Ada.py", []),
        ("adalovelaces.py", []),
        # one name is a part of the other
        ("Anna Maria_1", [1]),
        ("Anna Maria Schmidt_1", [2]),
        ("annamariaschmidt.py", [2]),
        ("anna maria and anna maria schmidt.py", [1, 2]),
        # accents, their absence, and the other way to spell them; composed and not
        ("jose muller.py", [3]),
        ("MULLER, JOSE.py", [3]),
        ("Mueller_José", [3]),
        ("Jose\u0301 Mu\u0308ller", [3]),
        ("aero lukasz.py", [8 - 2]),
        # the same words in another order, and two students in one name
        ("Ben Ng.py", [4, 5]),
        ("12_and_123.py", [0, 1]),
        ("Ada Lovelace 1234.py", [0, 2]),
        ("nobody.py", []),
        ("", []),
    ],
)
def test_owners(name: str, rows: list[int]) -> None:
    assert whose.owners(name, STUDENTS) == rows


def test_a_number_decides_between_two_of_one_name() -> None:
    assert whose.owners("Ben Ng_6.py", STUDENTS) == [4]
    assert whose.owners("Ben Ng_7.py", STUDENTS) == [5]
    assert whose.owners("Ben Ng_12.py", STUDENTS) == [0, 4, 5]


def test_addresses_are_not_turned_round() -> None:
    rows = [{"email": "ada.lovelace@example.org"}, {"email": "lovelace.ada@example.org"}]
    assert whose.owners("ada.lovelace@example.org.py", students(rows, "email")) == [0]
