"""Without a GPU to compute on, the message says what this machine lacks and which CuPy goes with its driver."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from minorm.devices import driver


@pytest.mark.parametrize(
    ("found", "missing", "runtime", "expected"),
    [
        (
            None,
            "No module named 'cupy'",
            0,
            r"no NVIDIA driver was found .* cupy-cuda12x\[ctk\] or cupy-cuda13x\[ctk\]",
        ),
        (None, None, 12090, "no NVIDIA driver was found"),
        (12080, "No module named 'cupy'", 0, r"CUDA 12.8, so run: pip install 'cupy-cuda12x\[ctk\]>=14.2'"),
        (13000, "No module named 'cupy'", 0, r"CUDA 13.0, so run: pip install 'cupy-cuda13x\[ctk\]>=14.2'"),
        (14020, "No module named 'cupy'", 0, r"pip install 'cupy-cuda13x\[ctk\]>=14.2'"),
        (11080, "No module named 'cupy'", 0, "is for CUDA 11.8; expected 12.0 or newer; update the driver"),
        (12040, None, 13000, r"pip uninstall cupy-cuda13x, then pip install 'cupy-cuda12x\[ctk\]>=14.2'"),
        (12080, None, 12090, "shows no GPU; check that nvidia-smi lists a GPU"),
    ],
)
def test_advice(found: int | None, missing: str | None, runtime: int, expected: str) -> None:
    with pytest.raises(RuntimeError, match=expected):
        raise RuntimeError(driver.advice(found, missing, runtime))


class Library:
    """A libcuda that answers with this version and status."""

    def __init__(self, version: int, status: int = 0) -> None:
        self.version, self.status = version, status

    def cuDriverGetVersion(self, pointer: Any) -> int:
        pointer._obj.value = self.version
        return self.status


def test_version_is_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library(12080))
    assert driver.version() == 12080
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library(12080, status=999))
    assert driver.version() is None


def test_version_is_none_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert driver.version() is None
