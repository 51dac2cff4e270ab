"""Holds a CUDA kernel for moments of rows, and wrong copies with one bug each, to grade the tests of lab 8."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.cuda import Program, without_barrier

TREE = """
__device__ float block_sum(float v) {
    __shared__ float part[512];
    part[threadIdx.x] = v;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    float sum = part[0];
    __syncthreads();
    return sum;
}
"""
ATOMIC = """
__device__ float block_sum(float v) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, v);
    __syncthreads();
    v = sum;
    __syncthreads();
    return v;
}
"""
MOMENTS = """
__global__ void moments(const float* x, float* mean, float* var, int m) {
    const float* row = x + blockIdx.x * m;
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < m; i += blockDim.x) sum += row[i];
    float middle = block_sum(sum) / m;
    for (int i = threadIdx.x; i < m; i += blockDim.x) squares += (row[i] - middle) * (row[i] - middle);
    squares = block_sum(squares) / m;
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = middle;
        var[blockIdx.x] = squares;
    }
}
"""
MOST_WORK = 1 << 15  # threads of one launch


def _gpu(tree: str = TREE, *changes: tuple[str, str]) -> dict[str, Any]:
    """Make an implementation with a planted bug for the student's tests.

    `changes` are pairs of texts that are replaced in the kernel.
    """
    text = tree + MOMENTS
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)

    def moments(x: Any, threads: int = 128, seed: int = 0) -> tuple[Any, Any]:
        if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim != 2 or x.size == 0:
            raise TypeError("moments: x must be a float32 matrix with rows that have elements")
        if threads not in (32, 64, 128, 256, 512):
            raise ValueError(f"moments: threads={threads!r}; expected 32, 64, 128, 256 or 512")
        if len(x) * threads > MOST_WORK or x.size > 1 << 20:
            raise ValueError(f"moments: {len(x)} rows with {threads} threads each; this would take too long here")
        mean, var = np.zeros((2, len(x)), np.float32)
        Program(text).launch("moments", len(x), threads, x, mean, var, x.shape[1], seed=int(seed) % (1 << 31))
        return mean, var

    return {"moments": moments}


SQUARES = "squares += (row[i] - middle) * (row[i] - middle)"
RIGHT = _gpu()
WRONG = {
    "no barrier after the numbers are written": _gpu(without_barrier(TREE, 0)),
    "no barrier between the steps of the tree": _gpu(without_barrier(TREE, 1)),
    "no barrier before the memory is used again": _gpu(without_barrier(TREE, 2)),
    "atomicAdd of floats": _gpu(ATOMIC),
    "the end of a row is left out": _gpu(
        TREE, ("i < m;", "i < max(m / (int)blockDim.x, 1) * (int)blockDim.x && i < m;")
    ),
    "every row is taken for the first": _gpu(TREE, ("x + blockIdx.x * m", "x")),
    "blocks of 512 lose a half": _gpu(TREE, ("blockDim.x / 2;", "min(blockDim.x / 2, 128u);")),
    "the mean of the squares less the mean squared": _gpu(
        TREE, (SQUARES, "squares += row[i] * row[i]"), ("= squares;", "= squares - middle * middle;")
    ),
}
