"""Every kernel on a real GPU, if the machine has one: against the CPU's, and under NVIDIA's compute-sanitizer.

The other tests of this folder run on a double of CuPy. These put nothing in its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cupy_orders
import every_kernel
import instances
import numpy as np
import pytest

from minorm import devices
from tests.gpu import test_graphed_callables, test_graphed_step, test_graphed_training

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
@pytest.mark.parametrize("way", ["in registers", "by chunks", "in clusters"])
def test_every_kernel(dtype: Any, way: str, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "in clusters":
        every_kernel.in_clusters(device, monkeypatch)
    if way == "by chunks":
        every_kernel.by_chunks(device, monkeypatch)
    every_kernel.compare(dtype, way)


@pytest.mark.parametrize("name", cupy_orders.CALLS)
@pytest.mark.usefixtures("device")
def test_results_lie_as_the_double_has_them(name: str) -> None:
    cupy_orders.check(devices.library(), name)


@pytest.mark.filterwarnings("error:make_graphed_step", "error:training on a GPU")  # that a step is not captured
@pytest.mark.usefixtures("device")
def test_steps_as_graphs_have_the_bits_of_eager_ones(tmp_path: Path) -> None:
    for make in test_graphed_step.OPTIMIZERS.values():
        assert test_graphed_step.compared(test_graphed_step.batches(8), make=make).calls == 4
    for name, way in test_graphed_training.WAYS.items():
        files = []
        for graph in (False, True):
            out = tmp_path / f"{name} {graph}"
            test_graphed_training.run(out, graph, "cuda:0", **way).fit()
            files.append((out / "checkpoint.safetensors").read_bytes())
        assert files[0] == files[1], name


@pytest.mark.usefixtures("device")
def test_graphed_callables_have_the_bits_of_eager_ones() -> None:
    for add_up in (1, 3):
        pair = (test_graphed_callables.trained(graphed, add_up) for graphed in (True, False))
        for found, expected in zip(*pair, strict=True):
            np.testing.assert_array_equal(found, expected)


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
