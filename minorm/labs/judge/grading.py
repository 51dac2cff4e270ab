"""Grades each submission by a judge in a separate process, so that no submission can end the grading.

The whole CSV is replaced after each submission, so an interrupted run keeps the finished grades. If a run is
interrupted, all judges end at once. If a judge does not answer, or dies, the submission's row has score 0 and a note.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from minorm.config import __version__
from minorm.labs import cells
from minorm.labs.judge import first_look, grades_table, handed_in, judging, similarity, student_page
from minorm.labs.judge.handed_in import Submission, submissions
from minorm.labs.judge.judges import Judges, from_message
from minorm.labs.judge.lateness import Lateness
from minorm.labs.judge.roster import Roster
from minorm.labs.lab import Lab
from minorm.labs.scores import MUCH_OUTPUT, Outcome, Report
from minorm.labs.sealed import folders, walls
from minorm.labs.varied import rendering
from minorm.serialization import atomic
from minorm.support.safe_names import printable

JUDGING = 240.0  # seconds that the judge may compute, besides those that it waits for the submission


@dataclass(frozen=True)
class Options:
    """How submissions are judged: judging.judge explains each option.

    variant  the code of the variant; empty for the plain lab; None for the variant that a submission names
    """

    walls: walls.Walls
    seed: int = judging.SEED
    memory: int | None = None
    patience: float = 1.0
    hints: bool = False
    task: str | None = None
    variant: str | None = ""


def try_judge(lab: Lab, reference: Path, options: Options) -> None:
    """Raise RuntimeError unless the reference solution earns all points on this machine.

    If the reference solution fails here, right solutions of students would fail too.
    """
    with tempfile.TemporaryDirectory(prefix="reference") as folder:
        row = _row(
            lab, Submission(reference.name, (_in_variant(lab, reference, options, folder),)), options, Judges()
        ).row
    if row["score"] != row["points"]:
        memory = lab.memory if options.memory is None else options.memory
        limited = f"seed {options.seed}, memory {memory} MB, patience {options.patience:g}"
        raise RuntimeError(
            f"no submission was graded, because the reference solution {reference.name} earns only {row['score']} of "
            f"{row['points']} points on this machine ({limited}): {row['failed'] or row['notes']}"
        )


def _in_variant(lab: Lab, reference: Path, options: Options, folder: str) -> Path:
    """Return the path of a solution of the variant that is graded.

    If `reference` solves the plain lab, the variant's text is written to `folder`.
    """
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
    """How to grade a class.

    jobs      how many submissions are judged at a time
    only      patterns of names, as in a shell; the rows of all other submissions stay unchanged in the CSV
    lateness  the rule for late submissions; None if there is no rule
    roster    the course's students; None if there is no list of them
    reports   a folder for one page per student, which is made if it is missing
    """

    jobs: int = 1
    only: Sequence[str] = ()
    lateness: Lateness | None = None
    roster: Roster | None = None
    reports: str | Path | None = None


def grade(
    lab: Lab, folder: str | Path, csv_path: str | Path, options: Options, how: Class | None = None
) -> Iterator[dict[str, Any]]:
    """Grade each submission and write the CSV; yield each row when it is done.

    ValueError is raised for a folder without submissions, and ImportError if this machine lacks what the lab needs.
    """
    judging.require(options.seed, options.memory, options.patience)
    lab.require()
    how = Class() if how is None else how
    before = grades_table.before(csv_path) if how.only else []
    if before and before[0].keys() != _columns(lab, options, how):
        raise ValueError(
            f"{csv_path} does not have the columns that these options give; with --only, expected a CSV of the same "
            "lab and the same options"
        )
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="handed-in")))
        there = submissions(Path(folder), lab, scratch)
        found = [one for one in there if _is_asked_for(one, how.only)]
        if not found:
            asked = f" called {' or '.join(how.only)}" if how.only else ""
            raise ValueError(f"{folder} has no submissions{asked}; expected .py, .ipynb or .zip files, or a folder for "
                             "each student")  # fmt: skip
        if how.reports is not None:
            stack.enter_context(atomic.making_folder(how.reports, "labs grade"))
        names = {printable(one.name) for one in there}
        for graded, rows in _graded(lab, found, options, how):
            rows = grades_table.joined(rows, before, names) if before else rows
            with atomic.replacing(csv_path, "grade") as file:
                table = rows if how.roster is None else list(how.roster.joined(rows))
                file.write(grades_table.as_csv(table).encode())
            yield graded.row


def _columns(lab: Lab, options: Options, how: Class) -> Iterable[str]:
    """Return the names of the columns of a row."""
    return _row(lab, Submission("", problem="none"), options, Judges(), how.lateness).row.keys()


def _is_asked_for(one: Submission, only: Sequence[str]) -> bool:
    return not only or any(fnmatch.fnmatchcase(one.name, pattern) for pattern in only)


@dataclass
class Graded:
    """A submission that has been graded.

    It has a row and a report; its code and fingerprints are compared with other submissions.
    """

    row: dict[str, Any]
    report: Report | None
    code: str | None
    prints: set[int]


def _graded(
    lab: Lab, found: Sequence[Submission], options: Options, how: Class
) -> Iterator[tuple[Graded, list[dict[str, Any]]]]:
    """For each submission, when it is judged, write its page and yield it with the rows of all submissions so far.

    At the end, end all judges.
    """
    done: list[Graded] = []
    pages: set[str] = set()
    judges, pool = Judges(), ThreadPoolExecutor(how.jobs)
    try:
        for one, graded in zip(
            found, pool.map(lambda one: _row(lab, one, options, judges, how.lateness), found), strict=True
        ):
            done.append(graded)
            _compare(done)
            if how.reports is not None:
                page = student_page.html(one.name, graded.report, graded.row["notes"])
                student_page.write(Path(how.reports), one.name, page, pages)
            yield graded, [each.row for each in done]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        judges.end()
        pool.shutdown()  # it only waits until their folders are removed


def _compare(done: Sequence[Graded]) -> None:
    """Name in each row the submissions whose code is the same, and those whose code is similar."""
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


def _failures(rows: Sequence[Outcome]) -> list[str]:
    """List failures, as in `0.2 a mask of axes: died`.

    If all checks of a task fail in the same way, there is one entry for the task, such as `0.3: not done`.
    """
    found: list[str] = []
    for task in dict.fromkeys(row.task for row in rows):
        mine = [row for row in rows if row.task == task]
        if len({row.status for row in mine}) == 1 and mine[0].status != "passed":
            found.append(f"{task}: {mine[0].status}")
        else:
            found += [f"{task} {row.title}: {row.status}" for row in mine if row.status != "passed"]
    return found


def _row(lab: Lab, one: Submission, options: Options, judges: Judges, lateness: Lateness | None = None) -> Graded:
    """Judge one submission and make its row."""
    problem, report = one.problem, None
    seen: dict[str, Any] = {"code": None, "prints": [], "remarks": []}
    if one.paths:
        try:
            report, seen = _judged(lab, one.paths, options, judges)
        except ValueError as error:
            problem = str(error)
    tasks = {task: earned for task, (earned, _) in report.by_task().items()} if report else {}
    score = sum(tasks.values())
    notes = [problem] if report is None else [*filter(None, [report.remark]), *seen["remarks"], *report.notes]
    if report is not None and report.printed > MUCH_OUTPUT:
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
    """Judge a file, or the changed file in a folder or .zip archive, in a separate process; return the report.

    ValueError says why if there is no report.
    """
    if not path.is_dir() and path.suffix != ".zip":
        return _judged(lab, [path], options, Judges())[0]
    with tempfile.TemporaryDirectory(prefix="handed-in") as scratch:
        one = handed_in.of(path, lab, Path(scratch))
        if one.problem:
            raise ValueError(f"{path}: {one.problem}")
        report, seen = _judged(lab, one.paths, options, Judges())
        return replace(report, notes=[*seen["remarks"], *report.notes])


def _judged(lab: Lab, paths: Sequence[Path], options: Options, judges: Judges) -> tuple[Report, dict[str, Any]]:
    """Let a judge judge the files; return the report and what the judge found before it ran the code.

    The judge's folders are removed, even if it was killed.
    """
    scratch = tempfile.mkdtemp(prefix="grade")
    try:
        os.chmod(scratch, 0o711)  # a student's process, of another user, finds its own folder in it
        result = judges.ask(_question(lab, paths, options, scratch), options.patience * (lab.seconds + JUDGING))
    finally:
        folders.remove(scratch)
    if "problem" in result:
        problem = result["problem"]
        for path in paths:
            problem = problem.replace(str(path.absolute()), str(path))
        raise ValueError(problem)
    return from_message(result["report"]), result["seen"]


def _question(lab: Lab, paths: Sequence[Path], options: Options, scratch: str) -> dict[str, Any]:
    """Build the question for a judge."""
    return {
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
