"""The pages for users say what is true: programs print what stands below them, commands and links are understood.

The blocks ```python of a page are one program, run from top to bottom in an empty folder. What a block prints stands
in a block ```text right below it; numbers with a decimal point may be one off in their last digit, and a hundredth
besides, since convolutions round otherwise on other processors. A picture that a page shows as `images/guide-*.png` is
one that its program writes; `guide-*.svg` are those of docs/images/drawings.py.

A tutorial is a notebook: its cells are compiled here, and run by the slow tests and when the site is built.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import minorm as mn
from minorm import cli

for package in ("sklearn", "onnx", "onnxruntime", "matplotlib"):
    pytest.importorskip(package)
from minorm.onnx.graph import registry  # noqa: E402  it needs onnx

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ALL = sorted(path for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")] if "_build" not in path.parts)
TUTORIALS = sorted((DOCS / "tutorials").glob("[0-9]*.md"))
NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")


class Block(NamedTuple):
    """A fenced block: what stands behind the fence, its text, and the line of the page that it begins at."""

    kind: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = re.finditer(r"^```([^\n]*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [Block(block[1], block[2], page.count("\n", 0, block.start(2))) for block in found]


def name(path: Path) -> str:
    """The page as a user finds it."""
    return str(path.relative_to(ROOT))


USERS = [DOCS / "quick-start.md", DOCS / "for-pytorch-users.md", *(DOCS / "guide").glob("*.md")]
USERS += [*(DOCS / "how-to").glob("*.md"), *(DOCS / "course").glob("examination*.md")]
PROGRAMS = sorted(path for path in USERS if "```python\n" in path.read_text(encoding="utf-8"))


AS_WRITTEN = partial(compile, mode="exec")


def run(block: Block, path: Path, names: dict[str, object], compiled: Callable[..., Any] = AS_WRITTEN) -> str:
    """Run the block and return its output; a traceback shows the line of the page."""
    shown = io.StringIO()
    text = re.sub(r"^%.*$", "", block.text, flags=re.MULTILINE)  # a notebook's own words
    with contextlib.redirect_stdout(shown):
        exec(compiled("\n" * block.line + text, name(path)), names)
    return shown.getvalue()


def same(found: str, shown: str) -> bool:
    """The texts are equal but for numbers with a decimal point: one in the last digit, and a hundredth."""
    if NUMBER.sub("#", found).split() != NUMBER.sub("#", shown).split():
        return False
    pairs = zip(NUMBER.findall(found), NUMBER.findall(shown), strict=True)
    return all(abs(float(a) - float(b)) <= 0.01 * abs(float(b)) + 1.01 * last_digit(b) for a, b in pairs)


def last_digit(number: str) -> float:
    """Return the value of one in the last digit of the number: 0.01 for 2.34."""
    digits, _, power = number.partition("e")
    return float(10.0 ** (int(power or 0) - len(digits.partition(".")[2])))


@pytest.fixture(autouse=True)
def _as_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, a seed that no page counts on, and every setting back as it was."""
    import matplotlib as mpl

    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    dtype, threads, rules = mn.get_default_dtype(), mn.get_num_threads(), set(registry.WRITERS)
    mn.manual_seed(987654321)
    yield
    mn.set_default_dtype(dtype)
    mn.set_num_threads(threads)
    for target in set(registry.WRITERS) - rules:  # a page adds one
        del registry.WRITERS[target]


