"""matmul.py: what goes to cuBLAS as it is, what is widened, and the shapes of the results."""

from __future__ import annotations

from typing import Any

import instances
import numpy as np
import pytest

from minorm import dtypes
from minorm.kernels import reference

SHAPES = [((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5))]
SHAPES += [((1, 4), (4, 1)), ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((2, 3, 4), (4,))]


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_products_of_every_rank(left: Any, right: Any, dtype: Any, cuda: Any) -> None:
    from minorm.kernels.gpu import matmul as gpu

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(left).astype(dtype), rng.standard_normal(right).astype(dtype)
    expected = reference.matmul.matmul(a, b)
    y = gpu.matmul(cuda.array(a), cuda.array(b))
    assert y.dtype == dtype
    assert y.shape == expected.shape
    instances.close(y, expected, 4 if dtype == dtypes.float64 else 1, 1e-6)
    assert cuda.transfers.to_host == 0


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
def test_linear(dtype: Any, cuda: Any) -> None:
    from minorm.kernels.gpu import matmul as gpu

    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape).astype(dtype) for shape in ((2, 3, 4), (5, 4), (5,)))
    for bias in (None, b):
        expected = reference.matmul.linear(x, w, bias)
        y = gpu.linear(cuda.array(x), cuda.array(w), None if bias is None else cuda.array(b))
        instances.close(y, expected, 2, 2 * instances.EPS[dtype])


def test_stacks_of_sixteen_bits_never_reach_cupy(cuda: Any, monkeypatch: Any) -> None:
    """CuPy 14 multiplies stacks of bfloat16 by no kernel at all, and products of vectors in 16 bits."""
    from minorm.kernels.gpu import matmul as gpu

    seen: list[Any] = []
    monkeypatch.setattr(gpu.cupy, "matmul", lambda a, b: (seen.append((a.dtype, a.ndim)), cuda.dot(a, b))[1])
    half = cuda.ones((2, 3), dtypes.bfloat16)
    gpu.matmul(half, half.T)
    gpu.matmul(half[0], half[0])
    assert seen == [(dtypes.bfloat16, 2), (dtypes.float32, 1)]


def test_memory(cuda: Any) -> None:
    from minorm.kernels.gpu import memory

    before = memory.statistics()["used_bytes"]
    x = memory.empty((1000,), np.float32)
    assert memory.empty_like(x).shape == x.shape
    assert memory.statistics()["used_bytes"] >= before + x.nbytes
    del x
    memory.empty_cache()
    assert memory.statistics()["idle_bytes"] == 0
