"""Makes links to files of the repository lead to a page of the site, so pages can link files as they do on disk.

Some files outside docs/ are pages themselves (`STANDS_FOR`): the page in docs/ holds nothing but a link, and the
file's text takes its place. Every other linked file gets a page with its lines, and so does the source of each object
that autodoc shows.
"""

from __future__ import annotations

import html
import importlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
STANDS_FOR = {  # a page of docs/: the file of the repository whose text it shows
    "changelog": ROOT / "CHANGELOG.md",
    "contributing": ROOT / "CONTRIBUTING.md",
    "kernels": ROOT / "minorm" / "kernels" / "README.md",
    "kernels-explained": ROOT / "minorm" / "kernels" / "EXPLAINED.md",
    "normalization": ROOT / "minorm" / "normalization" / "README.md",
    "mistakes": ROOT / "minorm" / "labs" / "judge" / "mistakes.md",
    "releasing": ROOT / "RELEASING.md",
    "security-policy": ROOT / "SECURITY.md",
}
PAGE_OF = {file: name for name, file in STANDS_FOR.items()} | {ROOT / "README.md": "index"}
SOURCES = (".py", ".pyx", ".pxd", ".h", ".cu", ".md")  # what the page of a folder lists
LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")


def read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Before a page is parsed, put in the text that it stands for, and point its links to pages of the site."""
    file = STANDS_FOR.get(docname)
    if file:
        source[0] = file.read_text(encoding="utf-8")
        app.env.note_dependency(str(file))
    page = DOCS / f"{docname}.md"
    here = (file or page).parent
    source[0] = LINK.sub(lambda found: _target(here, page.parent, **found.groupdict("")), source[0])


def _target(here: Path, page: Path, path: str, anchor: str) -> str:
    """Return the target on the site for a link in a file of the folder `here`, shown by a page in the folder `page`."""
    file = Path(os.path.normpath(here / path))
    if not file.is_relative_to(ROOT) or not file.exists():
        return path + anchor  # MyST warns
    if file in PAGE_OF:
        file = DOCS / f"{PAGE_OF[file]}.md"
    elif file.is_dir() and (file / "README.md").is_relative_to(DOCS):
        file = file / "README.md"
    if file.is_relative_to(DOCS) and file.suffix in (".md", ".png", ".svg", ".onnx"):
        return os.path.relpath(file, page) + anchor
    return f"source:{file.relative_to(ROOT)}{anchor}"


def linkcode(domain: str, info: dict[str, str]) -> str | None:
    """Return the link to the source of an object of the API reference (Sphinx' `linkcode_resolve`)."""
    found: Any = importlib.import_module(info["module"])
    try:
        for name in info["fullname"].split("."):
            found = getattr(found, name)
        found = inspect.unwrap(found.fget if isinstance(found, property) else found)
        file = Path(inspect.getsourcefile(found) or "")
        first = inspect.getsourcelines(found)[1]
    except (AttributeError, TypeError, OSError):  # data, and classes of NumPy's
        return None
    return f"source:{file.relative_to(ROOT)}#L-{first}" if file.is_relative_to(ROOT) else None


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace each `source:` link by the address of the file's page, relative to this page."""
    for link in doctree.findall(nodes.reference):
        if link.get("refuri", "").startswith("source:"):
            path, _, line = link["refuri"].removeprefix("source:").partition("#")
            link["refuri"] = app.builder.get_relative_uri(docname, f"source/{path}") + (line and f"#{line}")
            link["internal"] = True


def note(app: Sphinx, doctree: nodes.document) -> None:
    """Remember the files that a page links."""
    links = (link.get("refuri", "") for link in doctree.findall(nodes.reference))
    files = {link.removeprefix("source:").partition("#")[0] for link in links if link.startswith("source:")}
    linked(app.env).update(files)


def linked(env: BuildEnvironment) -> set[str]:
    """Return the files that pages link; Sphinx keeps them with the pages from one build to the next."""
    if not hasattr(env, "linked_sources"):
        env.linked_sources = set()  # type: ignore[attr-defined]
    return env.linked_sources  # type: ignore[attr-defined]


def merge(app: Sphinx, env: BuildEnvironment, docnames: set[str], other: BuildEnvironment) -> None:
    """Add the linked files that another process found in its pages."""
    linked(env).update(linked(other))


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield a page for each linked file; the page of a linked folder lists its files, and these get pages too."""
    # A path that does not exist was linked in an earlier build.
    waiting = sorted(path for path in linked(app.env) if (ROOT / path).exists())
    done: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        file = ROOT / path
        if file.is_dir():
            inside = [inner for inner in sorted(file.iterdir()) if inner.suffix in SOURCES]
            waiting += [f"{path}/{inner.name}" for inner in inside]
            items = (f'<li><a href="{file.name}/{inner.name}.html">{inner.name}</a></li>' for inner in inside)
            body = f"<ul>{''.join(items)}</ul>"
        else:
            body = _highlighted(file)
        title = html.escape(path)
        yield f"source/{path}", {"title": title, "body": f"<h1><code>{title}</code></h1>{body}"}, "page.html"


def _highlighted(file: Path) -> str:
    """Return the file's lines as HTML in colours, with line numbers; each line is a target such as `L-12`."""
    try:
        lexer = get_lexer_for_filename("x.pyx" if file.suffix == ".pxd" else file.name)
    except ClassNotFound:
        lexer = TextLexer()
    return highlight(file.read_text(encoding="utf-8"), lexer, HtmlFormatter(linenos="inline", lineanchors="L"))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", read)
    app.connect("doctree-read", note)
    app.connect("doctree-resolved", resolve)
    app.connect("env-merge-info", merge)
    app.connect("html-collect-pages", pages)
    app.config.linkcode_resolve = linkcode
    return {"parallel_read_safe": True, "parallel_write_safe": True}
