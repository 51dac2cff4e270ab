"""CUDA text runs on the CPU: right kernels are right in any order of threads, and forbidden accesses raise errors."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.labs import cuda
from minorm.labs.compiling import CompileError
from minorm.labs.sealed import compiler

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
SUM = """
__device__ float block_sum(float v) {
    __shared__ float part[1024];
    part[threadIdx.x] = v;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    float total = part[0];
    __syncthreads();
    return total;
}
"""
MEAN = """
__global__ void distances(const float* x, float* y, int m, float scale) {
    const float* row = x + blockIdx.x * m;
    float sum = 0;
    for (int i = threadIdx.x; i < m; i += blockDim.x) sum += row[i];
    float mean = block_sum(sum) / m;
    float squares = 0;
    for (int i = threadIdx.x; i < m; i += blockDim.x) squares += (row[i] - mean) * (row[i] - mean);
    squares = block_sum(squares);
    if (threadIdx.x == 0) y[blockIdx.x] = scale * squares / m;
}
"""
X = np.random.default_rng(0).standard_normal((6, 500)).astype(np.float32)


def distances(source: str, seed: int = 0, threads: int = 128) -> Any:
    y = np.zeros(6, np.float32)
    cuda.Program(source, MEAN).launch("distances", 6, threads, X, y, 500, 2.0, seed=seed)
    return y


def test_a_right_kernel_gives_the_same_bits_in_any_order() -> None:
    y = distances(SUM)
    np.testing.assert_allclose(y, 2 * X.var(1, dtype=np.float64), rtol=1e-6)
    assert all(np.array_equal(distances(SUM, seed), y) for seed in range(1, 6))
    np.testing.assert_allclose(distances(SUM, 0, 32), y, rtol=1e-6)


def test_barriers_are_counted() -> None:
    y = np.zeros(6, np.float32)
    assert cuda.Program(SUM, MEAN).launch("distances", 6, 64, X, y, 500, 1.0) == 6 * 2 * (1 + 6 + 1)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_missing_barrier_changes_the_result(which: int) -> None:
    y = distances(SUM)
    wrong = [distances(cuda.without_barrier(SUM, which), seed) for seed in range(4)]
    assert any(not np.array_equal(found, y) for found in wrong)


def test_there_is_no_such_barrier() -> None:
    with pytest.raises(ValueError, match="no barrier 3; the source has 3"):
        cuda.without_barrier(SUM, 3)


SHUFFLED = """
__global__ void sums(const float* x, float* y) {
    float v = x[threadIdx.x];
    for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffff, v, step);
    if (threadIdx.x % 32 == 0) y[threadIdx.x / 32] = v;
}
"""


def test_shuffles_stay_within_a_warp() -> None:
    x, y = np.arange(96, dtype=np.float32), np.zeros(3, np.float32)
    cuda.Program(SHUFFLED).launch("sums", 1, 96, x, y)
    assert y.tolist() == x.reshape(3, 32).sum(1).tolist()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("if (threadIdx.x < 40) __syncthreads();", r"thread 0 waits at line 2, which thread 40 .*it has ended"),
        ("if (threadIdx.x < 40) __syncthreads(); else\n__syncthreads();", r"line 2.*thread 40.*it waits at line 3"),
        ("if (threadIdx.x < 3) __shfl_sync(~0u, 1.0f, 0);", r"line 2, which thread 3 .*it has ended"),
        ("y[64 + threadIdx.x] = 1;", r"the kernel writes outside of y, which has 64 elements"),
        ("y[-1] = 1;", r"the kernel writes outside of y"),
    ],
)
def test_what_no_kernel_may_do_is_an_error(body: str, said: str) -> None:
    program = cuda.Program(f"__global__ void wrong(float* y) {{\n{body}\n}}")
    with pytest.raises(cuda.KernelError, match=said):
        program.launch("wrong", 2, 64, np.zeros(64, np.float32))


def test_reading_outside_of_an_array_shows() -> None:
    y = np.zeros(1, np.float32)
    cuda.Program("__global__ void f(const float* x, float* y) { y[0] = x[3] + x[-1]; }").launch("f", 1, 1, X[0, :3], y)
    assert np.isnan(y[0])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("__global__ void f(float* y) { y[0] = z; }", r"kernel.cu:1:.*z. was not declared"),
        ("__device__ void f(float* y) { }", r"expected a function that begins with __global__ void"),
        ("__global__ void f(double* y) { }", r"f has a parameter `double\* y`; expected float\*"),
        ("__global__ void f(int* y) { }", r"f has a parameter `int\* y`"),
        ("__global__ void f() { }", r"f has a parameter ``"),
    ],
)
def test_what_cannot_be_compiled_says_why(source: str, said: str) -> None:
    with pytest.raises(CompileError, match=said):
        cuda.Program(source)


def test_what_cannot_be_launched_says_why() -> None:
    program = cuda.Program(SHUFFLED)
    with pytest.raises(CompileError, match="there is no kernel other; found sums"):
        program.launch("other", 1, 32)
    with pytest.raises(TypeError, match="sums takes 2 arguments; got 1"):
        program.launch("sums", 1, 32, X[0])
    with pytest.raises(TypeError, match="y of sums is a list; expected an array of float32"):
        program.launch("sums", 1, 32, X[0], [0.0])
    with pytest.raises(ValueError, match="threads=2000"):
        program.launch("sums", 1, 2000, X[0], X[1])


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    compiler._cuda_compiler.cache_clear()
    with pytest.raises(CompileError, match="no C\\+\\+ compiler"):
        cuda.Program("__global__ void f(float* only_here) { }")


TWICE = """
import ctypes, sys

import numpy as np

from minorm.labs import cuda

kernel = "__global__ void fill(float* y, float v) { y[threadIdx.x] = v; }"
y = np.zeros(4, np.float32)
if sys.argv[1:]:
    ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
cuda.Program("", kernel).launch("fill", 1, 4, y, 2.0)
assert y.tolist() == [2.0] * 4
"""


def test_another_library_of_these_names_is_let_alone(tmp_path: Path) -> None:
    """As the kernels of tests/gpu in the same process: the end of both destroyed one list of threads twice."""
    other = tmp_path / "other.so"
    (tmp_path / "other.cpp").write_text(f'#include "{compiler.SHIM}"\\n')
    command = ["g++", "-std=c++17", "-w", "-fPIC", "-shared", str(tmp_path / "other.cpp"), "-o", str(other)]
    subprocess.run(command, check=True)
    subprocess.run([sys.executable, "-c", TWICE, str(other)], check=True)
