"""A student's page: everything of the report, nothing that runs or loads, and a name that no other page has."""

from __future__ import annotations

from pathlib import Path

from minorm.labs.judge import student_page
from minorm.labs.scores import Outcome, Report

REPORT = Report(
    3,
    "Backward",
    "a.py",
    [
        Outcome("3.1", "the gradient", 2, 2, "passed"),
        Outcome("3.2", "three terms", 3, 0, "wrong", expected="<1>", got="<script>alert(1)</script>"),
    ],
    notes=["line 3: NameError: x"],
    walls="walls: seccomp",
)


def test_it_says_what_the_report_says() -> None:
    text = student_page.html("Ann & Co", REPORT)
    for part in ("Lab 3, Backward: Ann &amp; Co", "2 of 5 points", "3.2", "three terms", "0 of 3", "wrong"):
        assert part in text
    for part in ("&lt;1&gt;", "&lt;script&gt;alert(1)&lt;/script&gt;", "line 3: NameError: x", "walls: seccomp"):
        assert part in text
    assert "<script" not in text
    assert "http://" not in text
    assert "https://" not in text


def test_without_a_report_it_says_why() -> None:
    assert "Not graded: 2 files that could be it." in student_page.html("ann", None, "2 files that could be it")


def test_names_of_pages_are_safe_and_no_two_are_the_same(tmp_path: Path) -> None:
    taken: set[str] = set()
    names = [
        student_page.write(tmp_path, student, "x", taken).name for student in ("../up", "a b", "a/b", "A_B", "...")
    ]
    assert names == ["_up.html", "a_b.html", "a_b-2.html", "A_B-3.html", "student.html"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_names_of_students_cannot_steer_a_page(tmp_path: Path) -> None:
    text = student_page.html("j\udcfcrgen\x1b[31m\u202e<b>", REPORT)
    assert r"j\xfcrgen\x1b[31m\u202e&lt;b&gt;" in text
    long = [student_page.write(tmp_path, name * 255, text, set()).name for name in ("\udcfc", "x", "ü", "猫")]
    assert long == ["_.html", f"{'x' * 60}.html", f"{'ü' * 60}.html", f"{'猫' * 60}.html"]
