"""Adds a table of contents to each page index.md or README.md: the pages that it links, in that order.

So no list is kept twice. Below an index come the other pages of its folder, and the index of each folder in there. The
headings of docs/index.md are also the headings of the site's sidebar.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
INDEX = ("index", "README")
LINK = re.compile(r"\]\((?!\w+:)(?P<page>[^)\s#]+)\.md(?:#[^)\s]*)?\)")


def children(folder: PurePosixPath, text: str) -> list[str]:
    """Return the pages below the folder's index that its text links, as paths from the folder."""
    linked = dict.fromkeys(found["page"] for found in LINK.finditer(text))
    return [page for page in linked if _is_below(PurePosixPath(page)) and (DOCS / folder / f"{page}.md").exists()]


def _is_below(page: PurePosixPath) -> bool:
    """Return whether this is a page of the index's own folder, or the index of a folder in there."""
    if page.parts[0] == "..":
        return False
    return (len(page.parts) == 1 and page.name not in INDEX) or (len(page.parts) == 2 and page.name in INDEX)


def add(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add a toctree to the end of an index: one for each heading in the site's own index (source-read)."""
    page = PurePosixPath(docname)
    if page.name not in INDEX:
        return
    parts = re.split(r"^## (.+)$", source[0], flags=re.MULTILINE) if docname == "index" else ["", "", source[0]]
    taken: set[str] = set()
    for caption, text in zip(parts[1::2], parts[2::2], strict=True):
        names = [name for name in children(page.parent, text) if name not in taken]
        taken.update(names)
        if names:
            caption = f":caption: {caption}\n" if caption else ""
            source[0] += "\n\n```{toctree}\n:hidden:\n" + caption + "\n" + "\n".join(names) + "\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add, priority=600)  # after repository.py, which turns README.md into index.md
    return {"parallel_read_safe": True}
