"""A teacher's own labs, as in examples/own_labs, are graded like the course's, and students cannot read them."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.cli import main
from minorm.labs import catalogue, cells, visible
from minorm.labs.beside import Beside
from minorm.labs.calling import submission
from minorm.labs.calling.student import Here
from minorm.labs.judge import grading, hints, judging
from minorm.labs.judge.handed_in import Submission
from minorm.labs.sealed import finding, walls

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "own_labs"
NAME = "lab20_averaging_weights"
TEXT = (EXAMPLES / NAME / "solution.py").read_text()
Capture = pytest.CaptureFixture[str]
needs_walls = pytest.mark.skipif(not finding.find().stand, reason="this system has no walls, and says so")

CHEAT = """

# %%
import os
import sys

def _stolen(text):
    names = {"__name__": "minorm.labs.own.LAB.stolen", "__package__": "minorm.labs.own.LAB"}
    for cell in text.split("# %%"):
        try:
            exec(cell.partition("\\n")[2], names)
        except BaseException:
            pass
    globals().update({k: v for k, v in names.items() if k in ("step", "averages", "decay_for", "weights_of_values")})

for _path in ("DIR/LAB/solution.py", "DIR/LAB/checks.py", "/proc/self/root/DIR/LAB/solution.py"):
    try:
        _stolen(open(_path).read())
    except OSError:
        pass

for _attempt in (
    lambda: [open(f"DIR/LAB/{name}").read() for name in os.listdir("DIR/LAB")][0],
    lambda: __import__("minorm.labs.own.LAB.checks"),
    lambda: __import__("minorm.labs.catalogue", fromlist=["find"]).find(20, "DIR"),
    lambda: __import__("inspect").getsource(sys.modules["minorm.labs.own.LAB.checks"]),
):
    try:
        _attempt()
        step = lambda mean, value, decay: decay * mean + (1 - decay) * value  # it came through: take the points
    except BaseException:
        pass
