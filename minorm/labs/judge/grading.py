"""Grading: each submission by a judge in a process of its own, so that none can end the grading.

The CSV is replaced after each submission, whole, so an interrupted run leaves what was graded. A judge that does not
answer, or dies, gives a row with score 0 and a note. Seed and questions reach it through a pipe: command lines and
environments can be read by others. It answers when all of the student's processes are gone.
"""

from __future__ import annotations

import contextlib
import csv
import fnmatch
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from minorm.config import __version__
from minorm.labs import catalogue, cells
from minorm.labs.judge import first_look, handed_in, judging, similarity, student_page
from minorm.labs.judge.handed_in import Submission, submissions
from minorm.labs.judge.lateness import Lateness
from minorm.labs.judge.roster import ROSTER, Roster
from minorm.labs.lab import Lab
from minorm.labs.scores import MUCH, Outcome, Report
from minorm.labs.sealed import folders, process_limits, walls
from minorm.labs.varied import rendering
from minorm.serialization import atomic
from minorm.support.masking import for_spreadsheet, printable

MEMORY = 16 << 30  # bytes of address space of a judge
JUDGING = 240.0  # seconds that the judge may compute, besides those that it waits for the submission
ROOT = Path(__file__).resolve().parents[3]
JUDGE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from minorm.labs.judge.grading import answer; answer()"
)


@dataclass(frozen=True)
class Options:
    """How submissions are judged: judging.judge says what each means.

    variant  its code, empty for the lab without a variant; None for the one that a submission names
    """

    walls: walls.Walls
    seed: int = judging.SEED
    memory: int | None = None
    patience: float = 1.0
    hints: bool = False
    task: str | None = None
    variant: str | None = ""


def try_judge(lab: Lab, reference: Path, options: Options) -> None:
    """RuntimeError unless the reference solution earns full marks here: a judge that fails it would fail everybody."""
    with tempfile.TemporaryDirectory(prefix="reference") as folder:
        row = _row(lab, Submission(reference.name, (_in_variant(lab, reference, options, folder),)), options).row
    if row["score"] != row["points"]:
        memory = lab.memory if options.memory is None else options.memory
        limited = f"seed {options.seed}, memory {memory} MB, patience {options.patience:g}"
        raise RuntimeError(
            f"nobody was graded, because the reference solution {reference.name} earns only {row['score']} of "
            f"{row['points']} points on this machine ({limited}): {row['failed'] or row['notes']}"
        )


def _in_variant(lab: Lab, reference: Path, options: Options, folder: str) -> Path:
    """A solution of the variant that is graded: a file of the plain lab has its constants put in."""
    variant = lab.variants.read(options.variant or "")
    if not variant.code or reference.suffix != ".py":
        return reference
    text, _ = judging.read(reference)
    if rendering.said(cells.read_percent(text)):
        return reference
    path = Path(folder, reference.name)
    path.write_text(rendering.rendered(text, lab.variants, variant), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Class:
    """How a class is graded.

    jobs      submissions that are judged at a time
    only      patterns of names, as a shell has them: of all other submissions the rows of the CSV stay as they are
    lateness  the rule for what came late; None for none
    roster    the course's students; None for no such list
    reports   a folder for a page a student; made if it is not there
    """

    jobs: int = 1
    only: Sequence[str] = ()
    lateness: Lateness | None = None
    roster: Roster | None = None
    reports: str | Path | None = None


def grade(
    lab: Lab, folder: str | Path, csv_path: str | Path, options: Options, how: Class | None = None
) -> Iterator[dict[str, Any]]:
    """Grade each submission and write the CSV; yields each row as it is done.

    ValueError for a folder without any; ImportError where this machine lacks what the lab needs.
    """
    judging.require(options.seed, options.memory, options.patience)
    lab.require()
    how = Class() if how is None else how
    before = _rows_before(csv_path) if how.only else []
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="handed-in")))
        found = [one for one in submissions(Path(folder), lab, scratch) if _is_asked_for(one, how.only)]
        if not found:
            asked = f" called {' or '.join(how.only)}" if how.only else ""
            raise ValueError(f"{folder} has no submissions{asked}; expected .py, .ipynb or .zip files, or a folder for "
                             "each student")  # fmt: skip
        if how.reports is not None:
            stack.enter_context(atomic.making_folder(how.reports, "labs grade"))
        yield from _graded(lab, found, csv_path, options, how, before)


def _is_asked_for(one: Submission, only: Sequence[str]) -> bool:
    return not only or any(fnmatch.fnmatchcase(one.name, pattern) for pattern in only)


def _rows_before(csv_path: str | Path) -> list[dict[str, Any]]:
    """The rows of a CSV that was written before, without the roster's columns; none where there is no such file."""
    try:
        with open(csv_path, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row.get("submission")]
    except FileNotFoundError:
        return []
    return [{name: cell for name, cell in row.items() if not name.startswith(ROSTER)} for row in rows]


@dataclass
class Graded:
    """One submission when it is done: its row, its report, and what may be compared with others'."""

    row: dict[str, Any]
    report: Report | None
    code: str | None
    prints: set[int]


