"""Equal bits: the same results on every instruction set, for any number of threads, wherever arrays begin.

The order of every sum follows from the shapes, and nothing multiplies and adds at once, so this holds by construction;
here it is tried. That results around the cache have the bits of those in it is tried in test_norm.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels import cpu
from minorm.normalization.equation import Equation
from minorm.normalization.nest import plan

LEVELS = minorm_ext.levels()
TYPES = ["float32", "float16", "bfloat16", "float64"]
KINDS = ["batch", "table", "instance", "group", "group, one scale", "layer", "spatial", "rows"]
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 48, 49, 64, 65, 100, 130, 256, 257, 400]


@pytest.fixture(autouse=True)
def _threads():
    before = minorm_ext.get_num_threads()
    yield
    minorm_ext.set_num_threads(before)


@st.composite
def nests(draw) -> tuple[Any, ...]:
    """Shape, axes, groups, axes of the parameters, order in memory."""
    kind = draw(st.sampled_from(KINDS))
    n, c, h = (draw(st.sampled_from(LENGTHS)) for _ in range(3))
    while n * c * h > 60_000:
        n, c, h = (length // 2 or 1 for length in (n, c, h))
    if kind == "table":
        return (n * h, c), (0,), 1, (1,), (0, 1)
    if kind == "layer":
        return (n, c * h), (1,), 1, (1,), (0, 1)
    if kind == "rows":  # a parameter for each element, and runs that share them
        return (n, c, h), (1, 2), 1, draw(st.sampled_from([(2,), (1, 2), (0, 2), ()])), (0, 1, 2)
    if kind == "spatial":
        return (n, c, h), (0,), 1, (1, 2), (0, 1, 2)
    order = draw(st.sampled_from([(0, 1, 2), (0, 2, 1)]))
    if kind == "batch":
        return (n, c, h), (0, 2), 1, (1,), order
    groups = draw(st.sampled_from([g for g in (1, 2, 3, 4, 8) if c % g == 0]))
    if kind == "instance" or groups == 1:
        return (n, c, h), (2,), 1, (1,), order
    return (n, c, h), (2,), groups, (1,) if kind == "group, one scale" else (1, 2), order


def at_offset(array: np.ndarray, offset: int) -> np.ndarray:
    """Return a copy that begins `offset` elements after a line of memory, in the same order."""
    size = array.itemsize
    memory = np.empty(array.nbytes + 64 + offset * size, np.uint8)
    first = -memory.ctypes.data % 64 + offset * size
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    flat = memory[first : first + array.nbytes].view(array.dtype).reshape([array.shape[axis] for axis in order])
    copy = flat.transpose(np.argsort(order))
    copy[...] = array
    return copy


def results(nest: Any, x: Any, dy: Any, s: Any, b: Any, equation: Equation, dtype: Any) -> list[bytes]:
    norm = cpu.norm
    y, stats = norm.forward(nest, x, s, b, equation, dtype)
    found = [y, stats.block, *norm.moments(nest, x, equation.centered, dtype), norm.apply(nest, x, stats, s, b, dtype)]
    for needs in ((True, True), (True, False), (False, True)):
        found += norm.backward(nest, dy, x, stats, s, equation, needs, dtype)
    found += norm.grad_sums(nest, dy, x, stats, s, dtype)
    found += [norm.grad_input(nest, dy, x, stats, s, None, None, dtype), *norm.grad_params(nest, dy, x, stats, dtype)]
    return [np.ascontiguousarray(array).tobytes() for array in found if array is not None]


@pytest.mark.parametrize("stored", TYPES)
def test_levels_threads_and_addresses_change_no_bit(stored, monkeypatch):
    @settings(max_examples=150)
    @given(
        nests(),
        st.integers(0, 99),
        st.builds(Equation, st.just(1e-5), st.booleans(), st.booleans()),
        st.booleans(),
        st.booleans(),
        st.sampled_from([1, 3, 5]),
        st.booleans(),
    )
    def holds(case, seed, equation, scale, bias, offset, wide):
        shape, axes, groups, param, order = case
        rng = np.random.default_rng(seed)
        dtype = getattr(dtypes, stored)
        memory = rng.standard_normal((2, *(shape[axis] for axis in order)))
        memory *= 2.0 ** rng.integers(-6, 3, memory.shape)  # numbers of very different size
        x, dy = memory.transpose(0, *(1 + np.argsort(order))).astype(dtype)
        x += dtype.type(3)
        nest = plan(shape, axes, groups, param, tuple(step // x.itemsize for step in x.strides))
        computed = dtypes.float64 if wide else dtypes.compute_type(dtype)
        s, b = rng.standard_normal((2, nest.param_size)).astype(computed)
        s, b = (s if scale else None), (b if bias else None)
        first = None
        for level in LEVELS:
            monkeypatch.setattr(cpu.norm, "_kernels", minorm_ext.kernels("norm", level))
            for threads, start in ((1, 0), (2, offset), (3, 0)):
                minorm_ext.set_num_threads(threads)
                arrays = at_offset(x, start), at_offset(dy, start)
                found = results(nest, *arrays, s, b, equation, computed)
                first = first or found
                assert found == first, f"{level}, {threads} threads, {start} elements after a line"

    holds()


LARGE = [  # shape, axes, groups, param, order: results around the cache, each way; and parts that all threads share
    ((30_000, 64), (1,), 1, (1,), (0, 1)),
    ((30_000, 100), (1,), 1, (1,), (0, 1)),
    ((9000, 301), (1,), 1, (1,), (0, 1)),
    ((700, 4097), (1,), 1, (1,), (0, 1)),
    ((600, 70, 49), (2,), 1, (1,), (0, 1, 2)),
    ((60, 70, 49 * 16), (0, 2), 1, (1,), (0, 1, 2)),
    ((60, 70, 49 * 16), (0, 2), 1, (1,), (0, 2, 1)),
    ((60, 72, 49 * 16), (2,), 8, (1, 2), (0, 1, 2)),
    ((60, 72, 49 * 16), (2,), 8, (1, 2), (0, 2, 1)),
    ((2, 3, 500_001), (0, 2), 1, (1,), (0, 1, 2)),
    ((20_000, 130), (0,), 1, (1,), (0, 1)),
    ((40, 130, 500), (1,), 1, (1,), (0, 1, 2)),
]


@pytest.mark.parametrize("stored", TYPES)
@pytest.mark.parametrize(("shape", "axes", "groups", "param", "order"), LARGE, ids=str)
def test_levels_and_threads_change_no_bit_of_large_arrays(shape, axes, groups, param, order, stored, monkeypatch):
    rng = np.random.default_rng(0)
    dtype = getattr(dtypes, stored)
    memory = rng.standard_normal((2, *(shape[axis] for axis in order)), np.float32)
    x, dy = (memory * 2 + 3).transpose(0, *(1 + np.argsort(order))).astype(dtype)
    nest = plan(shape, axes, groups, param, tuple(step // x.itemsize for step in x.strides))
    s, b = rng.standard_normal((2, nest.param_size)).astype(dtypes.compute_type(dtype))
    first = None
    for level in LEVELS:
        monkeypatch.setattr(cpu.norm, "_kernels", minorm_ext.kernels("norm", level))
        for threads in (1, 2, 3):
            minorm_ext.set_num_threads(threads)
            y, stats = cpu.norm.forward(nest, x, s, b, Equation())
            found = [a.tobytes() for a in (y, stats.block, *cpu.norm.backward(nest, dy, x, stats, s, Equation()))]
            first = first or found
            assert found == first, f"{level}, {threads} threads"
