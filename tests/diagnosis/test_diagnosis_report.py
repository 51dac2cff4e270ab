"""diagnose returns a report for a person, for a program, and in Python."""

from __future__ import annotations

import json

import minorm as mn
from minorm.diagnosis import Diagnosis, Finding
from tests.diagnosis import planting


def test_the_report_of_a_sick_model() -> None:
    found = mn.diagnose(planting.stale_variance().model, planting.loader())
    text = str(found)
    lines = text.splitlines()
    assert lines[0] == "512 images, batches of 32: 1 error, 1 note"
    assert lines[2].split()[:4] == ["layer", "kind", "gap", "offset"]
    row = next(line for line in lines if line.startswith("4 "))
    assert row.split()[1] == "batch"
    assert row.split()[-1] == "stale_statistics"
    assert "ERROR stale_statistics" in lines
    assert "note train_eval_gap, because of 4" in lines
    assert text.index("ERROR") < text.index("note train_eval_gap")
    assert "  fix  nn.utils.precise_bn(model, loader)" in text
    assert max(map(len, lines)) <= 100
    assert text == text.replace("\t", "").replace("nan", "")


def test_alike_findings_are_told_together() -> None:
    found = mn.diagnose(planting.healthy(), planting.loader(1))
    text = str(found)
    assert text.count("WARNING batch_of_one") == 1
    assert text.count("  why  ") == 1
    assert [f.layer for f in found.findings] == ["1", "4", "7", "11"]


def test_plain_values_are_json() -> None:
    found = mn.diagnose(planting.stale_variance().model, planting.loader())
    plain = json.loads(json.dumps(found.plain()))
    assert plain == found.plain()
    assert [(f["name"], f["layer"], f["severity"]) for f in plain["findings"]] == [
        ("stale_statistics", "4", "error"),
        ("train_eval_gap", None, "note"),
    ]
    assert plain["findings"][1]["cause"] == "4"
    assert {"layer", "gap", "offset"} <= plain["layers"][0].keys()
    assert [row["findings"] for row in plain["layers"]] == [[], ["stale_statistics"], [], []]


def test_a_healthy_model() -> None:
    found = mn.diagnose(planting.healthy(), planting.loader())
    assert found.is_healthy
    assert str(found).startswith("512 images, batches of 32: nothing found\n")


def test_a_finding_in_one_line() -> None:
    finding = mn.diagnose(planting.stale_variance().model, planting.loader()).findings[0]
    assert str(finding).startswith("ERROR: stale_statistics in 4: the running statistics differ from the data by 1.")
    assert finding.numbers["offset"] > finding.numbers["limit"]


def test_the_name_of_a_layer_cannot_steer_a_terminal() -> None:
    """It comes from an ONNX file, say."""
    name = "bn\x1b[31m\nFORGED"
    row = {"layer": name, "kind": "batch", "findings": [], "gap": None, "offset": None}
    row |= dict.fromkeys(("digits_lost", "eps_over_variance", "batch_error"))
    numbers = mn.diagnose(planting.stale_variance().model, planting.loader()).findings[0].numbers
    finding = Finding("stale_statistics", name, "error", numbers, "w", "f", cause=name)
    for text in (str(Diagnosis([finding], [row], 1, None)), str(finding)):
        assert r"bn\x1b[31m\nFORGED" in text
        assert text.replace("\n", "").isprintable()
        assert "\nFORGED" not in text
