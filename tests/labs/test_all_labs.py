"""Every lab: its solution runs as a notebook and earns full marks, its stubs refuse, and the two are one text."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from minorm.labs import catalogue, cells
from minorm.labs.judge import judging

ROOT = Path(__file__).resolve().parents[2]
LABS = ROOT / "examples" / "labs"
NUMBERS = catalogue.numbers()
numbered = pytest.mark.parametrize("number", NUMBERS)
SAMPLE = (0, 10)  # the notebooks that run even where not all are asked for with -m slow
LONG = (3, 4, 6, 7, 8, 12, 16, 17)  # judging them takes 10 to 30 seconds each
slow = pytest.mark.slow
COLUMNS = 90  # of code, as wide as a notebook beside a slide shows it


class Images(HTMLParser):
    """The alternative text of each <img>, or None."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.texts.append(dict(attrs).get("alt"))


def solution(number: int) -> Path:
    """Return the solved lab; skip if this machine lacks something that it needs."""
    if number == 8 and not (shutil.which("g++") or shutil.which("c++")):
        pytest.skip("no C++ compiler")
    return LABS / "solutions" / f"{catalogue.find(number).file}.py"


def stub(number: int) -> Path:
    return LABS / f"{catalogue.find(number).file}.py"


def test_every_file_is_a_lab_and_every_lab_has_its_files() -> None:
    names = {catalogue.find(number).file for number in NUMBERS}
    assert {path.stem for path in LABS.glob("lab*.py")} == names
    assert {path.stem for path in (LABS / "solutions").glob("*.py")} == names
    assert [catalogue.find(number).number for number in NUMBERS] == NUMBERS


@numbered
def test_the_stub_is_what_make_stubs_makes_of_the_solution(number: int) -> None:
    spec = importlib.util.spec_from_file_location("make_stubs", LABS / "make_stubs.py")
    assert spec is not None
    assert spec.loader is not None
    make_stubs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_stubs)
    assert stub(number).read_text() == make_stubs.stub(solution(number).read_text()), (
        "run: python examples/labs/make_stubs.py"
    )


@pytest.mark.parametrize("number", [pytest.param(n, marks=slow) if n in LONG else n for n in NUMBERS])
@pytest.mark.parametrize("seed", [1, pytest.param(2026, marks=slow)])
def test_the_solution_earns_full_marks(number: int, seed: int) -> None:
    lab = catalogue.find(number)
    report = judging.judge(lab, solution(number), seed=seed, patience=3)
    assert report.score == report.points == lab.points, str(report)
    assert not report.notes


@numbered
def test_the_stub_earns_nothing_and_every_refusal_names_its_task(number: int) -> None:
    lab = catalogue.find(number)
    report = judging.judge(lab, stub(number), patience=3)
    assert report.score == 0, str(report)
    assert not report.notes
    for row in report.outcomes:
        assert row.status == "not done", row
        named = re.match(r"Task (\d+\.\d+): \w", row.got)
        assert named is not None
        assert tuple(map(int, named[1].split("."))) <= tuple(map(int, row.task.split(".")))


@numbered
def test_every_task_has_a_stub_and_checks_seen_and_hidden(number: int) -> None:
    lab = catalogue.find(number)
    stubs = set(re.findall(r'NotImplementedError\(\s*"Task (\d+\.\d+): ', stub(number).read_text()))
    assert stubs == set(lab.tasks)
    seen = {item.task for item in lab.items if item.visible}
    assert seen == set(lab.tasks)
    assert any(not item.visible for item in lab.items)
    calls = re.findall(r'^check\("(\d+\.\d+)"\)', stub(number).read_text(), re.MULTILINE)
    assert calls == lab.tasks


@numbered
def test_the_text_keeps_to_the_form(number: int) -> None:
    text = stub(number).read_text()
    lab = catalogue.find(number)
    found = cells.read_percent(text)
    assert found[0].markdown
    assert found[0].text.startswith(f"# Lab {number}: {lab.title}")
    assert f"about {lab.minutes} minutes" in re.sub(r"\s+", " ", found[0].text)
    parts = re.findall(r"^## Part ([A-Z]): .* \(about (\d+) minutes\)$", "\n".join(c.text for c in found), re.MULTILINE)
    sessions = [int(minutes) for _, minutes in parts] or [lab.minutes]
    assert sum(sessions) == lab.minutes
    assert [letter for letter, _ in parts] == (["A", "B"] if lab.minutes > 90 else [])
    assert all(45 <= minutes <= 90 for minutes in sessions), "a session has 90 minutes"
    assert "SOLUTION" not in text
    assert "# END" not in text
    assert any("plot" in cell.tags for cell in found)
    assert re.search(r"^## To think about\n\n1\. .*^2\. ", found[-1].text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", [n if n in SAMPLE else pytest.param(n, marks=slow) for n in NUMBERS])
def test_the_solution_runs_as_a_notebook(number: int, tmp_path: Path) -> None:
    """As jupytext makes it; every check and plot in it runs, in the kernel that students have."""
    jupytext = pytest.importorskip("jupytext")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    notebook = jupytext.read(solution(number))
    notebook.cells.insert(0, jupytext.reads(f"import sys; sys.path.insert(0, {str(ROOT)!r})", "py").cells[0])
    client = nbclient.NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    drawn = [output for output in outputs if "image/png" in output.get("data", {})]
    assert drawn, "no plot"
    assert all(len(output.metadata["image/png"]["alt"]) >= 100 for output in drawn), "a plot without a text"
    assert not any(output.get("name") == "stderr" for output in outputs), "warnings"
    nbconvert = pytest.importorskip("nbconvert")
    page, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    images = Images()
    images.feed(page)
    assert images.texts == [output.metadata["image/png"]["alt"] for output in drawn]
    if number == 0:
        assert "<pre><code>position = i0 * step0 + i1 * step1 + ...</code></pre>" in page


@numbered
@pytest.mark.parametrize("of", [solution, stub])
def test_no_line_of_code_is_wider_than_a_notebook_shows(number: int, of: Callable[[int], Path]) -> None:
    lines = of(number).read_text().splitlines()
    wide = {
        cell.line + place: len(line)
        for cell in cells.read_percent(of(number).read_text())
        for place, line in enumerate(cell.text.split("\n"))
        if not cell.markdown and len(line) > COLUMNS
    }
    assert wide == {}, [lines[place - 1] for place in wide]


@numbered
def test_our_notebook_is_jupytexts(number: int) -> None:
    jupytext = pytest.importorskip("jupytext")
    ours = cells.read_percent(stub(number).read_text())
    theirs = jupytext.read(stub(number)).cells
    assert [cell.text for cell in ours] == [cell.source for cell in theirs]
    assert [cell.markdown for cell in ours] == [cell.cell_type == "markdown" for cell in theirs]
    assert [list(cell.tags) for cell in ours] == [cell.metadata.get("tags", []) for cell in theirs]
    assert [c.text for c in cells.read(cells.to_notebook(ours), "x.ipynb")] == [c.text for c in ours]
