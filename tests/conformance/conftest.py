"""Runtimes of a test's own, as modules that a worker finds on its path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx")

from minorm.conformance.cases import all_cases
from minorm.conformance.runtime_calls import ask, missing
from minorm.conformance.runtimes import RUNTIMES, Runtime
from minorm.conformance.verdict import Cell, judge
from tests.conformance.planted import PLANTED, REFUSED, RIGHT, WRONG


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Any]:
    """Write a module, and get a Runtime that calls its `answer`."""

    def write(name: str, text: str) -> Runtime:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        return Runtime("planted", f"{name}:answer", (name,))

    return write


@pytest.fixture
def planted(module: Any) -> Any:
    return module("planted_wrong", PLANTED)


@pytest.fixture
def judged() -> Callable[[str, list[int]], list[Cell]]:
    """Ask an installed runtime for the cases at these places, and judge its answers."""

    def judge_all(name: str, places: list[int]) -> list[Cell]:
        runtime = RUNTIMES[name]
        if missing(runtime):
            pytest.skip(missing(runtime))
        outcomes = ask(runtime, places)
        return [judge(all_cases()[place], name, outcomes[place]) for place in places]

    return judge_all


@pytest.fixture
def places() -> dict[str, int]:
    """The cases that the planted runtime gets wrong, refuses or gets right, by name."""
    names = {*WRONG, *RIGHT, REFUSED}
    return {c.name: i for i, c in enumerate(all_cases()) if c.opset == 15 and c.name in names}
