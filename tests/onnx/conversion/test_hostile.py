"""Broken models, as tests/onnx/fuzz makes them: `convert` takes them or names the cause."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.checking import sandbox  # noqa: E402

FUZZ = Path(__file__).parents[1] / "fuzz"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"convert_fuzz_{name}", FUZZ / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


def broken(count: int, start: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Convert broken models without other processes, which would take hours; unknown types are refused."""
    monkeypatch.setattr(sandbox, "infer", lambda model: {})
    monkeypatch.setattr(sandbox, "try_all", lambda *given, **options: sandbox.Stage("absent", "not asked"))
    corpus, mutations = module("corpus"), module("mutations")
    models: list[Any] = [seed.model for seed in corpus.seeds()]
    seen = {"written": 0, "LoadError": 0, "ExportError": 0}
    for number in range(start, start + count):
        rng = random.Random(number)
        model = onnx.ModelProto()
        model.CopyFrom(rng.choice(models))
        mutations.mutate(rng, model, rng.sample(models, 2))
        try:
            mo.convert(model, opset_version=rng.choice([7, 9, 11, 13, 17, 21, 26]))
            seen["written"] += 1
        except (mo.LoadError, mo.ExportError) as error:
            seen[type(error).__name__] += len(str(error)) > 20
    assert sum(seen.values()) == count
    return seen


def test_broken_models_are_converted_or_say_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = broken(1000, 0, monkeypatch)
    assert min(seen.values()) > 100


@pytest.mark.slow
def test_many_broken_models(monkeypatch: pytest.MonkeyPatch) -> None:
    assert min(broken(50_000, 1_000_000, monkeypatch).values()) > 5000
