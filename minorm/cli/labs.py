"""`minorm labs` is the course: it lists labs, starts a lab, checks a solution, and grades a folder of solutions."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from minorm.cli.options import grade_options
from minorm.cli.terminal import output
from minorm.cli.terminal.one_line_errors import UsageError
from minorm.labs import catalogue, cells
from minorm.labs.judge import gradescope, grading, hints, judging
from minorm.labs.lab import Lab
from minorm.labs.sealed import finding, walls
from minorm.labs.varied.choices import NAME_OF_PLAIN, Variant
from minorm.serialization import atomic
from minorm.support.safe_names import message


def add(commands: Any) -> None:
    """Declare the command and its actions."""
    parser = commands.add_parser(
        "labs",
        help="the course: list the labs, start one, check it, grade a folder",
        description="Labs in which a student takes normalization apart and puts it back. docs/labs.md is the guide.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="show all labs, in the order of a course")
    listing.set_defaults(run=_list)

    start = actions.add_parser("start", help="write a lab's notebook and Python file, with the tasks to do")
    start.add_argument("lab", type=int, metavar="N")
    start.add_argument(
        "-o",
        "--out",
        "--to",
        default=".",
        metavar="DIR",
        help="where to write them (default: here); made if it does not exist",
    )
    start.add_argument(
        "--seed",
        metavar="YEAR",
        help="a year or another text that chooses a variant, with other constants, layouts and planted bugs",
    )
    start.set_defaults(run=_start)

    check = actions.add_parser(
        "check", help="check a solution: show the expected answers, the answers of the solution, and the points"
    )
    check.add_argument("lab", type=int, metavar="N")
    check.add_argument(
        "file",
        metavar="FILE",
        help="the .py or the .ipynb file, or a folder or .zip with them, of which the changed file is checked",
    )
    check.add_argument("--json", action="store_true", help="print results.json for Gradescope's autograder instead")
    check.add_argument("--task", metavar="N.M", help="run only the checks of this task, which is faster")
    check.add_argument("--hint", action="store_true", help="show common mistakes at each check that failed")
    check.set_defaults(run=_check)

    grade = actions.add_parser("grade", help="grade a folder of submissions and write a CSV")
    grade.add_argument("lab", type=int, metavar="N")
    grade.add_argument(
        "folder", metavar="FOLDER", help="the folder with the submissions: files, or a folder for each student"
    )
    grade_options.declare(grade)
    grade.set_defaults(run=_grade)

    zipped = actions.add_parser("gradescope", help="write a zip that sets up Gradescope's autograder for a lab")
    zipped.add_argument("lab", type=int, metavar="N")
    zipped.add_argument(
        "-o", "--out", metavar="FILE", help="the file to write (default: labN.zip in the current folder)"
    )
    zipped.add_argument(
        "--wheel",
        required=True,
        metavar="FILE",
        help="a wheel of minorm for Linux on x86-64, made by `pip wheel --no-deps .` in a clone",
    )
    zipped.set_defaults(run=_gradescope)

    for command in (listing, start, check, grade, zipped):
        command.add_argument(
            "--lab-dir", metavar="DIR", help="a folder with labs of your own, used in place of the course"
        )
    for command in (check, zipped):
        command.add_argument(
            "--hidden",
            choices=gradescope.HIDDEN,
            default="visible",
            help="when Gradescope shows students the checks that are not in their notebook (default: visible)",
        )
    for command in (check, grade, zipped):
        command.add_argument(
            "--seed",
            type=_seed,
            default=judging.SEED,
            help="the seed of the hidden numbers, which students must not know; - reads the seed from standard input",
        )
        command.add_argument(
            "--variant",
            metavar="YEAR",
            help="the --seed that `labs start` was given, or 'plain' for none; "
            + ("default: the variant that the file names" if command is check else "default: plain"),
        )
    for command in (check, grade):
        command.add_argument(
            "--memory",
            type=int,
            metavar="MB",
            help="the limit of address space, 0 for no limit (default: the limit of the lab, 4096)",
        )
        command.add_argument(
            "--patience", type=float, default=1.0, metavar="X", help="a factor for all time limits, for slow machines"
        )


def _list(args: argparse.Namespace) -> int:
    labs = catalogue.course(args.lab_dir)
    width = max(len(lab.title) for lab in labs)
    for lab in labs:
        numbers = [str(needed.number) for needed in catalogue.before(lab)]
        needs = f", needs lab{'s' * (len(numbers) > 1)} {_listed(numbers)}" if numbers else ""
        output.say(f"{lab.number:3}  {lab.title:{width}}  {lab.minutes:3} min, {lab.points:g} points{needs}")
        output.say(f"     {lab.question}")
    return 0


def _listed(words: list[str]) -> str:
    """Join the words as in a sentence: `1`, `1 and 2`, `1, 3 and 5`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _start(args: argparse.Namespace) -> int:
    lab = catalogue.find(args.lab, args.lab_dir)
    lab = lab.of_variant(_variant(lab, args.seed, "--seed"))
    text = catalogue.notebook(lab)
    paths = [os.path.join(args.out, lab.file + ending) for ending in (".py", ".ipynb")]
    with atomic.making_folder(args.out, "labs"):
        for path in paths:
            if os.path.lexists(path):
                raise ValueError(f"{path} already exists, with your work in it; move it away or choose another --out")
        for path, content in zip(paths, (text, cells.to_notebook(cells.read_percent(text))), strict=True):
            with atomic.replacing(path, "labs") as file:
                file.write(content.encode())
    variant = f", {lab.variant}" if lab.variant.code else ""
    output.say(f"Lab {lab.number}, {lab.title}{variant}: {lab.question}")
    if args.seed is not None and not lab.variants:
        output.note(f"Lab {lab.number} has no variants: it is the same for every --seed.")
    if earlier := [f"lab {needed.number} ({needed.title})" for needed in catalogue.before(lab)]:
        output.say(f"Do {_listed(earlier)} first.")
    command = f"minorm labs check {lab.number} {paths[1]}" + (f" --lab-dir {args.lab_dir}" if args.lab_dir else "")
    output.say(f"Work in {paths[1]} or in {paths[0]}; then: {command}")
    if lacking := lab.missing():
        output.say(f"But {lacking}.")
    return 0


