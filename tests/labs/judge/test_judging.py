"""One report: as text, as Gradescope's JSON; what is refused before anything runs."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from minorm.cli import main
from minorm.labs import catalogue, comparing
from minorm.labs.judge import judging
from minorm.labs.lab import Lab

WRONG = ("return sum(1 << axis for axis in set(axes))", "print('secret'); return 12")


def test_the_table_tells_what_was_expected_and_got(judge_changed: Any) -> None:
    text = str(judge_changed(0, WRONG))
    assert re.search(r"0\.2   a mask of axes +0 of 1    wrong", text)
    assert "to_mask((0, 2, 3))" in text
    assert "expected  13" in text
    assert "got       12" in text
    assert "total 17 of 18 points" in text
    assert "printed" not in text  # only where it is much
    assert max(map(len, text.splitlines())) <= 100


def test_gradescopes_results(judge_changed: Any) -> None:
    """The fields of https://gradescope-autograders.readthedocs.io/en/latest/specs/, and no others in a test."""
    results = judge_changed(0, WRONG).gradescope()
    assert json.loads(json.dumps(results)) == results
    assert results["score"] == 17 == sum(test["score"] for test in results["tests"])
    assert sum(test["max_score"] for test in results["tests"]) == 18
    assert results.keys() <= {
        "score", "execution_time", "output", "output_format", "visibility", "tests", "extra_data"
    }  # fmt: skip
    known = {"score", "max_score", "status", "name", "number", "output", "output_format", "visibility", "tags"}
    for test in results["tests"]:
        assert test.keys() <= known
        assert test["status"] in ("passed", "failed")
    assert "secret" in results["output"]


def test_the_seed_decides_the_numbers(judge_changed: Any) -> None:
    """A lookup table of one seed's answers is worth nothing under another."""
    learned = ("return sum(1 << axis for axis in set(axes))", "return {(0, 2, 3): 13, (1,): 2, (): 0}[tuple(axes)]")
    assert judge_changed(0, learned, seed=5).score == 17


