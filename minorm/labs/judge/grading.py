"""Grading: each submission by a judge in a process of its own, so that none can end the grading.

The CSV is replaced after each submission, whole, so an interrupted run leaves what was graded. A judge that does not
answer, or dies, gives a row with score 0 and a note. Seed and questions reach it through a pipe: command lines and
environments can be read by others. It answers when all of the student's processes are gone.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from minorm.config import __version__
from minorm.labs import catalogue
from minorm.labs.judge import first_look, judging, student_page
from minorm.labs.lab import Lab
from minorm.labs.scores import MUCH, Outcome, Report
from minorm.labs.sealed import folders, process_limits, walls
from minorm.serialization import atomic
from minorm.serialization.opening import in_words, kind
from minorm.support.masking import for_spreadsheet, printable, quoted

ENDINGS = (".py", ".ipynb")
MOST_FILES = 1000  # in a student's folder
DEEPEST = 50  # folders nested in it
MEMORY = 16 << 30  # bytes of address space of a judge
JUDGING = 240.0  # seconds that the judge may compute, besides those that it waits for the submission
ROOT = Path(__file__).resolve().parents[3]
JUDGE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from minorm.labs.judge.grading import answer; answer()"
)


@dataclass(frozen=True)
class Submission:
    """Somebody's file, or why there is none."""

    name: str
    path: Path | None
    problem: str = ""


@dataclass(frozen=True)
class Options:
    """How submissions are judged: judging.judge says what each means."""

    walls: walls.Walls
    seed: int = judging.SEED
    memory: int | None = None
    patience: float = 1.0
    hints: bool = False
    task: str | None = None


def submissions(folder: Path, lab: Lab) -> list[Submission]:
    """Each file of the folder is one, and each folder in it: its file called like the lab's, or its only one.

    A file of another kind has a row too, for it may be somebody's archive; a .csv has not, for it may be the grades.
    """
    found = []
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise in_words(error, f"labs: cannot list the folder {quoted(str(folder))}: {error.strerror}") from error
    for entry in entries:
        if entry.name.startswith((".", "__")):
            continue
        mode = entry.lstat().st_mode
        if stat.S_ISDIR(mode):
            found.append(_in_folder(entry, lab))
        elif not stat.S_ISREG(mode):
            found.append(Submission(entry.name, None, f"{kind(mode)}; expected a regular file or a folder with one"))
        elif entry.suffix in ENDINGS:
            found.append(Submission(entry.name, entry))
        elif entry.suffix != ".csv":
            found.append(Submission(entry.name, None, "expected a .py file, an .ipynb notebook or a folder with one"))
    return found


def _in_folder(folder: Path, lab: Lab) -> Submission:
    """The file in a student's folder. Links are not followed: they may lead to what is another's."""
    files: list[Path] = []
    links, seen = 0, 0
    for path, below, names in os.walk(folder):
        for name in sorted(names):
            one = Path(path, name)
            mode = one.lstat().st_mode
            links += not stat.S_ISREG(mode)
            if one.suffix in ENDINGS and stat.S_ISREG(mode):
                files.append(one)
        seen += len(below) + len(names)
        if seen > MOST_FILES:
            return Submission(folder.name, None, f"more than {MOST_FILES} files")
        if len(Path(path).relative_to(folder).parts) > DEEPEST:
            return Submission(folder.name, None, f"folders that lie more than {DEEPEST} deep in each other")
    named = [path for path in files if path.stem.startswith(lab.file)] or files
    if len(named) == 2 and {path.suffix for path in named} == set(ENDINGS):
        named = [path for path in named if path.suffix == ".py"]  # the notebook and its pair
    if len(named) == 1:
        return Submission(folder.name, named[0])
    others = f" ({links} links or pipes are left out)" if links else ""
    return Submission(folder.name, None, f"{len(named)} files that could be it; expected one {lab.file}.py{others}")


def try_judge(lab: Lab, reference: Path, options: Options) -> None:
    """RuntimeError unless the reference solution earns full marks here: a judge that fails it would fail everybody."""
    row, _, _ = _row(lab, Submission(reference.name, reference), options)
    if row["score"] != row["points"]:
        memory = lab.memory if options.memory is None else options.memory
        limited = f"seed {options.seed}, memory {memory} MB, patience {options.patience:g}"
        raise RuntimeError(
            f"nobody was graded, because the reference solution {reference.name} earns only {row['score']} of "
            f"{row['points']} points on this machine ({limited}): {row['failed'] or row['notes']}"
        )


def grade(
    lab: Lab, folder: str | Path, csv_path: str | Path, options: Options, reports: str | Path | None = None
) -> Iterator[dict[str, Any]]:
    """Grade each submission and write the CSV; yields each row as it is done.

    reports  a folder for a page a student; made if it is not there

    ValueError for a folder without any; ImportError where this machine lacks what the lab needs.
    """
    judging.require(options.seed, options.memory, options.patience)
    lab.require()
    found = submissions(Path(folder), lab)
    if not found:
        raise ValueError(f"{folder} has no submissions; expected .py or .ipynb files, or a folder for each student")
    with atomic.making_folder(reports, "labs grade") if reports is not None else contextlib.nullcontext():
        yield from _graded(lab, found, csv_path, options, reports)


