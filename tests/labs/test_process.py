"""What a student's process is given."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import minorm_ext
from minorm.labs.process import Process


@pytest.mark.parametrize("cap", [None, "baseline"])
def test_the_cap_on_the_level_is_handed_on(cap: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else lab 12 would compare the bits of two instruction sets."""
    monkeypatch.setattr(minorm_ext, "MAX_LEVEL", cap)
    monkeypatch.setattr(minorm_ext, "WINOGRAD", cap is None)
    process = Process(memory=1 << 30)
    try:
        environment = Path(f"/proc/{process.popen.pid}/environ")
        while not (text := environment.read_bytes()):  # empty for a moment, while the new program is put in place
            time.sleep(0.001)
        variables = text.split(b"\0")
    finally:
        process.end()
    found = [entry for entry in variables if entry.startswith(b"MINORM_")]
    assert found == ([] if cap is None else [b"MINORM_MAX_LEVEL=baseline", b"MINORM_WINOGRAD=0"])