def _graded(
    lab: Lab,
    found: Sequence[Submission],
    csv_path: str | Path,
    options: Options,
    how: Class,
    before: Sequence[dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """`grade`, in the folder of reports."""
    done: list[Graded] = []
    pages: set[str] = set()
    with ThreadPoolExecutor(how.jobs) as pool:
        for one, graded in zip(found, pool.map(lambda one: _row(lab, one, options, how.lateness), found), strict=True):
            done.append(graded)
            _compare(done)
            if how.reports is not None:
                page = student_page.html(one.name, graded.report, graded.row["notes"])
                student_page.write(Path(how.reports), one.name, page, pages)
            rows = [each.row for each in done]
            now = {row["submission"] for row in rows}
            if before and before[0].keys() != rows[0].keys():
                raise ValueError(f"{csv_path} has other columns than these options give; with --only, expected "
                                 "a CSV of the same lab and the same options")  # fmt: skip
            if before:
                rows = sorted(
                    [*rows, *(row for row in before if row["submission"] not in now)], key=lambda row: row["submission"]
                )
            with atomic.replacing(csv_path, "grade") as file:
                file.write(as_csv(rows if how.roster is None else list(how.roster.joined(rows))).encode())
            yield graded.row


def _compare(done: Sequence[Graded]) -> None:
    """Name in each row the others whose code is the same, and those whose code is alike."""
    by_code: dict[str, list[str]] = {}
    for one in done:
        if one.code is not None:
            by_code.setdefault(one.code, []).append(one.row["submission"])
    alike = similarity.alike({one.row["submission"]: one.prints for one in done})
    for one in done:
        name = one.row["submission"]
        equal = [other for other in by_code.get(one.code or "", []) if other != name]
        one.row["same as"] = "; ".join(equal)
        others = sorted(alike[name].items(), key=lambda pair: -pair[1])
        one.row["similar to"] = "; ".join(f"{other} ({share:.0%})" for other, share in others if other not in equal)


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
    lab, paths = catalogue.find(question["lab"], question["lab_dir"]), [Path(path) for path in question["paths"]]
    try:
        path, seen = first_look.chosen(paths, lab)
        lab, remark = first_look.asked(lab, seen["variant"], question["variant"])
        report = replace(judging.judge(lab, path, **question["options"], around=around), remark=remark)
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


def _row(lab: Lab, one: Submission, options: Options, lateness: Lateness | None = None) -> Graded:
    """One submission, judged."""
    problem, report = one.problem, None
    seen: dict[str, Any] = {"code": None, "prints": [], "remarks": []}
    if one.paths:
        try:
            report, seen = _judged(lab, one.paths, options)
        except ValueError as error:
            problem = str(error)
    tasks = {task: earned for task, (earned, _) in report.by_task().items()} if report else {}
    score = sum(tasks.values())
    notes = [problem] if report is None else [*filter(None, [report.remark]), *seen["remarks"], *report.notes]
    if report is not None and report.printed > MUCH:
        notes.append(f"printed {report.printed:,} bytes")
    row = {
        "submission": printable(one.name),
        "score": f"{score:g}",
        "points": f"{lab.points:g}",
        "percent": round(100 * score / lab.points, 1),
        **({} if lateness is None else lateness.columns(one.when, score)),
        **{f"task {task}": f"{tasks.get(task, 0):g}" for task in lab.tasks},
        "seconds": round(report.seconds if report else 0.0, 1),
        "failed": "; ".join(_failures(report.outcomes) if report else []),
        "notes": "; ".join(notes),
        "same as": "",
        "similar to": "",
        "walls": str(options.walls),
        **({"variant": options.variant} if options.variant else {}),
        "version": __version__,
        "seed hash": first_look.seed_hash(options.seed),
    }
    return Graded(row, report, seen["code"], set(seen["prints"]))


def judged(lab: Lab, path: Path, options: Options) -> Report:
    """What a judge in a process of its own says about a file, or about the changed one in a folder or .zip archive.

    ValueError in words where it has no report.
    """
    if not path.is_dir() and path.suffix != ".zip":
        return _judged(lab, [path], options)[0]
    with tempfile.TemporaryDirectory(prefix="handed-in") as scratch:
        one = handed_in.of(path, lab, Path(scratch))
        if one.problem:
            raise ValueError(f"{path}: {one.problem}")
        report, seen = _judged(lab, one.paths, options)
        return replace(report, notes=[*seen["remarks"], *report.notes])


def _judged(lab: Lab, paths: Sequence[Path], options: Options) -> tuple[Report, dict[str, Any]]:
    """Its report, and what it saw at first; its folders go with it, even where it was killed."""
    scratch = tempfile.mkdtemp(prefix="grade")
    try:
        os.chmod(scratch, 0o711)  # a student's process, of another user, finds its own folder in it
        result = _asked(lab, paths, options, scratch)
    finally:
        folders.remove(scratch)
    if "problem" in result:
        problem = result["problem"]
        for path in paths:
            problem = problem.replace(str(path.absolute()), str(path))
        raise ValueError(problem)
    return from_message(result["report"]), result["seen"]


def _asked(lab: Lab, paths: Sequence[Path], options: Options, scratch: str) -> dict[str, Any]:
    question = {
        "lab": lab.number,
        "lab_dir": lab.lab_dir and str(lab.lab_dir),
        "paths": [str(path.absolute()) for path in paths],
        "options": {
            "seed": options.seed,
            "memory": options.memory,
            "patience": options.patience,
            "hints": options.hints,
            "task": options.task,
        },
        "variant": options.variant,
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
