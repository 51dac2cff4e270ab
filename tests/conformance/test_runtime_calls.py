"""Runtimes in a separate process: a crash, a hang or a refusal is an answer, and the rest goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.conformance import runtime_calls
from minorm.conformance.runtime_calls import CannotRun, ask
from minorm.conformance.runtimes import RUNTIMES, Runtime


def test_one_that_crashes_or_hangs_loses_that_case_alone(planted: Any, places: dict[str, int]) -> None:
    found = ask(planted, list(places.values()), seconds=6)
    assert set(found) == set(places.values())
    kinds = {name: found[place].kind for name, place in places.items()}
    assert kinds.pop("training, float64") == "died"
    assert kinds.pop("training, float16") == "died"
    assert kinds.pop("training, momentum 0") == "refused"
    assert set(kinds.values()) == {"answered"}
    assert found[places["training, float64"]].text == "crashed (SIGSEGV)"
    assert found[places["training, float16"]].text == "gave no answer in 6 seconds"
    assert found[places["training, rank 2"]].overwrote == (3,)


def test_messages_are_kept_short(planted: Any, places: dict[str, int]) -> None:
    place = places["training, momentum 0"]
    text = ask(planted, [place])[place].text
    assert text.startswith("ValueError: no momentum of 0....")
    assert len(text) == 163
    assert text.endswith("...")


def test_one_that_always_dies_is_given_up(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_calls, "CRASHES", 2)
    dying = module("planted_dying", "import os\n\ndef answer(case):\n    os._exit(5)\n")
    found = ask(dying, range(4))
    assert [found[place].kind for place in range(4)] == ["died", "died", "absent", "absent"]
    assert found[1].text == "ended the process (exit status 5)"
    assert found[3].text == "not run, because the runtime crashed or hung 2 times before"


def test_one_that_does_not_import_cannot_run(module: Any) -> None:
    with pytest.raises(CannotRun, match="OSError: libwhatever is missing"):
        ask(module("planted_broken", "raise OSError('libwhatever is missing')\n"), range(3))


def test_one_that_is_not_installed_is_absent() -> None:
    found = ask(Runtime("absent", "absent:answer", ("json", "no_such_package_here")), [0, 5])
    assert [(o.kind, o.text) for o in found.values()] == [("absent", "no_such_package_here is not installed")] * 2


def test_arrays_come_back_as_they_are() -> None:
    found = ask(RUNTIMES["minorm"], range(3))
    assert all(outcome.kind == "answered" for outcome in found.values())
    assert found[0].arrays[0].shape == (4, 3, 5, 2)
    assert found[0].arrays[0].dtype == np.float32
