"""Teachers get an answer to each question and a reading list for each lab."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minorm.labs import catalogue, cells

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = ROOT / "examples" / "labs" / "solutions" / "answers.md"
READING = ROOT / "docs" / "labs-reading.md"
ITEM = re.compile(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", re.MULTILINE | re.DOTALL)
OPENING = re.compile(r"\*(.+?)(?<!\\)\*(?: \w+ \*(.+?)\*)?", re.DOTALL)  # a word that the question stresses, stands out
numbered = pytest.mark.parametrize("number", catalogue.numbers())


def plain(text: str) -> str:
    """Put a text on one line, without emphasis: both files use it, in different places."""
    return re.sub(r"\s+", " ", text.replace("*", "").replace("\\", "")).strip()


def questions(number: int) -> list[str]:
    """Return the questions at the end of a lab."""
    last = cells.read_percent(catalogue.notebook(catalogue.find(number)))[-1].text
    assert last.startswith("## To think about\n")
    found = ITEM.findall(last)
    assert [int(place) for place, _ in found] == list(range(1, len(found) + 1))
    return [plain(question) for _, question in found]


def answers(number: int) -> list[str]:
    """Return the answers to a lab, each with the first words of its question."""
    lab = catalogue.find(number)
    (section,) = re.findall(
        rf"^## Lab {number}: {re.escape(lab.title)}\n(.*?)(?=^## |\Z)", ANSWERS.read_text(), re.MULTILINE | re.DOTALL
    )
    found = ITEM.findall(section)
    assert [int(place) for place, _ in found] == list(range(1, len(found) + 1))
    return [answer.strip() for _, answer in found]


@numbered
def test_each_question_has_an_answer_that_says_something(number: int) -> None:
    asked, answered = questions(number), answers(number)
    assert len(asked) == len(answered) >= 3
    for question, answer in zip(asked, answered, strict=True):
        opening = OPENING.match(answer)
        assert opening is not None
        words = plain(opening[0])
        assert len(words) >= 20
        assert question.startswith(words), f"lab {number}: {words!r} does not begin a question"
        assert len(plain(answer)) - len(words) >= 200, words


def test_there_are_answers_to_every_lab_and_to_no_other() -> None:
    sections = [int(found) for found in re.findall(r"^## Lab (\d+):", ANSWERS.read_text(), re.MULTILINE)]
    assert sections == catalogue.numbers()


@numbered
def test_students_do_not_get_the_answers(number: int) -> None:
    given = plain(catalogue.notebook(catalogue.find(number)))
    for answer in answers(number):
        assert plain(answer)[-60:] not in given


def test_the_reading_list_has_something_for_every_lab_and_says_what_to_look_for() -> None:
    rows = [line.strip("|").split(" | ") for line in READING.read_text().splitlines() if re.match(r"\| \d", line)]
    assert {int(row[0]) for row in rows} == set(catalogue.numbers())
    for row in rows:
        assert len(row) == 3, row
        sought = row[2].strip()
        assert len(sought) > 40
        assert 1 <= len(re.findall(r"[.?](?= |$)", sought)) <= 3, f"a few sentences: {sought}"
