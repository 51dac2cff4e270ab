"""`minorm conform`: the tables, the JSON, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minorm import cli

pytest.importorskip("onnx")
pytest.importorskip("rich")

from minorm.conformance import report as reporting
from minorm.conformance.report import Report
from minorm.conformance.verdict import Cell

CELLS = [
    Cell("LRN", 1, "size 3", "minorm", "right", "float32", 1e-7, 7.0),
    Cell("LRN", 1, "size 3", "torch", "wrong", "float32", 0.5, None, "y is off by 0.5", "forgets E[x^2]"),
    Cell("LRN", 13, "size 3", "minorm", "right", "float32", 1e-7, 6.9),
    Cell("LRN", 13, "size 3", "torch", "wrong", "float32", 0.5, None, "y is off by 0.5", "forgets E[x^2]"),
    Cell("LRN", 13, "size 4", "torch", "wrong", "float32", 0.2, None, "y is off by 0.2"),
]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace `conform`: the command gets a given report, and the names that it asks for are noted."""
    asked: list[Any] = []

    def install(report: Report) -> list[Any]:
        monkeypatch.setattr(reporting, "conform", lambda names: asked.append(names) or report)
        return asked

    return install


def test_the_tables(told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    asked = told(Report({"minorm": "1.0", "torch": None}, CELLS))
    assert cli.main(["conform"]) == 0
    assert asked == [None]
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "LRN 1 1/0/0 7.0 0/1/0" in lines
    assert "LRN 13 1/0/0 6.9 0/2/0" in lines
    assert "torch is wrong: forgets E[x^2]" in lines
    assert "LRN: size 3 (1, 13)" in lines
    assert "torch is wrong: y is off by 0.2 (no known defect)" in lines
    assert "minorm 1.0, torch not installed" in lines


def test_it_fails_where_minorm_is_wrong_or_one_cannot_run(told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told(Report({}, [Cell("LRN", 1, "size 3", "minorm", "wrong", "float32", 0.5)]))
    assert cli.main(["conform", "--json"]) == 1
    told(Report({}, CELLS, {"torch": "it cannot run: OSError: no libgomp"}))
    assert cli.main(["conform", "--runtime", "torch", "--json"]) == 1
    assert "minorm conform: torch: it cannot run: OSError: no libgomp" in capsys.readouterr().err


def test_minorm_is_right_everywhere_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["conform", "--runtime", "minorm", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"versions", "cells"}
    assert {cell["verdict"] for cell in found["cells"]} == {"right"}
    assert {cell["runtime"] for cell in found["cells"]} == {"minorm"}
    assert len(found["cells"]) > 500


def test_another_runtime_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["conform", "--runtime", "tensorrt"])
    assert stop.value.code == 2
    assert "minorm', 'onnxruntime', 'reference', 'torch'" in capsys.readouterr().err.replace("invalid choice", "")


PAGES = Path(__file__).parents[2] / "docs" / "conformance"


def test_a_file_is_judged_node_by_node(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    path = str(PAGES / "squares-overflow.onnx")
    assert cli.main(["conform", path, "--runtime", "onnxruntime"]) == 0
    shown = capsys.readouterr().out
    assert "y: LayerNormalization 17\n  wrong: onnxruntime by 1\n" in shown
    words = " ".join(shown.split())
    reason = "lets squares overflow float32, though the correct result is an ordinary number"
    assert f"onnxruntime is wrong: {reason}" in words
    assert "(docs/conformance/squares-overflow.md)" in words
    assert cli.main(["conform", path, "--runtime", "onnxruntime", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"versions", "cells", "left_out"}
    (cell,) = found["cells"]
    assert (cell["case"], cell["verdict"], cell["cause"]) == ("y", "wrong", "squares-overflow")
    assert cell["error"] == pytest.approx(1, rel=1e-3)  # of 0 for 1.34, over 1.34


def test_the_error_is_shown_where_it_is_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert cli.main(["conform", str(PAGES / "overwrites-running-statistics.onnx"), "--runtime", "onnxruntime"]) == 0
    assert "  wrong: onnxruntime\n" in capsys.readouterr().out


def test_a_file_that_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x00nonsense")
    assert cli.main(["conform", str(tmp_path / "m.onnx")]) == 1
    assert "conform" in capsys.readouterr().err
    assert cli.main(["conform", str(tmp_path / "nowhere.onnx")]) == 1
    assert "nowhere.onnx" in capsys.readouterr().err
    for option, value in (("--shape", "x=1,2"), ("--input", "x=1"), ("--max-bytes", "9"), ("--external-root", ".")):
        assert cli.main(["conform", option, value]) == 1
        assert f"{option} needs MODEL.onnx, but no model is given" in capsys.readouterr().err
    assert cli.main(["conform", str(PAGES / "sums-x.onnx"), "--runtime", "minorm", "--input", "z=1"]) == 1
    assert "there is no input 'z'" in capsys.readouterr().err
    assert cli.main(["conform", str(PAGES / "sums-x.onnx"), "--runtime", "minorm"]) == 0
    assert "right: minorm" in capsys.readouterr().out


def test_refusals_and_nodes_that_are_not_judged_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = Cell("LRN", 13, "deep/norm", "torch", "unsupported", said="has no LRN")
    report = Report({}, [cell], left_out={"in/branch": "the node is inside a branch or a loop"})
    monkeypatch.setattr(reporting, "conform_file", lambda found, names: report)
    assert cli.main(["conform", str(PAGES / "sums-x.onnx")]) == 0
    shown = capsys.readouterr().out
    assert "deep/norm: LRN 13\n  unsupported: torch" in shown
    assert "torch does not run: has no LRN\n  deep/norm" in shown
    assert "not judged: in/branch: the node is inside a branch or a loop" in shown
