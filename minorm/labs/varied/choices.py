"""Holds the table of a lab that varies, and the values of one variant.

    V = Variants(
        "lab01_forward",
        eps=numbers("eps, if a call gives none", ("1e-5", "3e-4", "1e-3"), "eps={}"),
        layout=kinds("the axes of x, in order", {"NC...": ("(N, C, *positions)",), "N...C": ("(N, *positions, C)",)}),
    )

The first value belongs to the plain lab, and no variant has this value. `V.eps` is the value of the variant that is
graded now. So checks, planted bugs and mistakes must read `V.eps` when they run, not when they are defined. Two
consecutive seeds, such as 2027 and 2028, differ in each row that has more than two values.

A code identifies a variant: the code encodes which value of each row the variant has. The code does not reveal the
seed.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NAME_OF_PLAIN = "plain"  # the seed of the lab without a variant
LETTERS = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"  # of a code: no two look alike
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True)
class Varied:
    """One row of a lab's table.

    about    the text beside the value; empty for values that students do not see, such as which bugs are planted
    values   the plain lab's value, then the values for variants
    shown    each value as the notebook shows it
    texts    for each value, the pieces of the lab's text that mention this value, in the same order
    """

    about: str
    values: Sequence[Any]
    shown: Sequence[str]
    texts: Sequence[Sequence[str]]


def numbers(about: str, values: Sequence[str], *texts: str) -> Varied:
    """Make a row of numbers, as Python writes them.

    In `texts`, {} stands for the number, and {word} for its English word.
    """
    found = [float(value) if re.search(r"[.e]", value) else int(value) for value in values]
    pieces = []
    for number, value in zip(found, values, strict=True):
        word = WORDS[int(number)] if number in range(len(WORDS)) else value
        pieces.append([text.replace("{word}", word).replace("{}", value) for text in texts])
    return Varied(about, found, values, pieces)


def kinds(about: str, texts: Mapping[Any, Sequence[str]]) -> Varied:
    """Make a row of values that are not numbers. `texts` maps each value to its pieces of text."""
    return Varied(about, list(texts), [repr(value).replace("'", '"') for value in texts], list(texts.values()))


@dataclass(frozen=True)
class Variant:
    """The values of one variant, as indices into the table's rows. code: empty for the plain lab"""

    code: str = ""
    places: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"variant {self.code}" if self.code else "the lab without a variant"


PLAIN = Variant()


class Variants:
    """The table of a lab.

    `variant` is the variant that is graded now, and the attributes named like rows are its values.
    """

    def __init__(self, lab: str = "", **rows: Varied) -> None:
        self.lab, self.rows, self.variant = lab, rows, PLAIN
        for name, row in rows.items():
            if len({len(row.values), len(row.texts)}) > 1 or len({len(pieces) for pieces in row.texts}) > 1:
                raise ValueError(
                    f"{lab}: {name} has {len(row.values)} values; expected the same number of texts in each row"
                )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.rows:
            raise AttributeError(f"the variants of {self.lab} have no {name!r}")
        return self.value(name, self.variant)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def value(self, name: str, variant: Variant) -> Any:
        """Return the value of this row in a variant."""
        return self.rows[name].values[variant.places.get(name, 0)]

    @contextlib.contextmanager
    def using(self, variant: Variant) -> Iterator[None]:
        """Use this variant inside a `with` block."""
        before, self.variant = self.variant, variant
        try:
            yield
        finally:
            self.variant = before

    def of(self, seed: str | int) -> Variant:
        """Return the variant for a seed, which is a year or another text.

        For the seed "plain", and for a lab without a table, this is the plain lab.
        """
        text = str(seed).strip()
        if not text:
            raise ValueError("the seed of a variant is empty; expected a year such as 2027, or another text")
        if text == NAME_OF_PLAIN or not self.rows:
            return PLAIN
        number = int(text) if re.fullmatch(r"[0-9]{1,18}", text) else _digest(text)
        places = {
            name: 1 + (_digest(f"{self.lab} {name}") + number) % (len(row.values) - 1)
            for name, row in self.rows.items()
        }
        return Variant(self._code(places), places)

    def read(self, code: str) -> Variant:
        """Return the variant of this code; an empty code means the plain lab.

        ValueError is raised if there is no such variant.
        """
        if not code:
            return PLAIN
        number = 0
        for letter in code[:-1]:
            number = number * len(LETTERS) + max(LETTERS.find(letter), 0)
        places = {}
        for name, row in self.rows.items():
            number, place = divmod(number, len(row.values) - 1)
            places[name] = place + 1
        if not self.rows or self._code(places) != code:
            raise ValueError(
                f"{self.lab} has no variant {code[:20]!r}; expected the code that `labs start --seed` wrote"
            )
        return Variant(code, places)

    def _code(self, places: Mapping[str, int]) -> str:
        """Encode the indices of a variant's values in LETTERS. A check letter at the end shows typing errors."""
        number = 0
        for name, row in reversed(self.rows.items()):
            number = number * (len(row.values) - 1) + places[name] - 1
        letters = ""
        while number or len(letters) < 2:
            number, place = divmod(number, len(LETTERS))
            letters = LETTERS[place] + letters
        return letters + LETTERS[_digest(f"{self.lab} {letters}") % len(LETTERS)]


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
