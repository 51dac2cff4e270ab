"""`--input NAME=VALUE` gives an input a value if random numbers or zeros are unsuitable."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

EXPECTED = "expected NAME=NUMBER or NAME=[NUMBERS], such as rate=16000 or lengths=[3,5]"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the option, which may be given once for each input."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="the value of an input: one number for all its elements, such as rate=16000, or a list, such as "
        "lengths=[3,5]",
    )


def parse(given: Sequence[str]) -> dict[str, Any]:
    """Return a dict from the names of inputs to their values, which are numbers or nested lists.

    Raises ValueError for a wrong value or a repeated name.
    """
    found: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            read = json.loads(value)
        except (ValueError, RecursionError):
            read = None
        if not name or not _is_numbers(read):
            raise ValueError(f"--input {text}: {EXPECTED}")
        if name in found:
            raise ValueError(f"--input {text}: {name!r} has a value already")
        found[name] = read
    return found


def _is_numbers(value: Any, depth: int = 16) -> bool:
    if isinstance(value, list):
        return depth > 0 and all(_is_numbers(part, depth - 1) for part in value)
    return isinstance(value, (bool, int, float))
