"""A report of some runtimes: whose fault counts, and a missing or broken runtime does not stop the others."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.conformance.cases import all_cases
from minorm.conformance.file_cases import FileCases
from minorm.conformance.report import Report, conform, conform_file, versions
from minorm.conformance.runtimes import RUNTIMES, Runtime
from minorm.conformance.verdict import Cell

MISSING = Runtime("missing", "missing:answer", ("no_such_package_here",))


def test_a_planted_wrong_runtime_is_found_and_is_no_failure_of_ours(planted: Any, places: dict[str, int]) -> None:
    place = places["training, float32"]
    report = conform(places=[place], known={"minorm": RUNTIMES["minorm"], "planted": planted})
    assert [(c.runtime, c.verdict) for c in report.cells] == [("minorm", "right"), ("planted", "wrong")]
    assert report.is_well
    assert not report.failures


def test_where_minorm_is_wrong_it_is_not_well() -> None:
    wrong = Cell("LRN", 13, "size 3", "minorm", "wrong", "float32", 0.5)
    assert not Report({}, [wrong]).is_well
    assert Report({}, [Cell("LRN", 13, "size 3", "torch", "wrong", "float32", 0.5)]).is_well


def test_one_that_is_not_installed_is_unsupported_and_failed_where_it_was_asked_for() -> None:
    report = conform(places=[0], known={"missing": MISSING})
    assert [(c.verdict, c.said) for c in report.cells] == [("unsupported", "no_such_package_here is not installed")]
    assert report.is_well
    asked = conform(["missing"], places=[0], known={"missing": MISSING})
    assert asked.failures == {"missing": "no_such_package_here is not installed"}
    assert not asked.is_well


def test_one_that_cannot_run_is_a_failure_and_the_others_are_asked(module: Any) -> None:
    broken = module("planted_broken_too", "raise OSError('libwhatever is missing')\n")
    report = conform(places=[0], known={"planted": broken, "minorm": RUNTIMES["minorm"]})
    assert [(c.runtime, c.verdict) for c in report.cells] == [("planted", "unsupported"), ("minorm", "right")]
    assert report.failures == {"planted": "it cannot run: OSError: libwhatever is missing"}
    assert not report.is_well


def test_the_json_is_what_was_agreed() -> None:
    plain = json.loads(json.dumps(conform(["minorm"], places=[0, 1]).plain()))
    assert set(plain) == {"versions", "cells"}
    assert {"operator", "opset", "case", "runtime", "verdict", "error"} <= set(plain["cells"][0])
    assert plain["cells"][0]["verdict"] == "right"


def test_versions_are_those_installed() -> None:
    found = versions()
    assert found["numpy"] == np.__version__
    assert set(found) == {"minorm", "onnxruntime", "onnx", "torch", "numpy", "python", "platform"}


def test_a_files_nodes_are_judged_under_their_names(planted: Any, places: dict[str, int]) -> None:
    names = ("training, float32", "inference, float32")
    found = FileCases(
        [all_cases()[places[name]] for name in names], [14, 15], {"deep/norm": "the node is inside a branch"}
    )
    report = conform_file(found, known={"minorm": RUNTIMES["minorm"], "planted": planted})
    assert [(c.runtime, c.case, c.opset, c.verdict) for c in report.cells] == [
        ("minorm", names[0], 14, "right"),
        ("minorm", names[1], 15, "right"),
        ("planted", names[0], 14, "wrong"),
        ("planted", names[1], 15, "right"),
    ]
    plain = json.loads(json.dumps(report.plain()))
    assert set(plain) == {"versions", "cells", "left_out"}
    assert plain["left_out"] == {"deep/norm": "the node is inside a branch"}
    assert report.is_well


def test_kinds_of_cases_that_a_runtime_lacks_are_not_asked(planted: Any) -> None:
    place = next(place for place, case in enumerate(all_cases()) if case.kind == "gradients")
    report = conform(places=[place], known={"minorm": RUNTIMES["minorm"], "planted": planted})
    assert [cell.runtime for cell in report.cells] == ["minorm"]
