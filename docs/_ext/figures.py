"""Shows the description of a slide's picture if the picture has not been drawn.

`python examples/labs/make_figures.py` draws the pictures in some minutes, and git does not keep them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
PICTURE = re.compile(r"!\[(?P<description>[^\]]+)\]\((?P<file>figures/[^)\s]+)\)")


def described(folder: Path, text: str) -> str:
    """Return the text of a page in this folder, with the description in place of each missing picture."""

    def words(found: re.Match[str]) -> str:
        return found[0] if (folder / found["file"]).exists() else f"*A picture: {found['description']}.*"

    return PICTURE.sub(words, text)


def read(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = described((DOCS / docname).parent, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", read)
    return {"parallel_read_safe": True}
