"""Draws the pictures of the slides: `python examples/labs/make_figures.py`, or with numbers of labs behind it.

The pictures are the plots of the solved notebooks, in their order: `lab03-1.png`, `lab03-2.png`. They go to
docs/course/slides/figures, where the decks look for them and git does not. All labs together take some minutes.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")

from matplotlib import pyplot as plt

from minorm.labs import catalogue, cells, pictures
from minorm.labs.lab import Lab

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "course" / "slides" / "figures"


def draw(lab: Lab, folder: Path) -> list[Path]:
    """Run the solved notebook without its checks, and write each picture that it shows."""
    drawn: list[Path] = []

    def save(figure: Any, text: str) -> None:
        path = folder / f"lab{lab.number:02}-{len(drawn) + 1}.png"
        figure.savefig(path, dpi=110)
        plt.close(figure)
        drawn.append(path)

    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, Any] = {"__name__": f"lab{lab.number}"}
    shown, pictures.show = pictures.show, save
    try:
        for cell in _cells(lab):  # what it prints belongs to no picture
            if not cell.markdown and "check" not in cell.tags:
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile("\n" * cell.line + cell.text, lab.file, "exec"), names)
    finally:
        pictures.show = shown
    return drawn


def _cells(lab: Lab) -> list[cells.Cell]:
    path = catalogue.reference(lab)
    assert path is not None, "the solutions are in a clone"
    return cells.read_percent(path.read_text(encoding="utf-8"))


def main() -> None:
    warnings.simplefilter("ignore")
    for number in map(int, sys.argv[1:]) if len(sys.argv) > 1 else catalogue.numbers():
        for path in draw(catalogue.find(number), FIGURES):
            print(path.relative_to(FIGURES.parents[3]), flush=True)


if __name__ == "__main__":
    main()
