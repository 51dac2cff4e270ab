"""matmul.py passes arrays to cuBLAS as they are or widens them, and gives results of the right shapes."""

from __future__ import annotations

import ctypes
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cublas_lt_double
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


def test_a_bias_is_added_in_the_kernel_of_the_product(cuda: Any) -> None:
    """And rounded once with it."""
    from minorm.kernels.gpu import matmul as gpu

    rng = np.random.default_rng(0)
    for dtype in instances.FLOATS:
        x, w, b = (rng.standard_normal(shape).astype(dtype) for shape in ((2, 3, 4), (5, 4), (5,)))
        cuda.transfers.clear()
        y = gpu.linear(*map(cuda.array, (x, w, b)))
        wide = [a.astype(np.float64) for a in (x, w, b)]
        small = 1e-14 if dtype == dtypes.float64 else 2e-7
        instances.close(y, (wide[0] @ wide[1].T + wide[2]).astype(dtype), 1 if dtype.itemsize == 2 else 4, small)
        assert cuda.transfers.launches == {"gemm": 1}


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
def test_the_gradients_of_a_linear_layer(dtype: Any, cuda: Any) -> None:
    """By one kernel but for float64; dy may be the view that the gradient of a sum is."""
    from minorm.kernels.gpu import matmul as gpu

    rng = np.random.default_rng(0)
    dy, x = (rng.standard_normal(shape).astype(dtype) for shape in ((7, 5), (7, 4)))
    there = cuda.array(x)
    for given in (cuda.array(dy), cuda.broadcast_to(cuda.array(dy[:1]), dy.shape)):
        wide, small = given.memory.astype(np.float64), 1e-13 if dtype == dtypes.float64 else 2e-6
        cublas_lt_double.used.clear()
        dw, db = gpu.linear_grads(given, there, True)
        assert [epilogue for epilogue, _ in cublas_lt_double.used] == ([] if dtype == dtypes.float64 else [512])
        instances.close(dw, (wide.T @ x.astype(np.float64)).astype(dtype), 1, small)
        instances.close(db, wide.sum(axis=0).astype(dtype), 1, small)
        assert dw.base is None
        assert gpu.linear_grads(given, there, False)[1] is None


def test_one_question_a_product_and_a_plan_for_each_thread(cuda: Any) -> None:
    """A plan holds the address of the bias while it runs: two threads would change each other's."""
    from minorm.kernels.gpu import cublas_lt
    from minorm.kernels.gpu import matmul as gpu

    x, w, b = (cuda.ones(shape, np.float32) for shape in ((3, 4), (5, 4), (5,)))
    cublas_lt._plan.cache_clear()
    cublas_lt_double.asked.clear()
    for _ in range(3):
        gpu.linear(x, w, b)
    assert cublas_lt_double.asked == [4]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(gpu.linear, x, w, b).result().memory.tolist() == [[5] * 5] * 3
    assert cublas_lt_double.asked == [4, 4]
    gpu.linear(x[1:], w, cuda.ones(6, np.float32)[1:])  # other sizes, and a bias that lies otherwise
    assert len(cublas_lt_double.asked) == 3
    cublas_lt._plan.cache_clear()
    gc.collect()
    assert cublas_lt_double.LtLibrary.made == {}  # descriptors go with their plans


def test_without_an_algorithm_or_the_library_the_bias_follows_behind(cuda: Any, monkeypatch: Any) -> None:
    from minorm.kernels.gpu import cublas_lt
    from minorm.kernels.gpu import matmul as gpu

    x, w, b = (cuda.ones(shape, np.float32) for shape in ((3, 4), (5, 4), (5,)))
    monkeypatch.setattr(cublas_lt_double, "refused", {4, 512})
    cublas_lt._plan.cache_clear()
    assert gpu.linear(x, w, b).memory.tolist() == [[5] * 5] * 3
    assert gpu.linear_grads(cuda.ones((3, 5), np.float32), x, True)[1].memory.tolist() == [3] * 5

    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    cublas_lt._plan.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(ctypes, "CDLL", missing)
        cublas_lt._library.cache_clear()
        assert gpu.linear(x, w, b).memory.tolist() == [[5] * 5] * 3
    cublas_lt._library.cache_clear()
    cublas_lt._plan.cache_clear()


def test_a_graph_replays_a_linear_layer(cuda: Any) -> None:
    layer, x = mn.nn.Linear(4, 5).to("cuda"), mn.randn(3, 4).to("cuda")

    def step() -> Any:
        y = layer(x)
        layer.zero_grad()
        y.square().sum().backward()
        return y

    step()
    expected = step()
    wanted = [p.grad.cpu().numpy() for p in layer.parameters()]
    graph = mn.cuda.CUDAGraph()
    cublas_lt_double.used.clear()
    with mn.cuda.graph(graph):
        y = step()
    cublas_lt_double.used.clear()
    graph.replay()
    assert [epilogue for epilogue, _ in cublas_lt_double.used] == [4, 512]
    np.testing.assert_array_equal(y.array.memory, expected.array.memory)
    for p, right in zip(layer.parameters(), wanted, strict=True):
        np.testing.assert_array_equal(p.grad.array.memory, right)


def test_float32_with_a_bias_is_in_tf32_for_those_who_ask(cuda: Any) -> None:
    from minorm.kernels.gpu import matmul as gpu

    blas, x, b = cuda.cuda.cublas, cuda.ones((2, 2), np.float32), cuda.ones(2, np.float32)
    cublas_lt_double.used.clear()
    try:
        for allowed in (False, True):
            mn.backends.cuda.matmul.allow_tf32 = allowed
            gpu.linear(x, x, b)
    finally:
        mn.backends.cuda.matmul.allow_tf32 = False
    assert [how for _, how in cublas_lt_double.used] == [
        blas.CUBLAS_COMPUTE_32F,
        blas.CUBLAS_COMPUTE_32F_FAST_TF32,
    ]