def _variant(lab: Lab, seed: str | None, option: str) -> Variant:
    """Return the variant for this seed. If `seed` is None, return the variant that stands for the plain lab."""
    try:
        return lab.variants.of(NAME_OF_PLAIN if seed is None else seed)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _seed(text: str) -> int:
    """Return the text as a number. If the text is `-`, read the number from the first line of standard input."""
    return int(sys.stdin.readline(100) if text == "-" else text)


def _options(args: argparse.Namespace, lab: Lab) -> grading.Options:
    """Return the grading options; raise UsageError if grading is impossible with these options or on this machine."""
    try:
        judging.require(args.seed, args.memory, args.patience)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    _hide_seed(args)
    try:
        around = finding.find(secret=walls.secret(lab.lab_dir), programs=lab.programs).for_lab(lab.writes)
    except finding.Hole as error:
        raise UsageError(str(error)) from None
    return grading.Options(around, args.seed, args.memory, args.patience)


def _hide_seed(args: argparse.Namespace) -> None:
    """Restart this process with the seed in a pipe, because other users can read a process's command line."""
    shown = [place for place, word in enumerate(sys.argv) if len(word) > 3 and "--seed".startswith(word.split("=")[0])]
    if sys.argv[1:3] != ["labs", args.action] or not shown or sys.argv[shown[0]].endswith("=-"):
        return
    place = shown[0]
    ours = len(sys.orig_argv) - len(sys.argv)
    if "=" not in sys.argv[place] and sys.argv[place + 1 : place + 2] == ["-"]:
        return
    taken = 1 if "=" in sys.argv[place] else 2
    kept = [*sys.orig_argv[1 : ours + place], *sys.orig_argv[ours + place + taken :], "--seed=-"]
    read, write = os.pipe()
    os.write(write, f"{args.seed}\n".encode())
    os.close(write)
    os.dup2(read, 0)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *kept])


def _check(args: argparse.Namespace) -> int:
    lab = catalogue.find(args.lab, args.lab_dir)
    variant = None if args.variant is None else _variant(lab, args.variant, "--variant").code
    options = _options(args, lab)
    options = replace(options, hints=args.hint or not args.json, task=args.task, variant=variant)
    try:
        lab.require()
        if args.task is not None:
            lab.of_task(args.task)  # refuse a wrong task here, and not in the judge's process
        report = grading.judged(lab, Path(args.file), options)
    except (ValueError, OSError) as error:
        if args.json:  # an autograder shows its students only this
            output.show_json({"score": 0, "output": message(error)}, indent=None)
        raise
    if args.hint:
        report = hints.hinted(report, lab)
    if args.json:
        output.show_json(gradescope.results(report.gradescope(), args.hidden))
    else:
        output.show(report)
    return 0 if report.score == report.points else 1


def _gradescope(args: argparse.Namespace) -> int:
    lab = catalogue.find(args.lab, args.lab_dir)
    try:
        judging.require(args.seed, None, 1.0)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    path = args.out or f"lab{lab.number}.zip"
    _variant(lab, args.variant, "--variant")
    gradescope.write(path, lab, Path(args.wheel), args.seed, args.hidden, args.variant or NAME_OF_PLAIN)
    output.say(path)
    return 0


def _grade(args: argparse.Namespace) -> int:
    lab = catalogue.find(args.lab, args.lab_dir)
    variant = _variant(lab, args.variant, "--variant")
    how = grade_options.class_of(args)
    path = args.out or f"grades{lab.number}.csv"
    grade_options.require_outputs(args, path)
    options = replace(_options(args, lab), variant=variant.code)
    lab.require()
    if not options.walls.stand and not args.trust:
        raise UsageError(
            f"{options.walls}; no submission was graded. Grade in a container or on Linux, as docs/labs.md says, or "
            "add --trust if these students may read and change all your files"
        )
    reference = Path(args.reference) if args.reference else catalogue.reference(lab)
    if reference is None:
        output.note(
            "The judge was not tried on a right solution first, because this package has none; give one with "
            "--reference."
        )
    else:
        grading.try_judge(lab, reference, options)
    rows = []
    for row in grading.grade(lab, args.folder, path, options, how):
        rows.append(row)
        note = f"  {row['notes'][:80]}" if row["notes"] else ""
        output.say(f"{row['score']:>6} of {row['points']}  {row['submission']}{note}")
    output.say(options.walls)
    if how.roster is not None:
        for row in rows:
            if remark := how.roster.remark(row["submission"]):
                output.note(f"{row['submission']}: {remark}")
    output.say(path)
    if args.reports:
        output.say(args.reports)
    for kind in ("moodle", "canvas"):
        filled = getattr(args, kind)
        if filled and how.roster is not None:
            with atomic.replacing(filled, "labs grade") as file:
                file.write(how.roster.filled(lab, how.roster.scores(rows), kind).encode())
            output.say(filled)
    return 0
