"""matmul.py: what goes to cuBLAS as it is, what is widened, and the shapes of the results."""

from __future__ import annotations

from typing import Any

import instances
import numpy as np
import pytest
import shim

import minorm as mn
from minorm.devices import dtypes
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


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
def test_cublas_reads_matrices_as_they_lie(dtype: Any, cuda: Any) -> None:
    """Turned ones, parts of larger ones, stacks of either; only what lies otherwise is copied."""
    from minorm.kernels.gpu import matmul as gpu

    rng = np.random.default_rng(0)
    x, y = (cuda.array(rng.standard_normal(shape).astype(dtype)) for shape in ((3, 5, 8), (3, 8, 6)))
    pairs = [
        (x[0], y[0]), (y[0].T, x[0].T), (x[0, :, :4], y[0, 2:6]), (x[:, 0].T[:5], x[:, 0]), (x, y),
        (x.swapaxes(1, 2), x), (x[:, :1], y), (x[0, :1].T, x[0, :1]), (x[0], y[0, :, :1]), (x[:, :3, 1:], y[:, 1:, :2]),
    ]  # fmt: skip
    cuda.transfers.clear()
    for a, b in pairs:
        found = gpu.matmul(a, b)
        instances.close(found, reference.matmul.matmul(a.memory, b.memory), 4 if dtype == dtypes.float64 else 1, 1e-5)
    assert cuda.transfers.launches == {"gemm": len(pairs)}
    spread, before = cuda.broadcast_to(x[0, 0], (6, 8)), shim.State.launches
    gpu.matmul(spread, y[0])
    assert shim.State.launches - before == 1  # the copy


def test_products_into_float32_and_on_top(cuda: Any) -> None:
    from minorm.kernels.gpu import matmul as gpu

    rng = np.random.default_rng(0)
    a, b = (cuda.array(rng.standard_normal(shape).astype(dtypes.bfloat16)) for shape in ((3, 4), (4, 5)))
    out, wide = cuda.ones((3, 5), np.float32), a.memory.astype(np.float64) @ b.memory.astype(np.float64)
    gpu.product(a, b, out, add=True)
    np.testing.assert_allclose(out.memory, wide + 1, rtol=1e-6)
    gpu.product(a, b, out)
    np.testing.assert_allclose(out.memory, wide, rtol=1e-5)


def test_a_device_without_bfloat16_computes_in_float32(cuda: Any, monkeypatch: Any) -> None:
    from minorm.kernels.gpu import matmul as gpu

    a, expected = cuda.ones((2, 3), dtypes.bfloat16), np.full((2, 2), 3.0)
    gpu._has_bfloat16.cache_clear()
    monkeypatch.setattr(cuda.cuda.Device, "compute_capability", "75")
    monkeypatch.setitem(cuda.cuda.cublas.TAKEN, cuda.cuda.cublas.CUBLAS_COMPUTE_32F, {(0, 0)})
    for add in (False, True):
        out = cuda.ones((2, 2), dtypes.bfloat16)
        gpu.product(a, a.T, out, add)
        np.testing.assert_array_equal(out.memory.astype(np.float64), expected + add)
    gpu._has_bfloat16.cache_clear()


def test_tf32_is_for_those_who_ask(cuda: Any, monkeypatch: Any) -> None:
    from minorm.kernels.gpu import matmul as gpu

    blas, x = cuda.cuda.cublas, cuda.ones((2, 2), np.float32)
    monkeypatch.setenv("CUPY_TF32", "1")
    blas.used.clear()
    try:
        gpu.matmul(x, x)
        mn.backends.cuda.matmul.allow_tf32 = True
        for a in (x, x.astype(np.float64), x.astype(np.float16)):
            gpu.matmul(a, a)
        mn.set_float32_matmul_precision("highest")
        gpu.matmul(x, x)
    finally:
        mn.backends.cuda.matmul.allow_tf32 = False
    full, tf32, double = blas.CUBLAS_COMPUTE_32F, blas.CUBLAS_COMPUTE_32F_FAST_TF32, blas.CUBLAS_COMPUTE_64F
    assert blas.used == [full, tf32, double, full, full]


def test_memory(cuda: Any) -> None:
    from minorm.kernels.gpu import memory

    before = memory.statistics()["used_bytes"]
    x = memory.empty((1000,), np.float32)
    assert memory.empty_like(x).shape == x.shape
    assert memory.statistics()["used_bytes"] >= before + x.nbytes
    del x
    memory.empty_cache()
    assert memory.statistics()["idle_bytes"] == 0


def test_what_brings_cublas_is_told(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from minorm.kernels.gpu import matmul

    class Lacking:
        @property
        def cublas(self) -> Any:
            raise ImportError("libcublas.so.12: cannot open shared object file")

    x = cuda.ones((2, 2), np.float32)
    matmul._cublas.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(cuda, "cuda", Lacking())
        with pytest.raises(ImportError, match=r"libcublas") as error:
            matmul._cublas()
    assert "products of matrices need cuBLAS: pip install 'cupy-cuda12x[ctk]>=14.2'" in error.value.__notes__[0]
    assert matmul.matmul(x, x).memory.tolist() == [[2, 2], [2, 2]]
