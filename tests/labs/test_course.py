"""The course in docs/course says what the checks say: tasks and points, labs of each week, pictures of the slides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minorm.labs import catalogue, cells
from minorm.labs.lab import Lab
from tests.project.test_pages import blocks

COURSE = Path(__file__).resolve().parents[2] / "docs" / "course"
SOLUTIONS = catalogue.CHECKOUT / "solutions"
numbered = pytest.mark.parametrize("number", catalogue.numbers())


def section(text: str, lab: Lab) -> str:
    """Return the text below a lab's heading."""
    return text.partition(f"## Lab {lab.number}: {lab.title}\n")[2].partition("\n## ")[0]


def rubric_rows(lab: Lab) -> str:
    """The rows that a lab needs, to be filled in."""
    points = {task: sum(item.points for item in lab.items if item.task == task) for task in lab.tasks}
    return "\n".join(f"| {task} | ... | ... | ... | {points[task]:g} |" for task in lab.tasks)


@numbered
def test_the_rubric_has_every_task_with_the_points_of_its_checks(number: int) -> None:
    lab = catalogue.find(number)
    wanted = rubric_rows(lab)
    found = section((COURSE / "rubric.md").read_text(), lab)
    table = [line for line in found.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    written = [(row[0], row[-1]) for row in rows[2:]]
    expected = [(line.split()[1], line.split()[-2]) for line in wanted.splitlines()]
    assert written == expected, (
        f"docs/course/rubric.md needs\n\n## Lab {number}: {lab.title}\n\n"
        f"| task | afterwards the student can | full marks | part marks | points |\n|---|---|---|---|---|\n{wanted}"
    )
    assert all(len(row) == 5 and min(len(cell) for cell in row[1:4]) > 5 for row in rows[2:])


@numbered
def test_part_marks_of_the_rubric_add_up(number: int) -> None:
    """No part is worth more than its task: the numbers that begin with a part, `2 for the formula, 1 each for ...`."""
    lab = catalogue.find(number)
    for line in section((COURSE / "rubric.md").read_text(), lab).splitlines()[3:]:
        parts, points = line.split(" | ")[3:5]
        singles = re.findall(r"(?:^|[,;] )(\d+) (?!each|for each)", parts)
        assert sum(map(int, singles)) <= float(points.strip(" |")), line


def questions() -> dict[int, str]:
    """The examination questions, each with what stands below it."""
    asked: dict[int, str] = {}
    for page in ("examination.md", "examination-programs.md"):
        found = re.split(r"^### (\d+)\. ", (COURSE / page).read_text(), flags=re.MULTILINE)
        asked |= zip(map(int, found[1::2]), found[2::2], strict=True)
    return asked


def test_thirty_questions_with_answers() -> None:
    asked = questions()
    assert list(asked) == list(range(1, 31))
    for number, text in asked.items():
        title, _, rest = text.partition("\n")
        answer = rest.partition("**Answer.** ")[2]
        labs = re.search(r"\(labs? (\d+)(?: and (\d+))?\)$", title)
        assert labs, title
        assert {int(lab) for lab in labs.groups() if lab} <= set(catalogue.numbers())
        assert len(answer) > 60, number


def test_answers_that_are_numbers_have_a_program() -> None:
    """tests/project/test_pages.py runs it and compares what it prints."""
    for number, text in questions().items():
        kinds = [block.kind for block in blocks(text)]
        if number > 10:
            assert kinds.count("python") == kinds.count("text") == 1, number


@numbered
def test_a_lab_has_a_deck(number: int) -> None:
    lab = catalogue.find(number)
    text = (COURSE / "slides" / f"{lab.file}.md").read_text()
    assert text.startswith("---\nmarp: true\n"), "docs/course/slides needs a deck for each lab"
    slides = text.split("\n---\n")[1:]
    assert 8 <= len(slides) <= 12
    assert slides[0].strip().startswith(f"# Lab {number}: {lab.title}\n")
    for slide in slides[1:]:
        assert slide.strip().startswith("## "), slide[:60]
        assert len(slide.strip().splitlines()) <= 24, f"too long for a slide: {slide.strip().splitlines()[0]}"
    pictures = re.findall(rf"!\[([^\]]{{30,}})\]\(figures/lab{number:02}-(\d)\.png\)", text)
    assert pictures
    assert {int(place) for _, place in pictures} <= set(range(1, shown(lab) + 1)), "examples/labs/make_figures.py"
    assert text.count("](figures/") == len(pictures)


def solved(lab: Lab) -> list[cells.Cell]:
    return cells.read_percent((SOLUTIONS / f"{lab.file}.py").read_text())


def shown(lab: Lab) -> int:
    """How many pictures the solved notebook shows without a GPU: `show` outside of functions and of that `else`."""
    plots = "\n".join(cell.text for cell in solved(lab) if "plot" in cell.tags)
    return len(re.findall(r"^(?:show|slide)\(", plots, re.MULTILINE))


@numbered
def test_a_deck_gives_no_solution_away(number: int) -> None:
    lab = catalogue.find(number)
    text = re.sub(r"\s+", "", (COURSE / "slides" / f"{lab.file}.md").read_text())
    given = re.sub(r"\s+", "", catalogue.notebook(lab))
    for cell in solved(lab):
        for hidden in re.findall(r"# SOLUTION [^\n]*\n(.*?)# END", cell.text, re.DOTALL):
            for line in hidden.splitlines():
                bare = re.sub(r"\s+", "", line)
                assert len(bare) < 16 or bare not in text or bare in given, line


def test_the_syllabus_has_twelve_weeks_and_every_lab() -> None:
    text = (COURSE / "syllabus.md").read_text()
    rows = [line.split(" | ") for line in text.splitlines() if re.match(r"\| \d+ \| ", line)]
    assert [int(row[0].strip("| ")) for row in rows[:12]] == list(range(1, 13))
    assert all(len(row) == 5 for row in rows[:12])
    weeks = {number: week for week, row in enumerate(rows[:12]) for number in map(int, re.findall(r"\b\d+\b", row[1]))}
    assert set(catalogue.numbers()) <= set(weeks) | {int(n) for n in re.findall(r"[Ll]ab (\d+)", text)}
    for number, week in weeks.items():
        if number in catalogue.numbers():
            for needed in catalogue.before(catalogue.find(number)):
                assert weeks[needed.number] <= week, f"lab {number} stands before lab {needed.number}, which it needs"
