"""Declares the options of `labs grade`: submissions, jobs, the roster, lateness, and the files to write."""

from __future__ import annotations

import argparse
import os

from minorm.cli.terminal.one_line_errors import UsageError
from minorm.labs.judge import grading
from minorm.labs.judge.lateness import Lateness, moment
from minorm.labs.judge.roster import Roster
from minorm.serialization import atomic

PER_DAY = 10.0


def declare(grade: argparse.ArgumentParser) -> None:
    """Declare the options of `labs grade` in its parser."""
    grade.add_argument(
        "-o", "--out", "--csv", metavar="FILE", help="the CSV to write (default: gradesN.csv in the current folder)"
    )
    grade.add_argument(
        "--reports", metavar="DIR", help="a folder for one HTML page per student, made if it does not exist"
    )
    grade.add_argument(
        "--reference",
        metavar="FILE",
        help="a right solution, on which the judge is tried first (default: the solution in the checkout)",
    )
    grade.add_argument("--jobs", type=int, default=1, metavar="K", help="judge K submissions at a time (default 1)")
    grade.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="grade only the submissions of this name, such as "
        "'anna*', and leave the other rows of the CSV as they are; may be given several times",
    )  # fmt: skip
    grade.add_argument(
        "--roster", metavar="FILE", help="a CSV of the course's students, whose columns are put in front of the grades"
    )
    grade.add_argument(
        "--roster-key", metavar="COLUMN", help="the column of the roster that occurs in the names of the submissions"
    )
    grade.add_argument(
        "--moodle", metavar="FILE", help="write the roster with the grades as a grading worksheet for Moodle"
    )
    grade.add_argument(
        "--canvas", metavar="FILE", help="write the roster with the grades as a CSV for Canvas's gradebook"
    )
    grade.add_argument(
        "--due",
        metavar="DATE",
        help="the deadline, such as '2026-12-01 23:59'; the dates of the files are compared with it",
    )
    grade.add_argument(
        "--late-per-day",
        type=float,
        metavar="PERCENT",
        help=f"the percentage of the score that is lost per day late (default {PER_DAY:g})",
    )
    grade.add_argument(
        "--late-days", type=int, metavar="DAYS", help="the number of days after which a submission gets no points"
    )
    grade.add_argument(
        "--trust",
        action="store_true",
        help="grade even if the code cannot be walled off, as on macOS; only for students that you trust",
    )


def class_of(args: argparse.Namespace) -> grading.Class:
    """Return how the class is graded.

    Raises UsageError if options contradict each other, and OSError if the roster cannot be read.
    """
    if args.jobs < 1:
        raise UsageError(f"--jobs {args.jobs}: expected at least 1")
    _require(args, "roster", "FILE", "moodle", "canvas", "roster_key")
    _require(args, "due", "DATE", "late_per_day", "late_days")
    late = None
    if args.due is not None:
        per_day = PER_DAY if args.late_per_day is None else args.late_per_day
        if not 0 <= per_day <= 100:
            raise UsageError(f"--late-per-day {per_day:g}: expected a percentage from 0 to 100")
        if args.late_days is not None and args.late_days < 0:
            raise UsageError(f"--late-days {args.late_days}: expected at least 0")
        try:
            late = Lateness(moment(args.due), per_day, args.late_days)
        except ValueError as error:
            raise UsageError(f"--due: {error}") from None
    try:
        roster = None if args.roster is None else Roster.read(args.roster, args.roster_key)
    except ValueError as error:
        raise UsageError(f"--roster: {error}") from None
    return grading.Class(args.jobs, args.only, late, roster, args.reports)


def require_outputs(args: argparse.Namespace, path: str) -> None:
    """Check the output files before grading.

    Raises OSError if a file cannot be written, and UsageError if two files are the same.
    """
    targets: set[str] = set()
    for name in filter(None, (path, args.moodle, args.canvas)):
        target = atomic.destination(name, "labs grade")
        if target in targets:
            raise UsageError(f"{name} is named twice; expected a file for each option")
        targets.add(target)
        with atomic.passing(name, "labs grade"):
            pass
    if args.reports:
        with (
            atomic.making_folder(args.reports, "labs grade"),
            atomic.passing(os.path.join(args.reports, "page.html"), "labs grade"),
        ):
            pass


def _require(args: argparse.Namespace, leader: str, metavar: str, *options: str) -> None:
    """Raise UsageError if one of `options` is given without the option `leader`."""
    lone = next((name for name in options if getattr(args, name) is not None), None)
    if lone is not None and getattr(args, leader) is None:
        raise UsageError(f"--{lone.replace('_', '-')} needs --{leader} {metavar}")
