"""The same text through CuPy, or, without CuPy, a stand-in that insists on the exact types of parameters."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minorm import devices
from minorm.labs import cuda, on_gpu

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
MOMENTS = """
__global__ void moments(const float* x, float* k, float* d, float* var, int m) {
    const float* row = x + blockIdx.x * m;
    float sum = 0;
    if (threadIdx.x > 0) return;
    for (int i = 0; i < m; i++) sum += row[i];
    k[blockIdx.x] = sum / m;
    d[blockIdx.x] = var[blockIdx.x] = 0;
}
"""
SCALE = "__global__ void scale(float* x, float factor, int n) { if (threadIdx.x < n) x[threadIdx.x] *= factor; }"


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return CuPy if it works; else a stand-in with the parts that the tests need."""
    try:
        devices.library()
    except RuntimeError:
        shim: Any = pytest.importorskip("shim")
        device = SimpleNamespace(synchronize=lambda: None)
        found = SimpleNamespace(
            RawModule=shim.Module,
            cuda=SimpleNamespace(Device=lambda: device),
            asnumpy=np.asarray,
            **{name: getattr(np, name) for name in ("ones", "zeros", "float32", "asarray", "copyto")},
        )
        monkeypatch.setattr(devices, "library", lambda: found)


def test_the_same_text_gives_the_same_bits() -> None:
    x = np.random.default_rng(0).standard_normal((6, 500)).astype(np.float32)
    here, there = np.ones((2, 3, 6), np.float32)
    cuda.Program(MOMENTS).launch("moments", 6, 32, x, *here, 500)
    on_gpu.OnGpu(MOMENTS).run("moments", 6, 32, x, *there, 500)
    assert np.array_equal(here, there)


def test_numbers_are_given_as_c_has_them() -> None:
    x = np.arange(4, dtype=np.float32)
    on_gpu.OnGpu(SCALE).run("scale", 1, 32, x, 2.5, 3)
    assert x.tolist() == [0, 2.5, 5, 3]


def test_speed_is_a_number_for_each_length() -> None:
    speeds = on_gpu.gigabytes(on_gpu.OnGpu(MOMENTS), [16, 64], threads=32, elements=256)
    assert len(speeds) == 2
    assert all(speed > 0 for speed in [*speeds, on_gpu.copying(256)])
