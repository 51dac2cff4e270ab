"""types.cuh: conversions as ml_dtypes does them, accesses of several elements, and sums in a fixed order."""

from __future__ import annotations

import numpy as np
import pytest
import shim
from hypothesis import given
from hypothesis import strategies as st

from minorm.devices import dtypes
from minorm.kernels.gpu.source import source

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")
CODE = (
    source("types.cuh")
    + """
template <class T, class C> __global__ void narrow(const C* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) place(y[i], x[i]);
}
template <class T, class C> __global__ void wide(const T* x, C* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = widen<C>(x[i]);
}
template <class A> __global__ void total(const A* x, A* y) { y[threadIdx.x] = row_sum<false>(x[threadIdx.x]); }
template <class T, int V> __global__ void copied(const T* x, T* y) {
    put(y, V * threadIdx.x, fetch<T, V>(x, V * threadIdx.x));
}
"""
)
STORED = {"__half": dtypes.float16, "__nv_bfloat16": dtypes.bfloat16, "float": dtypes.float32, "double": dtypes.float64}
COMPUTED = {"float": dtypes.float32, "double": dtypes.float64}
PAIRS = [(stored, computed) for stored in STORED for computed in COMPUTED if (stored, computed) != ("double", "float")]


def names() -> list[str]:
    pairs = [f"{way}<{stored}, {computed}>" for way in ("narrow", "wide") for stored, computed in PAIRS]
    return [*pairs, "total<float>", "total<double>", "copied<float, 4>", "copied<__half, 8>"]


def run(name: str, *args: object, threads: int = 64) -> None:
    shim.Module(code=CODE, options=("-std=c++17", "-default-device"), name_expressions=names()).get_function(name)(
        (4,), (threads,), args
    )


@pytest.mark.parametrize(("stored", "computed"), PAIRS)
@given(values=st.lists(st.floats(width=64), min_size=1, max_size=200))
def test_rounding_to_nearest_even(stored: str, computed: str, values: list[float]) -> None:
    edges = [0.0, -0.0, 65504.0, 65519.99, 65520.0, 2.0**-24, 2.0**-25, 3 * 2.0**-25, 2.0**-133, 2.0**-134, 3.3895e38]
    with np.errstate(over="ignore"):
        x = np.array([*values, *edges]).astype(COMPUTED[computed])
        expected = x.astype(STORED[stored])
        if STORED[stored] == dtypes.bfloat16 and computed == "double":  # ml_dtypes rounds twice
            x = x.astype(np.float32).astype(np.float64)
            expected = x.astype(STORED[stored])
    y = np.empty(len(x), STORED[stored])
    run(f"narrow<{stored}, {computed}>", x[:256].copy(), y[:256], np.int32(min(len(x), 256)))
    np.testing.assert_array_equal(y[:256].astype(float), expected[:256].astype(float))
    back = np.empty(len(y), COMPUTED[computed])
    run(f"wide<{stored}, {computed}>", y[:256], back[:256], np.int32(min(len(x), 256)))
    np.testing.assert_array_equal(back[:256], expected[:256].astype(COMPUTED[computed]))


@pytest.mark.parametrize("threads", [32, 64, 256, 1024])
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_every_thread_has_the_sum_of_the_block(dtype: str, threads: int) -> None:
    x = np.random.default_rng(threads).standard_normal(threads).astype(COMPUTED[dtype])
    results = []
    for seed in range(3):
        shim.State.seed = seed
        y = np.empty_like(x)
        run(f"total<{dtype}>", x, y, threads=threads)
        results.append(y)
    np.testing.assert_allclose(results[0], x.astype(np.float64).sum(), rtol=1e-5, atol=1e-5)
    assert all((y == results[0][0]).all() for y in results)


def test_packs_copy_whole_accesses() -> None:
    x = np.arange(64 * 8, dtype=np.float16)
    y = np.empty_like(x)
    run("copied<__half, 8>", x, y)
    np.testing.assert_array_equal(x, y)


def test_a_write_outside_of_an_array_is_an_error() -> None:
    x = np.arange(64 * 4, dtype=np.float32)
    with pytest.raises(shim.KernelError, match="writes outside"):
        run("copied<float, 4>", x, np.empty(255, np.float32))


def test_an_argument_of_the_wrong_size_is_an_error() -> None:
    with pytest.raises(shim.KernelError, match=r"8 bytes .* parameter of 4 bytes"):
        run("narrow<float, float>", np.zeros(3, np.float32), np.zeros(3, np.float32), 3)
