"""Makes a lab an assignment of nbgrader or of Otter-Grader.

    python examples/labs/make_assignment.py nbgrader 3 -o source/lab03 --seed 4711
    python examples/labs/make_assignment.py otter 3 -o otter-lab03 --seed 4711

nbgrader: the notebook for the course's `source/` folder. Each task has a cell with its points at the end, which
nbgrader fills in. Otter: the notebook, and `tests/` for `otter generate`. Both run `minorm labs check` on the file that
was handed in, so that the same checks grade everywhere. docs/course/nbgrader.md and docs/course/otter.md say how to use
them.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from minorm.labs import catalogue, cells
from minorm.labs.judge import mutation
from minorm.labs.lab import Check, Lab

JUDGE = """\
import json, subprocess, sys
command = [sys.executable, "-m", "minorm", "labs", "check", "{number}", {file}, "--json", "--seed", "-"]
report = json.loads(subprocess.run(command, input="{seed}", capture_output=True, text=True).stdout)
"""

POINTS = """\
# The points of task {task}. Leave this cell as it is: it is filled in when your work is graded.
### BEGIN HIDDEN TESTS
{judge}rows = [row for row in report.get("tests", []) if row["number"] == "{task}"]
for row in rows:
    print(row["score"], "of", row["max_score"], row["name"], "-", row["output"])
assert rows, report["output"]
float(sum(row["score"] for row in rows))
### END HIDDEN TESTS
"""

TESTS = '''\
"""Task {task}, as `minorm labs check` judges it."""

from otter.test_files import test_case

OK_FORMAT = False
name = "{task}"
points = None


def passed(title):
    """Whether a check earned its points."""
    rows = [row for row in report().get("tests", []) if row["name"] == title]
    assert rows, report()["output"]
    assert rows[0]["score"] == rows[0]["max_score"], rows[0]["output"]


def report():
    """The report on the file that was handed in. The first task's tests run the judge, the others keep its answer."""
    if judges[0] or not hasattr(test_case, "report"):
        judges[0] = False
        test_case.report = judged()
    return test_case.report


def judged():
    import pathlib

    (file,) = map(str, pathlib.Path.cwd().glob("*.ipynb"))
{judge}    return report


judges = [{first}]
'''

TEST = """

@test_case(name={title!r}, points={points:g}, hidden={hidden})
def check_{place}():
    passed({title!r})
"""


def nbgrader(lab: Lab, seed: int) -> dict[str, str]:
    """The notebook of nbgrader's source folder: the students' one, and a cell with the points of each task."""
    notebook = json.loads(cells.to_notebook(cells.read_percent(catalogue.notebook(lab))))
    heading = (
        "## Points\n\nThe cells below are for the grader. Hand the notebook in with them."
    )
    notebook["cells"].append(_cell("points", "markdown", heading))
    judge = JUDGE.format(number=lab.number, file=repr(f"{lab.file}.ipynb"), seed=seed)
    for task in lab.tasks:  # the judge runs once, for the first
        text = POINTS.format(task=task, judge=judge if task == lab.tasks[0] else "")
        cell = _cell(f"points-{task.replace('.', '-')}", "code", text)
        cell["metadata"]["tags"] = ["check"]  # `labs check` leaves such cells out
        cell["metadata"]["nbgrader"] = {
            "grade": True,
            "grade_id": cell["id"],
            "locked": True,
            "points": lab.of_task(task).points,
            "schema_version": 3,
            "solution": False,
            "task": False,
        }
        notebook["cells"].append(cell)
    return {
        f"{lab.file}.ipynb": json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    }


def otter(lab: Lab, seed: int) -> dict[str, str]:
    """The students' notebook, and a file of tests for each task: a test case for each check, with its points."""
    files = {
        f"{lab.file}.ipynb": cells.to_notebook(
            cells.read_percent(catalogue.notebook(lab))
        )
    }
    judge = textwrap.indent(
        JUDGE.format(number=lab.number, file="file", seed=seed), "    "
    )
    for task in lab.tasks:
        text = TESTS.format(task=task, judge=judge, first=task == lab.tasks[0])
        for place, (title, points, hidden) in enumerate(_rows(lab.of_task(task)), 1):
            text += TEST.format(
                title=f"{task} {title}", points=points, hidden=hidden, place=place
            )
        files[f"tests/task_{task.replace('.', '_')}.py"] = text
    return files


def _rows(lab: Lab) -> list[tuple[str, float, bool]]:
    """Title, points, and whether students do not have it, for each row of the report on a lab."""
    rows: list[tuple[str, float, bool]] = []
    for item in lab.items:
        if isinstance(item, Check):
            rows.append((item.title, item.points, not item.visible))
        else:
            titles = [mutation.RIGHT, *(f"bug: {bug}" for bug in item.bugs)]
            rows += [(title, 1.0, not item.visible) for title in titles]
    return rows


def _cell(name: str, kind: str, text: str) -> dict[str, Any]:
    code: dict[str, Any] = (
        {"execution_count": None, "outputs": []} if kind == "code" else {}
    )
    return {
        "cell_type": kind,
        "id": name,
        "metadata": {},
        "source": text.splitlines(keepends=True),
        **code,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Makes a lab an assignment of nbgrader or of Otter-Grader."
    )
    parser.add_argument("kind", choices=("nbgrader", "otter"))
    parser.add_argument("lab", type=int, metavar="N")
    parser.add_argument(
        "-o", "--out", required=True, metavar="DIR", help="made if it does not exist"
    )
    parser.add_argument(
        "--seed",
        type=int,
        required=True,
        help="the seed of the hidden numbers, which students must not know",
    )
    parser.add_argument(
        "--lab-dir",
        metavar="DIR",
        help="a folder with labs of your own, used in place of the course",
    )
    args = parser.parse_args(arguments)
    make = {"nbgrader": nbgrader, "otter": otter}[args.kind]
    for name, text in make(catalogue.find(args.lab, args.lab_dir), args.seed).items():
        path = Path(args.out) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
