"""Devices by name. minorm does not touch CUDA before a program asks for a GPU; then an error says what is missing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from minorm import devices
from minorm.devices import driver


def test_where_arrays_of_numpy_are() -> None:
    for array in (np.ones(3), np.float32(1), 1.0):
        assert devices.is_host(array)
        assert devices.device_of(array) == "cpu"
        assert devices.namespace(array) is np
    assert devices.same_device(np.ones(3), np.float32(1))


def test_import_leaves_cupy_alone() -> None:
    code = "import sys, minorm; x = minorm.ones(3); (x + x).to('cpu'); sys.exit('cupy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("device", ["cuda:x", "cuda:-1", "gpu", "", "cpu:0:1"])
def test_what_names_no_device(device: str) -> None:
    with pytest.raises(ValueError, match="expected 'cpu', 'cuda' or 'cuda:0'"):
        devices.device_index(device)


def test_the_cpu_needs_nothing() -> None:
    x = np.ones(3)
    assert devices.to_device(x, "cpu") is x
    with devices.on("cpu") as xp:
        assert xp is np


def test_without_cupy_the_error_names_the_one_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(devices, "_found", [])
    monkeypatch.setattr(driver, "version", lambda: 12080)
    with pytest.raises(RuntimeError, match=r"pip install 'cupy-cuda12x\[ctk\]>=14.2'"):
        devices.to_device(np.ones(3), "cuda")


def test_a_cupy_without_a_driver_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle:
        class cuda:
            is_available = staticmethod(lambda: False)

            class runtime:
                runtimeGetVersion = staticmethod(lambda: 13000)

    idle: Any = Idle
    monkeypatch.setitem(sys.modules, "cupy", idle)
    monkeypatch.setattr(devices, "_found", [])
    monkeypatch.setattr(driver, "version", lambda: 12080)
    with pytest.raises(RuntimeError, match=r"pip uninstall cupy-cuda13x, then pip install 'cupy-cuda12x\[ctk\]>=14.2'"):
        devices.library()
