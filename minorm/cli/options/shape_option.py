"""`--shape x=1,3,224,224` and `--shape height=224` give lengths of axes to which a file gives no length."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def add(parser: argparse.ArgumentParser, option: str = "--shape", does: str = "") -> None:
    """Declare the option, which may be given once for each input and axis; `does` replaces the end of the help text."""
    parser.add_argument(
        option,
        action="append",
        default=[],
        metavar="NAME=N,N",
        help="the shape of an input, such as x=1,3,224,224, or the length of a free axis, such as height=224"
        + (does or ", needed if guessing fails"),
    )


def parse(given: Sequence[str], option: str = "--shape") -> dict[str, tuple[int, ...]]:
    """Return a dict from names of inputs and axes to their lengths. Raise ValueError for a wrong or repeated entry."""
    found: dict[str, tuple[int, ...]] = {}
    for text in given:
        name, _, lengths = text.rpartition("=")
        parts = [part.strip() for part in lengths.split(",")] if lengths.strip() else []
        if not name or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"{option} {text}: expected INPUT=N,N, such as x=1,3,224,224, or AXIS=N, such as h=224")
        if name in found:
            raise ValueError(f"{option} {text}: {name!r} has a shape already")
        found[name] = tuple(int(part) for part in parts)
    return found
