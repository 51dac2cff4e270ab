"""`minorm conform`: the tables, the JSON, and the exit code."""

from __future__ import annotations

import json
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
    """Let the command find a report that is handed in, and note what it asked for."""
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
    assert len(found["cells"]) > 400


def test_another_runtime_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["conform", "--runtime", "tensorrt"])
    assert stop.value.code == 2
    assert "minorm', 'onnxruntime', 'reference', 'torch'" in capsys.readouterr().err.replace("invalid choice", "")
