"""`minorm plot` draws the curves of a run as a picture."""

from __future__ import annotations

import argparse
import os
from typing import Any

from minorm.cli.terminal import extras, output
from minorm.serialization import atomic
from minorm.training import read_log


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "plot",
        help="draw the curves of a run",
        description="Loss, accuracy and learning rate by epoch, from a log.csv.",
    )
    parser.add_argument("run_folder", metavar="DIR", help="a run's folder, or a log.csv")
    parser.add_argument("-o", "--out", metavar="FILE", help="a .png, .svg or .pdf file (default DIR/curves.png)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Draw the curves of a run, and write the picture."""
    extras.need("matplotlib")
    from minorm import plots

    given = os.path.normpath(args.run_folder)
    rows = read_log(given)
    if not rows:
        raise ValueError(f"{given} has no finished epoch yet; expected at least one")
    folder = given if os.path.isdir(given) else os.path.dirname(given)
    out = args.out or os.path.join(folder, "curves.png")
    form = os.path.splitext(out)[1].removeprefix(".").lower()
    if form not in ("png", "svg", "pdf"):
        raise ValueError(f"{out} ends in {form or 'nothing'!r}; expected .png, .svg or .pdf")
    figure = plots.curves(rows, os.path.basename(os.path.abspath(folder or os.curdir)))
    with atomic.replacing(out, "plot") as file:
        figure.savefig(file, dpi=120, format=form)
    output.say(out)
    return 0
