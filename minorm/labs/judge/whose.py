"""Finds the student to whom a submission belongs, by the words in the submission's name.

The submission's name contains a number, an e-mail address or a name of the roster, between other words: `Ada
Lovelace_98_file`, `lovelaceada_1234_lab01.ipynb`. Case and accents do not count, and neither does the order of a name:
`Lovelace, Ada` is Ada Lovelace. If the words that match one student are only a part of the words that match another
student, the submission belongs to the other student: to Anna Maria Schmidt, not to Anna Maria. If two students have the
same name, the submission belongs to the student whose number is also in its name. If several students are still
possible, the submission belongs to none of them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

LETTERS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i", "ð": "d", "þ": "th"})
SPELLED_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})  # as people write without accents
Words = tuple[str, ...]
Spans = set[tuple[Words, int, int]]


def owners(submission: str, students: Sequence[set[Words]]) -> list[int]:
    """Return the numbers of the students whom the submission may belong to: none, one, or several.

    students  for each student, the `forms` of all cells that identify the student
    """
    stem = Path(submission).stem if submission.endswith((".py", ".ipynb", ".zip")) else submission
    names = {words(stem, spelled) for spelled in (False, True)}
    spans = {number: set(_spans(mine, names)) for number, mine in enumerate(students)}
    found = {number: mine for number, mine in spans.items() if mine}
    return [
        number
        for number, mine in found.items()
        if not any(_covered(mine, others) and not _covered(others, mine) for others in found.values())
    ]


def words(text: str, spelled_out: bool = False) -> Words:
    """Split `Ada Lovelace_98` into ada, lovelace, 98. spelled_out: `ü` is ue, not u."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = text.translate(SPELLED_OUT) if spelled_out else text
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.translate(LETTERS)) if not unicodedata.combining(c))
    return tuple(word for word in re.split(r"[\W_]+", plain) if word)


def forms(text: str) -> set[Words]:
    """Return the forms of a cell, each as words.

    A name also has its words in another order, and joined: lovelaceada.
    """
    found: set[Words] = set()
    for spelled in (False, True):
        last, comma, first = text.partition(",")
        mine = words(text, spelled)
        found.add(mine)
        if len(mine) > 1 and not any(word.isdigit() for word in mine) and "@" not in text:
            before, behind = (words(first, spelled), words(last, spelled)) if comma else (mine[:-1], mine[-1:])
            found |= {(*before, *behind), (*behind, *before)}
            found |= {("".join((*before, *behind)),), ("".join((*behind, *before)),)}
    return found - {()}


def _spans(mine: set[Words], names: set[Words]) -> Iterator[tuple[Words, int, int]]:
    """Find the forms of a student's name in the submission's name.

    Yield (submission's name, index of the first word, index after the last word).
    """
    for some in mine:
        for name in names:
            for start in range(len(name) - len(some) + 1):
                if name[start : start + len(some)] == some:
                    yield name, start, start + len(some)


def _covered(mine: Spans, others: Spans) -> bool:
    """Return whether each span in `mine` lies within one of the spans in `others`."""
    return all(
        any(name == theirs and left <= start and end <= right for theirs, left, right in others)
        for name, start, end in mine
    )
