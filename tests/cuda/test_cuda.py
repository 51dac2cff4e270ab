"""minorm.cuda where there is no GPU: it says so, and never fails when it is only asked. With one: tests/gpu."""

from __future__ import annotations

import sys

import pytest

import minorm as mn
from minorm import devices


@pytest.fixture(autouse=True)
def _no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(devices, "_found", [])


def test_questions_have_answers() -> None:
    assert mn.cuda.is_available() is False
    assert mn.cuda.device_count() == 0
    mn.cuda.empty_cache()


def test_commands_say_what_is_missing() -> None:
    for command in (mn.cuda.current_device, mn.cuda.synchronize, mn.cuda.memory_stats, mn.cuda.mem_get_info):
        with pytest.raises(RuntimeError, match=r"^cuda: .*(minorm\[cuda|driver)"):
            command()


def test_show_config_says_why() -> None:
    facts = mn.show_config("dicts")
    assert facts is not None
    assert facts["cuda"].startswith("no: ")
