"""benchmarks/gpu.py stands ready: here it runs on the double of CuPy, which tells nothing about speed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shim

from benchmarks import gpu, gpu_cases, gpu_families, gpu_parity, gpu_timing
from benchmarks.gpu_cases import Case
from benchmarks.gpu_families import FAMILIES

FEW = [("layer", (5, 7)), ("rms", (4, 8)), ("batch", (6, 4, 3, 3)), ("evaluation", (9, 4)), ("group", (2, 8, 3, 3)),
       ("instance", (2, 3, 4, 4))]  # fmt: skip
pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(function: Callable[[int], Any]) -> float:
        function(0)
        function(1)
        return 1.0

    monkeypatch.setattr(gpu_timing, "milliseconds", once)
    monkeypatch.setattr(gpu, "microseconds", lambda call, calls=1, wait=False: float(call() is None))
    monkeypatch.setattr(gpu, "copy_rate", lambda: 1e12)
    monkeypatch.setattr(gpu, "copies", lambda size: 2)
    monkeypatch.setattr(gpu, "torch_with_gpu", lambda: None)
    monkeypatch.setattr(gpu, "SMALL", FEW)
    monkeypatch.setattr(gpu, "LARGE", FEW)
    monkeypatch.setattr(gpu, "TYPES", ("float32",))
    monkeypatch.setattr(gpu, "FAMILIES", [family._replace(large=family.large and family.small) for family in FAMILIES])
    monkeypatch.setattr(gpu, "NETWORK", (2, 3, 4))
    monkeypatch.setattr(gpu_families, "NETWORK", (8, 3, 4))
    monkeypatch.setattr(gpu_families, "STEPS", 1)


@pytest.mark.usefixtures("cuda", "quick")
def test_it_runs_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    file = tmp_path / "gpu.json"
    monkeypatch.setattr(sys, "argv", ["gpu", "--json", str(file), "--types", "float32"])
    assert gpu.main() == 0
    record = json.loads(file.read_text())
    lines = len(gpu_cases.cases(FEW, ("float32",)))
    assert lines == 9
    others = len(FAMILIES) + len(gpu_families.OPTIMIZERS) + 1
    assert [line["case"] for line in record["parity"] if not line["passed"]] == []
    assert len(record["parity"]) == lines + others
    assert len(record["speed"]) == lines + sum(bool(family.large) for family in FAMILIES)
    layer = record["speed"][0]
    assert layer["forward share"] == pytest.approx(2 * 5 * 7 * 4 / 1e-3 / 1e12)
    assert record["ResNet-20, milliseconds a step"]["minorm"] >= 0
    assert f"parity: {lines + others} of {lines + others} cases right" in capsys.readouterr().out


@pytest.mark.usefixtures("cuda", "quick")
def test_a_wrong_result_is_told_and_ends_with_1(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    right = gpu_parity.results

    def wrong(case: Case, given: Any, device: str) -> dict[str, Any]:
        found = right(case, given, device)
        if case.op == "rms":
            found["dx"] = np.full_like(found["dx"], np.nan)
        return found

    monkeypatch.setattr(gpu_parity, "results", wrong)
    monkeypatch.setattr(gpu_families, "parity", lambda types: [])
    monkeypatch.setattr(gpu, "FAMILIES", [])
    monkeypatch.setattr(gpu, "training", lambda torch: {})
    monkeypatch.setattr(sys, "argv", ["gpu", "--types", "float32"])
    assert gpu.main() == 1
    assert "WRONG rms 4x8 float32: the error of dx is inf" in capsys.readouterr().out


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(gpu.mn.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu"])
    assert gpu.main() == 2
    assert "no GPU" in capsys.readouterr().err


@pytest.mark.parametrize("case", gpu_cases.cases(FEW, ("float64",)), ids=str)
def test_the_formulas_are_pytorchs(case: Case) -> None:
    torch = pytest.importorskip("torch")
    given = gpu_cases.arrays(case, offset=2.0)
    exact = gpu_cases.expected(case, given)
    t = {name: torch.from_numpy(value.copy()) for name, value in given.items()}
    for name in ("x", "scale", "bias"):
        t[name].requires_grad_(True)
    y = gpu_cases.peer(case, t)()
    y.backward(t["dy"])
    found = {"y": y.detach(), "dx": t["x"].grad, "dscale": t["scale"].grad, "dbias": t["bias"].grad}
    for name, value in exact.items():
        np.testing.assert_allclose(found[name].numpy(), value, rtol=1e-10, atol=1e-12)
