"""The site's parts that need no Sphinx: every public name and every page has its place, docstrings become markup.

.ci/run builds the whole site, with warnings as errors; tests/project/test_pages.py follows the links of the pages.
"""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from pathlib import Path, PurePosixPath
from types import ModuleType

import pytest

from docs._ext import contents, docstrings, figures
from tests import public_names

pytest.importorskip("onnx", reason="minorm.onnx is among the packages")
DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```\{reference\} (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Beyond the list of public names: pictures, for which matplotlib has to be there
FURTHER = {
    f"minorm.plots.{name}" for name in ("training_picture", "curves", "confusion", "learning_rates", "least_loss")
}


def referenced() -> Counter[str]:
    """How often each full name stands in a block of docs/api."""
    pages = "".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "api").glob("*.md")))
    return Counter(
        f"{where}.{name}"
        for where, block in BLOCK.findall(pages)
        for name in re.sub(r"^:.*$", "", block, flags=re.MULTILINE).split()
    )


def is_package(name: str) -> bool:
    """Is the public name a package of minorm? Packages have pages there and no docstring."""
    package, _, last = name.rpartition(".")
    return isinstance(getattr(import_module(package), last, None), ModuleType)


def test_every_public_name_has_its_place_in_the_reference() -> None:
    found, public = referenced(), public_names.listed().keys()
    packages = {name for name in public if name.count(".") == 1 and is_package(name)}
    assert not sorted(public - packages - found.keys())
    assert not sorted(found.keys() - public - FURTHER), "names that are not public"
    assert not [name for name, times in found.items() if times > 1]
    overview = (DOCS / "api" / "README.md").read_text(encoding="utf-8")
    assert not [name for name in packages if f"`{name}`" not in overview]


def reached(folder: PurePosixPath, index: str) -> set[str]:
    """The pages that an index leads to, and the indexes in there."""
    text = (DOCS / folder / f"{index}.md").read_text(encoding="utf-8")
    found: set[str] = set()
    for child in contents.children(folder, text):
        page = folder / child
        found |= {str(page)} | (reached(page.parent, page.name) if page.name in contents.INDEX else set())
    return found


def test_the_sidebar_leads_to_every_page() -> None:
    pages = {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md") if "_build" not in path.parts}
    assert pages - reached(PurePosixPath(), "index") == {"index"}


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("x * y and `x * y`", r"x \* y and ``x * y``"),
        ("|x| of running_ and *args", r"\|x\| of running\_ and \*args"),
        ("a formula:\n\n    y = x_\n\nand on", "a formula:\n\n\n::\n\n    y = x_\n\n\nand on"),
        ("- one\n  and two_", "- one\n\n  and two\\_\n"),
        ("Args:\n    *x (int): |x|\n        x_", "Args:\n    *x (int): \\|x\\|\n        x\\_"),
        ("x    a_\n     b\ny, z\n     c\n\nd", "\n``x``\n    a\\_\n    b\n``y, z``\n    c\n\nd"),
        ("    y  = x", "\n::\n\n    y  = x\n"),
        ("Example:\n    >>> x_", "Example:\n    >>> x_"),
    ],
)
def test_a_docstring_becomes_markup(text: str, markup: str) -> None:
    assert "\n".join(docstrings.to_rst(text.split("\n"))) == markup


def test_a_picture_that_was_not_drawn_is_described(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "there.png").touch()
    text = "![One](figures/there.png) and ![Two](figures/missing.png)"
    assert figures.described(tmp_path, text) == "![One](figures/there.png) and *A picture: Two.*"