def test_what_is_no_submission(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("")
    assert main(["labs", "check", "0", str(tmp_path / "notes.txt")]) == 1
    assert "expected a .py file or an .ipynb notebook" in capsys.readouterr().err
    (tmp_path / "large.py").write_bytes(b"#" * (judging.LARGEST_FILE + 1))
    assert main(["labs", "check", "0", str(tmp_path / "large.py")]) == 1
    assert "MB; expected at most" in capsys.readouterr().err
    assert main(["labs", "check", "0", str(tmp_path / "missing.py")]) == 1


@pytest.mark.parametrize("options", [{"seed": -1}, {"memory": -5}, {"patience": float("nan")}])
def test_limits_that_cannot_be_used(judge_changed: Any, options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=rf"^{name} .*: expected"):
        judge_changed(0, **options)


def test_lost_processes_cost_their_own_tasks(judge_changed: Any) -> None:
    hang = ("def to_mask(axes):", "def to_mask(axes):\n    while True: pass\n\n\ndef _to_mask(axes):")
    leave = (
        "def loops(shape, axes):",
        "def loops(shape, axes):\n    import os; os._exit(3)\n\n\ndef _loops(shape, axes):",
    )
    report = judge_changed(0, hang, leave, patience=0.1)
    statuses = [row.status for row in report.outcomes]
    assert statuses == [
        *["passed", "passed"],
        *["too slow", "not run"],
        *["passed"] * 3,
        *["died", "not run", "not run"],
        *["passed"] * 3,
    ]
    assert "no answer within 1 s" in str(report)
    assert "ended its process with exit code 3" in str(report)


def test_after_three_lost_processes_the_rest_is_not_run(judge_changed: Any) -> None:
    """In a lab that has nothing to put in the place of what is lost."""
    report = judge_changed(
        2,
        ("def naive(x):", "def naive(x):\n    import os; os._exit(3)\n\n\ndef _naive(x):"),
        ("def two_pass(x):", "def two_pass(x):\n    import os; os._exit(3)\n\n\ndef _two_pass(x):"),
    )
    statuses = [row.status for row in report.outcomes]
    assert statuses.count("died") == 3
    assert set(statuses[statuses.index("died") :]) == {"died", "not run"}


def test_a_file_has_one_deadline_for_all_its_checks(judge_changed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call takes less than its check allows; one check is stopped, and what comes later is not run."""
    monkeypatch.setattr(catalogue.find(0), "deadline", 1.5)
    monkeypatch.setattr(type(catalogue.find(0)), "seconds", property(lambda lab: lab.deadline))
    body = "return sum(1 << axis for axis in set(axes))"
    report = judge_changed(0, (body, f"import time; time.sleep(0.6)\n    {body}"))
    rows = [(row.status, row.got) for row in report.outcomes]
    late = [status for status, _ in rows].index("too slow")
    assert {status for status, _ in rows[:late]} == {"passed"}
    assert rows[late][1] == "loading the file and running its checks used up their 1.5 s"
    assert {status for status, _ in rows[late + 1 :]} == {"not run"}
    assert any(got.startswith("loading the file and running its checks") for _, got in rows[late + 1 :])


def test_a_longer_check_makes_a_longer_deadline() -> None:
    lab = Lab(30, "lab30_x", "X", "Why?", minutes=1)
    lab.check("30.1", "quick")(lambda *_: None)
    assert lab.seconds == 60
    lab.check("30.1", "slow", seconds=100)(lambda *_: None)
    assert lab.seconds == 100
    assert Lab(30, "lab30_x", "X", "Why?", minutes=1, deadline=200).seconds == 200


def test_a_missing_package_of_the_checks_is_nobodys_mistake(
    monkeypatch: pytest.MonkeyPatch, judge_changed: Any
) -> None:
    def fails(*_: Any) -> Any:
        raise ImportError("needs scikit-learn")

    lab = catalogue.find(3)
    checks = importlib.import_module(lab.module)
    checks._library.cache_clear()
    monkeypatch.setattr(checks.digits_network, "losses", fails)
    with pytest.raises(ImportError, match="scikit-learn"):
        judge_changed(lab.number)


def test_a_machine_without_a_package_or_compiler_grades_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its students would lose points for what their teacher has not installed."""
    lab = catalogue.find(0)
    assert lab.missing() == ""
    monkeypatch.setattr(lab, "packages", ("numpy", "not_there"))
    monkeypatch.setattr(lab, "programs", ("no-such-compiler", "nor-this"))
    path, table = tmp_path / "mine.py", tmp_path / "grades.csv"
    path.write_text("")
    for command in (["check", "0", str(path)], ["grade", "0", str(tmp_path), "--csv", str(table)]):
        assert main(["labs", *command]) == 1
        said = capsys.readouterr()
        assert not said.out
        assert "lab 0 needs not_there (pip install not_there)" in said.err
        assert "and a compiler, no-such-compiler or nor-this, which this machine lacks" in said.err
    assert not table.exists()
    assert main(["labs", "start", "0", "--to", str(tmp_path / "work")]) == 0
    assert "But lab 0 needs not_there" in capsys.readouterr().out


def test_labs_ask_for_what_they_import() -> None:
    uses = {
        "digits_network": "sklearn",
        "gap": "sklearn",
        "onnx": "onnx",
        "zoo": "onnx",
        "oracles": "onnx",
        "build": "Cython",
    }
    for number in catalogue.numbers():
        lab = catalogue.find(number)
        text = Path(str(importlib.import_module(lab.module).__file__)).read_text()
        imported = set(re.findall(r"\w+", " ".join(re.findall(r"^from minorm\.labs.*import (.*)", text, re.MULTILINE))))
        imported |= {"onnx"} & set(re.findall(r'import_module\("minorm\.(\w+)"\)', text))
        assert {uses[name] for name in imported & uses.keys()} <= set(lab.packages), number
        assert bool(lab.programs) == (number in (7, 8))


@pytest.mark.parametrize(
    ("got", "message"),
    [
        (None, r"None \(is there a return\?\)"),
        ("text", "str"),
        ([[1, 2], [3]], "uneven"),
        ([1.0, 2.0], r"shape \(2,\)"),
        ([1.0, 2.0, float("nan")], r"3 at \[2\].*nan"),
        ([1.0, 2.0, float("inf")], "inf"),
        ({"a": 1}, "dict"),
    ],
)
def test_close_refuses(got: Any, message: str) -> None:
    with pytest.raises(comparing.Wrong, match=message):
        comparing.close(got, [1.0, 2.0, 3.0], "f(x)")


def test_close_compares_types_infinities_and_nan() -> None:
    comparing.close([float("nan"), float("inf")], [float("nan"), float("inf")], "f(x)")
    with pytest.raises(comparing.Wrong, match="float32, got float64"):
        comparing.close([1.0], [1.0], "f(x)", dtype="float32")


def test_both_types_are_named_where_they_differ() -> None:
    with pytest.raises(comparing.Wrong, match=r"expected 3 at \[1\], float64, got 2 \(int64; 1 of 2 are wrong\)"):
        comparing.close([1, 2], [1.0, 3.0], "f(x)")
    with pytest.raises(comparing.Wrong, match=r"expected 3, float32, got 2 \(float32\)"):
        comparing.close(comparing.np.float32(2), 3.0, "f(x)", dtype="float32")
    with pytest.raises(comparing.Wrong, match=r"expected 13 \(int\), got '13' \(str\)"):
        comparing.equal("13", 13, "f(x)")
    with pytest.raises(comparing.Wrong, match=r"expected 13 \(int\), got None \(is there a return\?\)"):
        comparing.equal(None, 13, "f(x)")
    with pytest.raises(comparing.Wrong, match="expected 13, got 12"):
        comparing.equal(12, 13, "f(x)")


def test_equal_tells_a_bool_from_a_number_and_takes_lists_for_tuples() -> None:
    comparing.equal([1, 2], (1, 2), "f(x)")
    comparing.equal(catalogue.numbers()[:2], (0, 1), "the first labs")
    with pytest.raises(comparing.Wrong):
        comparing.equal(True, 1, "f(x)")
    with pytest.raises(comparing.Wrong):
        comparing.at_most(float("nan"), 1, "f(x)")
    with pytest.raises(comparing.Wrong, match="2 results, got one ndarray"):
        comparing.parts(comparing.np.zeros(2), 2, "f(x)")
