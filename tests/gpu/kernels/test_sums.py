"""sums.cu and sums.py: every type, shapes that end in the middle of an access, a warp or a block, and few long sums."""

from __future__ import annotations

import itertools
from typing import Any

import instances
import numpy as np
import pytest
import shim

from minorm.devices import dtypes
from minorm.kernels import axis_sums, reference
from minorm.kernels.gpu.plans import sums_plan

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")
DOUBLE = dtypes.float64
CASES = [
    ((1,), (0,)),
    ((7,), (0,)),
    ((20_003,), (0,)),
    ((3, 5), (1,)),
    ((3, 64), (1,)),
    ((70, 33), (0,)),
    ((70, 64), (0,)),
    ((300, 3), (0,)),
    ((2, 9_000), (1,)),
    ((1_000, 2), (0,)),
    ((4, 6, 5, 8), (0, 2, 3)),
    ((4, 6, 5, 8), (1,)),
    ((4, 6, 5, 8), ()),
    ((2, 1, 3), (1,)),
]


def needed() -> list[tuple[Any, ...]]:
    """The kernels that the cases need, from their plans."""
    keys = []
    for dtype, (shape, axes) in itertools.product(instances.FLOATS, CASES):
        stored, stages = dtype, list(axis_sums.stages(shape, frozenset(axes)))
        while stages:
            batches, rows, columns = stages.pop(0)
            plan = sums_plan.plan((batches, rows, columns), stored.itemsize, True)
            if plan.chunks > 1:
                stages.insert(0, (batches, plan.chunks, columns))
            result = DOUBLE if stages else dtype
            keys.append((plan.name, stored, result, plan.width, plan.team, plan.integer))
            stored = DOUBLE
    return keys


@pytest.fixture
def sums(cuda: Any) -> Any:
    from minorm.kernels.gpu import sums

    instances.compiled(sums._program, needed())
    return sums


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize(("shape", "axes"), CASES)
def test_sums_and_means(shape: Any, axes: Any, dtype: Any, sums: Any, cuda: Any) -> None:
    x = (np.random.default_rng(1).standard_normal(shape) + 3).astype(dtype)
    for name in ("sum_axes", "mean_axes"):
        for keepdims in (False, True):
            y = getattr(sums, name)(cuda.array(x), axes, keepdims)
            with np.errstate(over="ignore"):
                expected = getattr(reference.sums, name)(x, axes, keepdims)
            assert y.dtype == dtype
            assert y.shape == expected.shape
            instances.close(y, expected, 32 if dtype == DOUBLE else 1)
    assert cuda.transfers.to_host == 0


def test_two_orders_of_threads_give_the_same_bits(sums: Any, cuda: Any) -> None:
    x = np.random.default_rng(2).standard_normal((150, 70)).astype(np.float32)
    results = []
    for shim.State.seed in range(2):
        results.append([sums.sum_axes(cuda.array(x), axes).memory.tobytes() for axes in ((0,), (1,), (0, 1))])
    shim.State.seed = 0
    assert results[0] == results[1]


def test_an_unaligned_view_a_permuted_array_and_a_broadcast_one(sums: Any, cuda: Any) -> None:
    x = np.random.default_rng(3).standard_normal((5, 6, 7)).astype(np.float32)
    on_device = cuda.array(x)
    instances.close(sums.sum_axes(on_device[1:], (0, 2)), x[1:].sum((0, 2)), 8, 1e-6)
    instances.close(sums.sum_axes(on_device.transpose(2, 0, 1), (0,)), x.sum(2), 8, 1e-6)
    spread = cuda.broadcast_to(on_device[:, :1], x.shape)
    instances.close(sums.sum_axes(spread, (1,)), x[:, 0] * 6, 8, 1e-6)
    instances.close(sums.sum_to(on_device, (6, 1)), x.sum((0, 2)).reshape(6, 1), 8, 1e-6)


def test_nothing_to_add(sums: Any, cuda: Any) -> None:
    assert sums.sum_axes(cuda.zeros((0, 3), np.float32), (0,)).memory.tolist() == [0, 0, 0]
    assert sums.sum_axes(cuda.zeros((3, 0), np.float32), (0,)).shape == (0,)
    assert sums.sum_axes(cuda.ones((3, 2), np.int32), (0,)).memory.tolist() == [3, 3]


def test_the_chunks_cover_every_row_once() -> None:
    for stage in [(1, 1, 1), (1, 10**9, 1), (3, 4097, 1), (1, 10**7, 3), (7, 100, 50), (1, 63, 2**20), (5000, 9, 1)]:
        plan = sums_plan.plan(stage, 4, True)
        chunk = plan.sizes[2] if plan.name == "sum_rows" else plan.sizes[3]
        assert (plan.chunks - 1) * chunk < stage[1] <= plan.chunks * chunk
        assert plan.chunks <= 65535


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("        __syncthreads();\n        if (walker < half)", "        if (walker < half)"),
        ("end = min(first + chunk, rows)", "end = first + chunk"),
    ],
)
def test_a_broken_kernel_is_found(right: str, wrong: str, sums: Any, cuda: Any, monkeypatch: Any) -> None:
    text = instances.source(sums._program.name)
    assert right in text
    key = ("sum_columns", dtypes.float32, dtypes.float32, 1, 32, dtypes.int32)
    name = instances.expression(*key)
    module = shim.Module(
        code=text.replace(right, wrong), options=("-std=c++17", "-default-device"), name_expressions=[name]
    )
    monkeypatch.setitem(sums._program._kernels, key, module.get_function(name))
    x = np.random.default_rng(4).standard_normal((41, 33)).astype(np.float32)
    with pytest.raises((AssertionError, shim.KernelError)):
        instances.close(sums.sum_axes(cuda.array(x), (0,)), x.astype(np.float64).sum(0), 1, 1e-6)