def _graded(
    lab: Lab, found: Sequence[Submission], csv_path: str | Path, options: Options, reports: str | Path | None
) -> Iterator[dict[str, Any]]:
    """`grade`, in the folder of reports."""
    rows: list[dict[str, Any]] = []
    same: dict[str, list[dict[str, Any]]] = {}  # rows by their code
    pages: set[str] = set()
    for one in found:
        row, report, code = _row(lab, one, options)
        rows.append(row)
        if code is not None:
            _mark_equal(same.setdefault(code, []), row)
        if reports is not None:
            student_page.write(Path(reports), one.name, student_page.html(one.name, report, row["notes"]), pages)
        with atomic.replacing(csv_path, "grade") as file:
            file.write(as_csv(rows).encode())
        yield row


def _mark_equal(others: list[dict[str, Any]], row: dict[str, Any]) -> None:
    """Name in each of these rows the others, whose code is the same."""
    others.append(row)
    for one in others:
        one["same as"] = "; ".join(other["submission"] for other in others if other is not one)


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The rows with a line of names above."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: for_spreadsheet(cell) if isinstance(cell, str) else cell for key, cell in row.items()})
    return text.getvalue()


def answer() -> None:
    """The judge's process: a question from standard input, a report to standard output."""
    process_limits.hide()
    process_limits.set_limits(MEMORY, file_size=MEMORY, files=4096)
    question = json.load(sys.stdin)
    tempfile.tempdir = question["scratch"]
    around = walls.Walls.of(question["walls"])
    lab, path = catalogue.find(question["lab"], question["lab_dir"]), Path(question["path"])
    try:
        seen = first_look.look(judging.read(path), path.name, lab)
        report = judging.judge(lab, question["path"], **question["options"], around=around)
        result: dict[str, Any] = {"report": as_message(report), "seen": seen}
    except (ValueError, OSError, ImportError, RuntimeError, MemoryError) as error:
        result = {"problem": str(error) or type(error).__name__}
    with os.fdopen(os.dup(1), "w") as file:
        json.dump(result, file)


def as_message(report: Report) -> dict[str, Any]:
    """A report as JSON carries it; exceptions stay here."""
    rows = [{**asdict(row.but(cause=None)), "cause": None} for row in report.outcomes]
    named = {field.name: getattr(report, field.name) for field in fields(report)}
    return {**named, "outcomes": rows, "notes": list(report.notes)}


def from_message(message: dict[str, Any]) -> Report:
    """The inverse."""
    return Report(**{**message, "outcomes": [Outcome(**row) for row in message["outcomes"]]})


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


def _row(lab: Lab, one: Submission, options: Options) -> tuple[dict[str, Any], Report | None, str | None]:
    """The row, the report, and a digest of the code where it may be compared with others'."""
    problem, report = one.problem, None
    seen: dict[str, Any] = {"code": None, "remarks": []}
    if one.path is not None:
        try:
            report, seen = _judged(lab, one.path, options)
        except ValueError as error:
            problem = str(error)
    tasks = {task: earned for task, (earned, _) in report.by_task().items()} if report else {}
    score = sum(tasks.values())
    notes = [problem] if report is None else [*seen["remarks"], *report.notes]
    if report is not None and report.printed > MUCH:
        notes.append(f"printed {report.printed:,} bytes")
    row = {
        "submission": printable(one.name),
        "score": f"{score:g}",
        "points": f"{lab.points:g}",
        "percent": round(100 * score / lab.points, 1),
        **{f"task {task}": f"{tasks.get(task, 0):g}" for task in lab.tasks},
        "seconds": round(report.seconds if report else 0.0, 1),
        "failed": "; ".join(_failures(report.outcomes) if report else []),
        "notes": "; ".join(notes),
        "same as": "",
        "walls": str(options.walls),
        "version": __version__,
        "seed hash": first_look.seed_hash(options.seed),
    }
    return row, report, seen["code"]


def judged(lab: Lab, path: Path, options: Options) -> Report:
    """What a judge in a process of its own says about a file; ValueError in words where it has no report."""
    return _judged(lab, path, options)[0]


def _judged(lab: Lab, path: Path, options: Options) -> tuple[Report, dict[str, Any]]:
    """Its report, and what it saw at first; its folders go with it, even where it was killed."""
    scratch = tempfile.mkdtemp(prefix="grade")
    try:
        os.chmod(scratch, 0o711)  # a student's process, of another user, finds its own folder in it
        result = _asked(lab, path, options, scratch)
    finally:
        folders.remove(scratch)
    if "problem" in result:
        raise ValueError(result["problem"].replace(str(path.absolute()), str(path)))
    return from_message(result["report"]), result["seen"]


def _asked(lab: Lab, path: Path, options: Options, scratch: str) -> dict[str, Any]:
    question = {
        "lab": lab.number,
        "lab_dir": lab.lab_dir and str(lab.lab_dir),
        "path": str(path.absolute()),
        "options": {
            "seed": options.seed,
            "memory": options.memory,
            "patience": options.patience,
            "hints": options.hints,
            "task": options.task,
        },
        "walls": asdict(options.walls),
        "scratch": scratch,
    }
    path_list = json.dumps([str(ROOT), *(os.path.abspath(entry) for entry in sys.path)])
    limit = options.patience * (lab.seconds + JUDGING)
    judge = subprocess.Popen(
        [sys.executable, "-I", "-c", JUDGE, path_list],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        said, _ = judge.communicate(json.dumps(question).encode(), limit)
    except subprocess.TimeoutExpired:
        return {"problem": f"no report within {limit:.0f} s"}
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(judge.pid, signal.SIGKILL)
        judge.wait()
    if judge.returncode != 0:
        return {"problem": f"the grader's process was ended with code {judge.returncode}"}
    try:
        result: dict[str, Any] = json.loads(said)
    except ValueError:
        return {"problem": "no report"}
    return result
