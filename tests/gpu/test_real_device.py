"""Every kernel on a real GPU, where there is one: against the CPU's own, and under NVIDIA's compute-sanitizer.

The other tests of this folder run on a double of CuPy. These put nothing in its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import cupy_orders
import every_kernel
import instances
import pytest

from minorm import devices

INSIDE = "MINORM_TESTS_UNDER_SANITIZER"  # set in the process that the sanitizer watches


@pytest.fixture
def device() -> Iterator[Any]:
    """kernels/gpu/norm.py on the real CuPy."""
    try:
        devices.library()
    except RuntimeError as missing:
        pytest.skip(str(missing))
    from minorm.kernels.gpu import norm

    yield norm
    every_kernel.forget(norm)


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize("way", ["in registers", "by chunks"])
def test_every_kernel(dtype: Any, way: str, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "by chunks":
        every_kernel.by_chunks(device, monkeypatch)
    every_kernel.compare(dtype, way)


@pytest.mark.parametrize("name", cupy_orders.CALLS)
@pytest.mark.usefixtures("device")
def test_results_lie_as_the_double_has_them(name: str) -> None:
    cupy_orders.check(devices.library(), name)


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
@pytest.mark.usefixtures("device")
def test_the_sanitizer_finds_nothing(tool: str) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None or INSIDE in os.environ:
        pytest.skip("compute-sanitizer is not on PATH, or watches this process")
    tests = [f"{__file__}::test_every_kernel", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "pytest", *tests]
    found = subprocess.run(command, env={**os.environ, INSIDE: "1"}, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-4000:]
