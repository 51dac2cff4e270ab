"""`--shape x=1,3,224,224`: the shapes of inputs, where a file leaves axes free."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the option, which may be given once for each input."""
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=N,N",
        help="the shape of an input, such as x=1,3,224,224, where the file leaves axes free and guessing fails",
    )


def parse(given: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The shapes by input; ValueError where one cannot be read."""
    found = {}
    for text in given:
        name, _, lengths = text.rpartition("=")
        parts = [part.strip() for part in lengths.split(",")] if lengths.strip() else []
        if not name or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"--shape {text}: expected INPUT=N,N, such as x=1,3,224,224")
        found[name] = tuple(int(part) for part in parts)
    return found