@pytest.mark.parametrize("path", PROGRAMS, ids=name)
def test_programs_print_what_stands_below_them(path: Path, tmp_path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    if "import torch\n" in page:
        pytest.importorskip("torch")
    found, names = blocks(page), dict[str, object]({"__name__": "__main__"})
    for block, below in zip(found, [*found[1:], Block("", "", 0)], strict=True):
        if block.kind == "python":
            printed = run(block, path, names)
            shown = below.text if below.kind == "text" else ""
            assert same(printed, shown), f"{name(path)}:{block.line} prints\n{printed}\nand shows\n{shown}"
    for picture in re.findall(r"images/(guide-[\w-]+\.png)\)", page):
        assert (tmp_path / picture).stat().st_size > 1000, picture


@pytest.mark.parametrize("path", sorted({*USERS, *TUTORIALS}), ids=name)
def test_code_is_no_wider_than_the_column_of_the_site(path: Path) -> None:
    for block in blocks(path.read_text(encoding="utf-8")):
        long = [line for line in block.text.splitlines() if len(line) > 96 and block.kind != "text"]
        assert not long, f"{name(path)}:{block.line}"


def test_the_drawings_of_the_guide(tmp_path: Path) -> None:
    runpy.run_path(str(DOCS / "images" / "drawings.py"))["draw"](tmp_path)
    shown = re.findall(r"images/(guide-[\w-]+\.svg)\)", "".join(path.read_text(encoding="utf-8") for path in USERS))
    assert sorted(shown) == sorted(path.name for path in tmp_path.iterdir())
    assert sorted(shown) == sorted(path.name for path in (DOCS / "images").glob("guide-*.svg"))


def test_what_is_not_the_same_is_found() -> None:
    assert same("loss 0.123 after 3 steps\n", "loss 0.124  after 3 steps")
    assert not same("loss 0.123 after 3 steps", "loss 0.127 after 3 steps")
    assert same("9.8e-07", "9.7e-07")
    assert not same("2e-07", "4e-07")
    assert not same("loss 0.123 after 3 steps", "loss 0.123 after 4 steps")
    assert not same("", "0.5")


def commands(page: str) -> list[str]:
    """Return the words after `minorm` in the lines of the blocks ```sh, without comments."""
    text = "\n".join(block.text for block in blocks(page) if block.kind == "sh")
    return re.findall(r"(?:^|[\s/])minorm ([^#\n|>]+?)(?= *(?:#|&&|\||>|$))", text, re.MULTILINE)


@pytest.mark.parametrize("path", [path for path in ALL if commands(path.read_text(encoding="utf-8"))], ids=name)
def test_commands_are_understood(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands(path.read_text(encoding="utf-8")):
        try:
            cli._parser().parse_args(shlex.split(command))
        except SystemExit:
            pytest.fail(f"{name(path)}: minorm {command}: {capsys.readouterr().err}")


def slugs(page: str) -> set[str]:
    """The anchors that headings make, as GitHub and MyST write them."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", ALL, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:|figures/", link):  # figures of the slides: tests/labs/test_course.py
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), f"{name(path)} links {link}"
        if anchor and target.suffix == ".md":
            assert anchor in slugs(target.read_text(encoding="utf-8")), f"{name(path)} links {link}"


@pytest.mark.parametrize("folder", ["guide", "how-to", "tutorials", "course", "course/slides"])
def test_the_index_of_a_folder_links_every_page(folder: str) -> None:
    index = (DOCS / folder / "index.md").read_text(encoding="utf-8")
    for path in (DOCS / folder).glob("*.md"):
        assert path.name == "index.md" or f"]({path.name})" in index, path.name


def cells(path: Path) -> list[Block]:
    """The cells of a tutorial, with the notebook's options, `:tags: ...`, as empty lines."""
    found = [block for block in blocks(path.read_text(encoding="utf-8")) if block.kind == "{code-cell} ipython3"]
    return [block._replace(text=re.sub(r"^:\w+:.*$", "", block.text, flags=re.MULTILINE)) for block in found]


@pytest.mark.parametrize("path", TUTORIALS, ids=name)
def test_tutorials_compile(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("---\nfile_format: mystnb\nkernelspec:\n  name: python3\n")
    assert len(cells(path)) >= 4
    for cell in cells(path):
        compile("\n" * cell.line + re.sub(r"^%.*$", "", cell.text, flags=re.MULTILINE), name(path), "exec")


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=name)
def test_tutorials_run(path: Path) -> None:
    from matplotlib import pyplot as plt

    names: dict[str, object] = {"__name__": "__main__"}
    for cell in cells(path):
        run(cell, path, names)
    assert plt.get_fignums(), "a tutorial draws something"
    plt.close("all")
