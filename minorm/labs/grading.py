"""Grading a folder: each submission by a judge in a process of its own, so that none can end the grading.

The CSV is replaced after each submission, whole, so an interrupted run leaves what was graded. A judge that does not
answer, or dies, gives a row with score 0 and a note.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minorm import atomic
from minorm.labs import catalogue, judging
from minorm.labs.lab import Lab
from minorm.labs.process import ROOT
from minorm.labs.report import MUCH, Outcome
from minorm.opening import in_words

ENDINGS = (".py", ".ipynb")
JUDGE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from minorm.labs.grading import answer; answer(json.loads(sys.argv[2]))"
)


@dataclass(frozen=True)
class Submission:
    """Somebody's file, or why there is none."""

    name: str
    path: Path | None
    problem: str = ""


def submissions(folder: Path, lab: Lab) -> list[Submission]:
    """Each file of the folder is one, and each folder in it: its file called like the lab's, or its only one.

    A file of another kind has a row too, for it may be somebody's archive; a .csv has not, for it may be the grades.
    """
    found = []
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise in_words(error, f"labs: cannot list the folder {str(folder)!r}: {error.strerror}") from error
    for entry in entries:
        if entry.name.startswith((".", "__")):
            continue
        if entry.is_dir():
            files = [path for path in sorted(entry.rglob("*")) if path.suffix in ENDINGS and path.is_file()]
            named = [path for path in files if path.stem.startswith(lab.file)] or files
            if len(named) > 1 and {path.suffix for path in named} == set(ENDINGS) and len(named) == 2:
                named = [path for path in named if path.suffix == ".py"]  # the notebook and its pair
            problem = "" if len(named) == 1 else f"{len(named)} files that could be it; expected one {lab.file}.py"
            found.append(Submission(entry.name, None if problem else named[0], problem))
        elif entry.suffix in ENDINGS:
            found.append(Submission(entry.name, entry))
        elif entry.suffix != ".csv":
            found.append(Submission(entry.name, None, "expected a .py file, an .ipynb notebook or a folder with one"))
    return found


def try_judge(lab: Lab, reference: Path, seed: int, memory: int | None, patience: float) -> None:
    """RuntimeError unless the reference solution earns full marks here: a judge that fails it would fail everybody."""
    row = _row(lab, Submission(reference.name, reference), seed, memory, patience)
    if row["score"] != row["points"]:
        limits = f"seed {seed}, memory {lab.memory if memory is None else memory} MB, patience {patience:g}"
        raise RuntimeError(
            f"nobody was graded, because the reference solution {reference.name} earns only {row['score']} of "
            f"{row['points']} points on this machine ({limits}): {row['failed'] or row['notes']}"
        )


def grade(
    lab: Lab, folder: str | Path, csv_path: str | Path, seed: int, memory: int | None, patience: float
) -> Iterator[dict[str, Any]]:
    """Grade each submission and write the CSV; yields each row as it is done.

    ValueError for a folder without any; ImportError where this machine lacks what the lab needs.
    """
    judging.require(seed, memory, patience)
    lab.require()
    found = submissions(Path(folder), lab)
    if not found:
        raise ValueError(f"{folder} has no submissions; expected .py or .ipynb files, or a folder for each student")
    rows: list[dict[str, Any]] = []
    for one in found:
        row = _row(lab, one, seed, memory, patience)
        rows.append(row)
        with atomic.replacing(csv_path, "grade") as file:
            file.write(as_csv(rows).encode())
        yield row


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The rows with a line of names above."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _harmless(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def answer(question: dict[str, Any]) -> None:
    """The judge's process: write one report as JSON to the descriptor that was given."""
    tempfile.tempdir = question["scratch"]
    lab = catalogue.find(question["lab"])
    limits = {name: question[name] for name in ("seed", "memory", "patience")}
    try:
        report = judging.judge(lab, question["path"], **limits)
        result = {
            "tasks": {task: earned for task, (earned, _) in report.by_task().items()},
            "failed": _failures(report.outcomes),
            "notes": [*report.notes, *([f"printed {report.printed:,} bytes"] if report.printed > MUCH else [])],
            "seconds": report.seconds,
        }
    except (ValueError, OSError, ImportError) as error:
        result = {"problem": str(error)}
    with os.fdopen(question["answer_to"], "w") as file:
        json.dump(result, file)


def _failures(rows: Sequence[Outcome]) -> list[str]:
    """`0.2 a mask of axes: died`; a task of which nothing else is to be said is one entry, `0.3: not done`."""
    found: list[str] = []
    for task in dict.fromkeys(row.task for row in rows):
        mine = [row for row in rows if row.task == task]
        if len({row.status for row in mine}) == 1 and mine[0].status != "passed":
            found.append(f"{task}: {mine[0].status}")
        else:
            found += [f"{task} {row.title}: {row.status}" for row in mine if row.status != "passed"]
    return found


def _row(lab: Lab, one: Submission, seed: int, memory: int | None, patience: float) -> dict[str, Any]:
    result: dict[str, Any] = {"problem": one.problem}
    if one.path is not None:
        result = _judged(lab, one.path, seed, memory, patience)
    tasks = result.get("tasks", {})
    score = sum(tasks.values())
    notes = [result["problem"]] if result.get("problem") else result.get("notes", [])
    return {
        "submission": one.name,
        "score": f"{score:g}",
        "points": f"{lab.points:g}",
        "percent": round(100 * score / lab.points, 1),
        **{f"task {task}": f"{tasks.get(task, 0):g}" for task in lab.tasks},
        "seconds": round(result.get("seconds", 0.0), 1),
        "failed": "; ".join(result.get("failed", [])),
        "notes": "; ".join(notes),
    }


def _judged(lab: Lab, path: Path, seed: int, memory: int | None, patience: float) -> dict[str, Any]:
    """What the judge's process says about a file; its folders go with it, even where it was killed."""
    with tempfile.TemporaryDirectory(prefix="grade", ignore_cleanup_errors=True) as scratch:
        return _asked(lab, path, seed, memory, patience, scratch)


def _asked(lab: Lab, path: Path, seed: int, memory: int | None, patience: float, scratch: str) -> dict[str, Any]:
    read, write = os.pipe()
    question = {
        "lab": lab.number,
        "path": str(path.resolve()),
        "seed": seed,
        "memory": memory,
        "patience": patience,
        "answer_to": write,
        "scratch": scratch,
    }
    path_list = json.dumps([str(ROOT), *(os.path.abspath(entry) for entry in sys.path)])
    limit = patience * (120 + sum(item.seconds for item in lab.items) * 3)
    with os.fdopen(read) as answers:
        judge = subprocess.Popen(
            [sys.executable, "-I", "-c", JUDGE, path_list, json.dumps(question)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(write,),
            start_new_session=True,
        )
        os.close(write)
        try:
            judge.wait(limit)  # the answer is smaller than a pipe, so nobody waits for us to read it
        except subprocess.TimeoutExpired:
            return {"problem": f"no report within {limit:.0f} s"}
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(judge.pid, signal.SIGKILL)
            judge.wait()
        if judge.returncode != 0:
            return {"problem": f"the grader's process was ended with code {judge.returncode}"}
        try:
            result: dict[str, Any] = json.loads(answers.read())
        except ValueError:
            return {"problem": "no report"}
    return result


def _harmless(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula, with an apostrophe in front."""
    return "'" + value if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