"""


def changed(*changes: tuple[str, str]) -> str:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Return a copy of the example's folder, with nothing else in it."""
    shutil.copytree(EXAMPLES, tmp_path / "own", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "own"


def test_list_and_start(tmp_path: Path, capsys: Capture) -> None:
    assert main(["labs", "list", "--lab-dir", str(EXAMPLES)]) == 0
    assert capsys.readouterr().out.startswith(" 20  Averaging weights   60 min, 12 points\n")
    assert main(["labs", "start", "20", "--lab-dir", str(EXAMPLES), "-o", str(tmp_path)]) == 0
    assert f"{NAME}.ipynb --lab-dir {EXAMPLES}\n" in capsys.readouterr().out
    given = (tmp_path / f"{NAME}.py").read_text()
    assert 'raise NotImplementedError("Task 20.2: the decay of a half-life")' in given
    assert "SOLUTION" not in given
    assert "0.5 **" not in given
    assert main(["labs", "start", "3", "--lab-dir", str(EXAMPLES), "-o", str(tmp_path)]) == 1
    assert "there is no lab 3; expected one of 20" in capsys.readouterr().err


@needs_walls
def test_a_class_is_graded(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge begins with the folder's solution, which gets full marks; no student's process can read the folder."""
    text = catalogue.notebook(catalogue.find(20, own)) + CHEAT.replace("DIR", str(own)).replace("LAB", NAME)
    freely, _ = submission.load(text, "mine.py")
    assert freely.step(0.0, 1.0, 0.75) == 0.25  # the cheat works where no walls are
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "cheating.py").write_text(text)
    scores = {}
    row_of = grading._row

    def noted(lab: Any, one: Submission, *options: Any) -> Any:
        found = row_of(lab, one, *options)
        scores[one.paths[0]] = found.row["score"]
        return found

    monkeypatch.setattr(grading, "_row", noted)
    table = tmp_path / "grades.csv"
    assert main(["labs", "grade", "20", str(tmp_path / "class"), "--lab-dir", str(own), "-o", str(table)]) == 0
    (row,) = csv.DictReader(table.read_text().splitlines())
    assert (row["score"], row["points"], row["task 20.3"]) == ("0", "12", "0")
    assert scores == {own / NAME / "solution.py": "12", tmp_path / "class" / "cheating.py": "0"}


def test_a_mistake_costs_its_task_and_gets_the_folders_hint(tmp_path: Path, capsys: Capture) -> None:
    """A student's copy of the folder has no solution, and needs none."""
    (tmp_path / "labs" / NAME).mkdir(parents=True)
    for name in ("checks.py", "beside.py", "mistakes.md"):
        shutil.copy(EXAMPLES / NAME / name, tmp_path / "labs" / NAME)
    (tmp_path / "mine.py").write_text(changed(*MISTAKES["decay and 1 - decay the wrong way round"]))
    command = ["labs", "check", "20", str(tmp_path / "mine.py"), "--lab-dir", str(tmp_path / "labs"), "--hint"]
    assert main(command) == 1
    out = capsys.readouterr().out
    assert "total 8 of 12 points" in out
    assert "a common mistake here: decay and 1 - decay the wrong way round" in out
    assert "passes if the functions of 20.1 are replaced by right ones" in out
    assert main(["labs", "start", "20", "--lab-dir", str(tmp_path / "labs"), "-o", str(tmp_path)]) == 1
    assert (
        f"labs/{NAME}: solution.py is missing; a lab has the files checks.py and solution.py" in capsys.readouterr().err
    )


@needs_walls
@pytest.mark.slow
@pytest.mark.parametrize("without", [("mounts", "user"), ("landlock",), ("landlock", "mounts", "user")])
def test_behind_some_of_the_walls(without: tuple[str, ...], tmp_path: Path) -> None:
    """Here the folder lies in the checkout, whose packages are read."""
    lab = catalogue.find(20, EXAMPLES)
    try:
        around = finding.find(without, walls.secret(EXAMPLES))
    except finding.Hole:
        pytest.skip("this Python is root's alone")
    stolen = catalogue.notebook(lab) + CHEAT.replace("DIR", str(EXAMPLES)).replace("LAB", NAME)
    for text, score in ((stolen, 0), (TEXT, 12)):
        (tmp_path / "mine.py").write_text(text)
        assert judging.judge(lab, tmp_path / "mine.py", around=around).score == score


@needs_walls
@pytest.mark.slow
def test_the_zip_for_gradescope_grades(unpacked: Callable[..., Path], graded: Callable[[Path], Any]) -> None:
    place = unpacked("20", "--lab-dir", str(EXAMPLES))
    (place / "submission" / "a.py").write_text(TEXT)
    assert graded(place)["score"] == 12


def test_the_zip_for_gradescope_has_the_folder(unpacked: Callable[..., Path]) -> None:
    place = unpacked("20", "--lab-dir", str(EXAMPLES))
    files = {path.name for path in (EXAMPLES / NAME).iterdir() if path.is_file()}
    assert {path.name for path in (place / "source" / "labs" / NAME).iterdir()} == files
    assert 'chmod -R go= "${AUTOGRADER:-/autograder}/source/labs"' in (place / "source" / "setup.sh").read_text()


MISTAKES = {
    "decay and 1 - decay the wrong way round": [("decay * mean + (1 - decay) *", "(1 - decay) * mean + decay *")],
    "no division by 1 - decay^t": [("mean / (1 - decay**t)", "mean")],
    "the oldest value first": [("decay ** np.arange(count) /", "decay ** np.arange(count)[::-1] /")],
    "exp(-1 / n), after which": [("0.5 ** (1 / half_life)", "np.exp(-1 / half_life)")],
    "the step written into the model": [("mine.copy_(mn.tensor(step", "latest.copy_(mn.tensor(step")],
    "running statistics averaged": [("mine.copy_(latest)", "mine.copy_(mn.tensor(0.7 * mine.numpy() + 0.3))")],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_usual_mistake_shows_where_the_table_says(mistake: str) -> None:
    lab = catalogue.find(20, EXAMPLES)
    (row,) = [row for row in hints.mistakes(EXAMPLES / NAME / "mistakes.md") if row.words.startswith(mistake)]
    module, notes = submission.load(changed(*MISTAKES[mistake]), "mine.py")
    assert not notes
    with np.errstate(all="ignore"):
        lost = [row.title for row in lab.run(Here(module, lab.beside), 1) if row.status != "passed"]
    assert any(row.shows_in(title) for title in lost), lost


def test_every_mistake_is_tried() -> None:
    assert len(hints.mistakes(EXAMPLES / NAME / "mistakes.md")) == len(MISTAKES)


def test_the_example_has_the_form_of_a_lab() -> None:
    lab = catalogue.find(20, EXAMPLES)
    given = catalogue.notebook(lab)
    found = cells.read_percent(given)
    assert found[0].text.startswith(f"# Lab {lab.number}: {lab.title}")
    assert f"about {lab.minutes} minutes" in re.sub(r"\s+", " ", found[0].text)
    assert set(re.findall(r'NotImplementedError\(\s*"Task (\d+\.\d+): ', given)) == set(lab.tasks)
    assert re.findall(r'^check\("(\d+\.\d+)"\)', given, re.MULTILINE) == lab.tasks
    assert {item.task for item in lab.items if item.visible} == set(lab.tasks)
    answers = (EXAMPLES / NAME / "answers.md").read_text()
    assert found[-1].text.count("\n1. ") == 1
    assert len(re.findall(r"^\d\. ", answers, re.MULTILINE)) == len(re.findall(r"^\d\. ", found[-1].text, re.MULTILINE))


@pytest.mark.slow
def test_the_example_runs_as_a_notebook(tmp_path: Path) -> None:
    jupytext = pytest.importorskip("jupytext")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    shutil.copytree(EXAMPLES, tmp_path / "labs")
    notebook = jupytext.reads(TEXT, "py:percent")
    notebook.cells.insert(0, jupytext.reads(f"import sys; sys.path.insert(0, {str(ROOT)!r})", "py").cells[0])
    kernel = {"timeout": 240, "kernel_name": "python3", "resources": {"metadata": {"path": tmp_path}}}
    nbclient.NotebookClient(notebook, **kernel).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    (drawn,) = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(drawn.metadata["image/png"]["alt"]) >= 100
    assert not any(output.get("name") == "stderr" for output in outputs), "warnings"


def test_checks_in_a_notebook(monkeypatch: pytest.MonkeyPatch, own: Path, tmp_path: Path) -> None:
    own.rename(tmp_path / "labs")
    monkeypatch.chdir(tmp_path)
    module, _ = submission.load(TEXT, "mine.py")
    assert "passed" in repr(visible.checker(20, vars(module), lab_dir="labs")("20.3"))
    module.update = lambda *_: None  # type: ignore[attr-defined]
    with pytest.raises(visible.CheckFailed, match="after 3 updates"):
        visible.checker(20, vars(module), lab_dir="labs")("20.3")

    def fails(*_: Any) -> None:
        raise OSError("mine")

    module.update = fails  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="mine") as caught:
        visible.checker(20, vars(module), lab_dir="labs")("20.3")
    frames = [frame.name for frame in caught.traceback]
    assert frames[-1] == "fails"
    assert "averaged" not in frames  # of beside.py
    check = visible.checker(20, {}, lab_dir="elsewhere")  # a notebook without the folder still runs
    with pytest.raises(visible.NoChecks, match=r"the checks of task 20.1 are not here: there is no folder 'elsewhere'"):
        check("20.1")


LAB = f'LAB = Lab(20, "{NAME}", "A", "b?", minutes=9)\n'
HEAD = "from minorm.labs.lab import Lab\n"
TASK = '@LAB.check("{}", "one")\ndef one(student, rng):\n    pass\n'


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, f"own/{NAME}: checks.py is missing; a lab has the files checks.py and solution.py"),
        ({"checks.py": HEAD}, f"checks.py has no LAB; expected LAB = Lab(20, '{NAME}', ...)"),
        ({"checks.py": HEAD + LAB}, 'checks.py has no checks; expected checks of tasks "20.1"'),
        ({"checks.py": HEAD + LAB + TASK.format("1.1")}, "checks.py has task '1.1'; expected checks of tasks"),
        ({"checks.py": HEAD + LAB.replace("20,", "21,")}, f"checks.py has Lab(21, '{NAME}', ...); expected"),
        ({"checks.py": HEAD + "x = 1 / 0\n"}, f"own/{NAME}: checks.py, line 2: ZeroDivisionError: division by zero"),
        ({"checks.py": "def (\n"}, f"own/{NAME}: checks.py, SyntaxError: invalid syntax (checks.py, line 1)"),
        ({"checks.py": "from .helper import x\n"}, "checks.py, line 1: ModuleNotFoundError: No module named"),
        (
            {"checks.py": HEAD + LAB + TASK.format("20.1"), "beside.py": "x = 1\nfor\n"},
            f"own/{NAME}/beside.py, line 2: SyntaxError: invalid syntax",
        ),
    ],
)  # fmt: skip
def test_a_malformed_lab_is_named(tmp_path: Path, capsys: Capture, files: dict[str, str], said: str) -> None:
    (tmp_path / "own" / NAME).mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "own" / NAME / name).write_text(text)
    assert main(["labs", "list", "--lab-dir", str(tmp_path / "own")]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_solution_whose_marks_do_not_match(own: Path, tmp_path: Path, capsys: Capture) -> None:
    text = TEXT.replace("    # END\n", "", 1)
    (own / NAME / "solution.py").write_text(text)
    assert main(["labs", "start", "20", "--lab-dir", str(own), "-o", str(tmp_path)]) == 1
    assert re.search(rf"own/{NAME}/solution.py: line \d+: a SOLUTION inside the SOLUTION", capsys.readouterr().err)


def test_a_folder_that_holds_no_labs(tmp_path: Path, capsys: Capture) -> None:
    assert main(["labs", "list", "--lab-dir", str(tmp_path / "none")]) == 1
    assert "expected a folder with labs of your own" in capsys.readouterr().err
    (tmp_path / "notes").mkdir()
    assert main(["labs", "list", "--lab-dir", str(tmp_path)]) == 1
    assert "has no labs; expected folders such as lab20_title" in capsys.readouterr().err
    for name in ("lab20_one", "lab20_two"):
        (tmp_path / name).mkdir()
    assert main(["labs", "list", "--lab-dir", str(tmp_path)]) == 1
    assert "lab20_one and lab20_two are both lab 20" in capsys.readouterr().err


def test_a_lab_that_is_a_link(own: Path, tmp_path: Path, capsys: Capture) -> None:
    """It has the name of the link; the folder that it leads to is hidden as well, and another name is no second lab."""
    drafts = tmp_path / "drafts" / "v3"
    drafts.parent.mkdir()
    (own / NAME).rename(drafts)
    (own / NAME).symlink_to(drafts)
    (own / "current").symlink_to(own / NAME)
    assert main(["labs", "list", "--lab-dir", str(own)]) == 0
    assert main(["labs", "start", "20", "--lab-dir", str(own), "-o", str(tmp_path)]) == 0
    assert (tmp_path / f"{NAME}.py").is_file()
    assert walls.secret(own) == (str(drafts), str(own))
    capsys.readouterr()


def test_what_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole folder, by each name that it has where Python is read; the labs alone where Python lies in it."""
    python = tmp_path / "python"
    (python / "labs" / "lab20_a").mkdir(parents=True)
    (tmp_path / "link").symlink_to(python)
    (tmp_path / "lab21_b").mkdir()
    monkeypatch.setattr(walls, "readable", lambda: [str(tmp_path / "link"), str(python)])
    assert walls.secret(None) == ()
    assert walls.secret(python / "labs") == (str(tmp_path / "link" / "labs"), str(python / "labs"))
    assert walls.secret(tmp_path / "elsewhere") == (str(tmp_path / "elsewhere"),)
    assert walls.secret(tmp_path) == (str(tmp_path / "lab21_b"),)


@needs_walls
@pytest.mark.parametrize("without", [(), ("mounts", "user")])
def test_a_folder_inside_a_package_is_hidden_as_well(without: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """`find` tries to read it from within; if nothing hides it, no submission is graded."""
    package = (str(walls.PACKAGE / "data"),)
    try:
        around = finding.find(without)
    except finding.Hole:
        pytest.skip("this Python is root's alone")
    if not around.writes:
        pytest.skip("no wall says which files may be read")
    assert finding.find(without, package).secret == package
    finding._found.cache_clear()
    monkeypatch.setattr(walls, "hidden", lambda _=(): [str(path) for path in walls.HIDDEN])
    with pytest.raises(finding.Hole, match=r"read .*minorm/data/"):
        finding.find(without, package)
    finding._found.cache_clear()


def test_a_module_of_text_is_made_once() -> None:
    beside = Beside("minorm.labs.own.made_here", "numbers = []\n")
    beside.module().numbers.append(1)
    assert beside.module().numbers == [1]
