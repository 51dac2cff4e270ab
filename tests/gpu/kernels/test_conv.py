"""conv.cu and conv.py: columns and back, all three products, in parts, by groups, every type."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cudnn_double
import instances
import numpy as np
import pytest
import shim

import minorm as mn
from minorm.devices import dtypes
from minorm.kernels import axis_sums, reference, switches
from minorm.kernels.gpu.plans import sums_plan, window_struct

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")
INT = dtypes.int32
CASES = [  # x, w, stride, padding, dilation, groups
    ((2, 3, 9), (4, 3, 3), (2,), ((1, 2),), (2,), 1),
    ((3, 2, 6, 6), (4, 2, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((2, 4, 9, 9), (6, 2, 3, 3), (1, 3), ((0, 3), (2, 0)), (2, 1), 2),
    ((2, 4, 5, 7), (4, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 4),  # depthwise
    ((2, 4, 4, 4), (5, 4, 1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 2, 5, 4, 3), (3, 2, 2, 3, 3), (1, 2, 1), ((1, 0), (1, 1), (0, 2)), (1, 1, 2), 1),
    ((2, 2, 3, 3), (2, 2, 1, 1), (1, 1), ((2, 1), (3, 3)), (1, 1), 1),  # more padding than kernel
    ((1, 2, 5, 5), (1, 2, 5, 5), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),  # one result
    ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
]
CUT = ((2, 4, 12, 11), (6, 2, 2, 3), (1, 2), ((0, -3), (0, -1)), (4, 3), 2)  # x is cut off, which cuDNN has not


def needed() -> list[tuple[Any, ...]]:
    keys: list[tuple[Any, ...]] = []
    for dtype in instances.FLOATS:
        compute = dtypes.compute_type(dtype)
        for stored in {dtype, compute}:  # a product with a bias to come is in the type computed in
            widest = 16 // max(dtype.itemsize, stored.itemsize)
            widths = {1, 2, 4, 8} & set(range(widest + 1))
            keys += [("swap", stored, dtype, compute, width, INT) for width in widths]
        keys += [("im2col", dtype, compute, INT), ("col2im", dtype, compute, INT)]
    return keys


def of_sums() -> list[tuple[Any, ...]]:
    """List the sums in the gradient of the bias: rows of all pixels, then columns of channels."""
    keys: list[tuple[Any, ...]] = []
    for (x_shape, w_shape, *how, _), dtype in itertools.product(CASES, instances.FLOATS):
        out = reference.conv.output_shape(x_shape[2:], w_shape[2:], *how)
        stored = dtype
        for i, stage in enumerate(
            stages := axis_sums.stages((x_shape[0], w_shape[0], *out), frozenset(range(8)) - {1})
        ):
            plan = sums_plan.plan(stage, stored.itemsize, True)
            result = dtype if i == len(stages) - 1 else dtypes.float64
            keys.append((plan.name, stored, result, plan.width, plan.team, plan.integer))
            stored = dtypes.float64
    return keys


@pytest.fixture
def gpu(cuda: Any) -> Any:
    from minorm.kernels.gpu import conv, conv_columns, sums

    instances.compiled(conv_columns._program, needed())
    instances.compiled(sums._program, of_sums())
    return conv


def arrays(case: Any, dtype: Any) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    x_shape, w_shape, *how, _ = case
    y_shape = (x_shape[0], w_shape[0], *reference.conv.output_shape(x_shape[2:], w_shape[2:], *how))
    shapes = (x_shape, w_shape, w_shape[:1], y_shape, (x_shape[1],))
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def compare(gpu: Any, cuda: Any, case: Any, dtype: Any) -> None:
    x, w, b, dy, c = arrays(case, dtype)
    _, _, *how = case
    there_x, there_w, there_b, there_dy, there_c = map(cuda.array, (x, w, b, dy, c))
    units, small = {2: (2, 2e-3), 4: (20, 2e-6), 8: (20, 1e-14)}[dtype.itemsize]
    if dtype == dtypes.bfloat16:
        small *= 8
    expected = reference.conv.forward(x, w, b, *how)
    instances.close(gpu.forward(there_x, there_w, there_b, *how), expected, units, small)
    expected = reference.conv.forward(x, w, None, *how)
    instances.close(gpu.forward(there_x, there_w, None, *how), expected, units, small)
    for bias, there in ((None, None), (c, there_c)):
        expected = reference.conv.grad_input(dy, w, x.shape, *how, bias)
        instances.close(gpu.grad_input(there_dy, there_w, x.shape, *how, there), expected, units, small)
    dx, dw, db = gpu.backward(there_dy, there_x, there_w, *how, accumulate=there_x)
    instances.close(dx, reference.conv.grad_input(dy, w, x.shape, *how, accumulate=x), units, 2 * small)
    for actual, expected in zip((dw, db), reference.conv.grad_weight(dy, x, w.shape, *how), strict=True):
        instances.close(actual, expected, units, small)
    for actual, expected in zip(
        gpu.grad_weight(there_dy, there_x, w.shape, *how), reference.conv.grad_weight(dy, x, w.shape, *how), strict=True
    ):
        assert actual.shape == expected.shape
        assert actual.dtype == dtype
        instances.close(actual, expected, units, small)


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize("case", [*CASES, CUT])
def test_all_three_products(case: Any, dtype: Any, gpu: Any, cuda: Any) -> None:
    compare(gpu, cuda, case, dtype)
    assert cuda.transfers.to_host == 0


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
def test_a_batch_in_parts(dtype: Any, gpu: Any, cuda: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(gpu.columns, "LIMIT", 2 * 2 * 9 * 36 * dtype.itemsize)  # two images
    compare(gpu, cuda, CASES[1], dtype)


def test_channels_last_and_unaligned_arrays(gpu: Any, cuda: Any) -> None:
    x, w, _, dy, _ = arrays(CASES[1], np.dtype(np.float32))
    _, _, *how = CASES[1]
    last = cuda.array(np.ascontiguousarray(x.transpose(0, 2, 3, 1))).transpose(0, 3, 1, 2)
    there = cuda.array(np.concatenate([np.ones(1, np.float32), w.reshape(-1)]))[1:].reshape(w.shape)
    instances.close(gpu.forward(last, there, None, *how), reference.conv.forward(x, w, None, *how), 20, 2e-6)
    spread = cuda.broadcast_to(cuda.array(dy)[:1], dy.shape)
    expected = reference.conv.grad_input(np.broadcast_to(dy[:1], dy.shape), w, x.shape, *how)
    instances.close(gpu.grad_input(spread, there, x.shape, *how), expected, 20, 2e-6)


def test_shapes_that_do_not_belong_together(gpu: Any, cuda: Any) -> None:
    x, w, b, dy, c = map(cuda.array, arrays(CASES[1], np.dtype(np.float32)))
    how = CASES[1][2:]
    with pytest.raises(ValueError, match=r"conv.grad_weight: dy.shape is \(3, 4, 6, 5\); expected \(3, 4, 6, 6\)"):
        gpu.grad_weight(dy[..., :5], x, w.shape, *how)
    with pytest.raises(ValueError, match=r"conv.grad_input: dy.shape is \(3, 4, 6, 5\); expected \(3, 4, 6, 6\)"):
        gpu.grad_input(dy[..., :5], w, x.shape, *how)
    with pytest.raises(ValueError, match=r"conv.forward: w.shape is .*, x.shape is \(3, 1, 6, 6\), groups=1"):
        gpu.forward(x[:, :1], w, b, *how)
    with pytest.raises(ValueError, match=r"conv.forward: b.shape is \(2,\); expected \(4,\)"):
        gpu.forward(x, w, c, *how)
    with pytest.raises(ValueError, match=r"conv.grad_input: b.shape is \(4,\); expected \(2,\)"):
        gpu.grad_input(dy, w, x.shape, *how, b)


def test_nothing_to_compute(gpu: Any, cuda: Any) -> None:
    how = ((1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    x, w = cuda.zeros((0, 2, 4, 4), np.float32), cuda.zeros((3, 2, 3, 3), np.float32)
    y = gpu.forward(x, w, None, *how)
    assert y.shape == (0, 3, 2, 2)
    assert gpu.grad_input(y, w, x.shape, *how).shape == x.shape
    dw, db = gpu.grad_weight(y, x, w.shape, *how)
    assert (dw.shape, db.shape) == (w.shape, (3,))


@pytest.mark.parametrize("dtype", [*instances.FLOATS], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_cudnn_where_it_is_there(case: Any, dtype: Any, cudnn: Any, gpu: Any, cuda: Any) -> None:
    compare(gpu, cuda, case, dtype)
    bias = "+bias" if dtype.itemsize == 2 else ""  # float32 stays in rows, for which cuDNN's better kernels have none
    ways = ["fprop" + bias, "fprop", "dgrad", "dgrad", "wgrad", "dgrad", "wgrad"]
    assert cudnn.executed == ([] if dtype == dtypes.float64 else ways)


def forget(gpu: Any) -> None:
    """Clear the backend's caches about another cuDNN."""
    gpu.conv_cudnn._call.cache_clear()
    gpu.conv_cudnn._handles.of_device.clear()


@pytest.fixture
def cudnn(gpu: Any, monkeypatch: Any) -> Any:
    monkeypatch.setattr(gpu.conv_cudnn, "cudnn", cudnn_double)
    for noted in (cudnn_double.executed, cudnn_double.layouts, cudnn_double.notes, cudnn_double.tried):
        noted.clear()
    forget(gpu)
    yield cudnn_double
    forget(gpu)


def test_cudnn_keeps_channels_last(cudnn: Any, gpu: Any, cuda: Any) -> None:
    x, w, _, dy, _ = arrays(CASES[1], np.dtype(np.float16))
    _, _, *how = CASES[1]
    last = cuda.array(np.ascontiguousarray(x.transpose(0, 2, 3, 1))).transpose(0, 3, 1, 2)
    dy_last = cuda.array(np.ascontiguousarray(dy.transpose(0, 2, 3, 1))).transpose(0, 3, 1, 2)
    y = gpu.forward(last, cuda.array(w), None, *how)
    dx, dw, _ = gpu.backward(dy_last, last, cuda.array(w), *how)
    for found, expected in (
        (y, reference.conv.forward(x, w, None, *how)),
        (dx, reference.conv.grad_input(dy, w, x.shape, *how)),
        (dw, reference.conv.grad_weight(dy, x, w.shape, *how)[0]),
    ):
        instances.close(found, expected, 2, 2e-3)
    assert cudnn.layouts == [(True, False)] * 3  # the weights stay as they are
    assert y.transpose(0, 2, 3, 1).flags.c_contiguous  # as x was
    assert dx.transpose(0, 2, 3, 1).flags.c_contiguous
    assert dw.flags.c_contiguous


def test_cudnn_can_be_switched_off(cudnn: Any, gpu: Any, cuda: Any) -> None:
    switch = mn.backends.cudnn
    x, w = cuda.ones((2, 2, 4, 4), np.float32), cuda.ones((2, 2, 3, 3), np.float32)
    how = (1, 1), ((0, 0), (0, 0)), (1, 1), 1
    try:
        switch.enabled = False
        y = gpu.forward(x, w, None, *how)
        assert cudnn.executed == []
    finally:
        switch.enabled = True
    np.testing.assert_array_equal(gpu.forward(x, w, None, *how).memory, y.memory)
    assert cudnn.executed == ["fprop"]


def test_the_fastest_of_some_plans_is_kept(cudnn: Any, gpu: Any, cuda: Any, monkeypatch: Any) -> None:
    x, w, b, dy, _ = arrays(CASES[1], np.dtype(np.float16))
    _, _, *how = CASES[1]
    there = [cuda.array(a) for a in (x, w, b, dy)]
    expected = gpu.forward(*there[:3], *how), gpu.backward(there[3], *there[:2], *how)[1]
    assert cudnn.tried == []
    monkeypatch.setattr(switches, "cudnn_benchmark", True)
    found = gpu.forward(*there[:3], *how), gpu.backward(there[3], *there[:2], *how, (False, True, False))[1]
    assert cudnn.tried == [1, 1, 1, 1, 2, 2, 2, 2, 2] * 2  # 0 is left out, 2 takes less time than 1 and is run then
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.memory, other.memory)
    cudnn.tried.clear()
    gpu.forward(*there[:3], *how)
    assert cudnn.tried == [2]
    monkeypatch.setattr(cudnn.Plans, "refused", {0, 1, 2})
    forget(gpu)
    gpu.forward(*there[:3], *how)
    assert cudnn.tried == [2]  # cuDNN's own choice


def test_each_thread_has_a_handle_of_its_own(cudnn: Any, gpu: Any, monkeypatch: Any) -> None:
    """CuDNN's handle knows one stream: a thread would send its work to that of another."""
    made: list[str] = []
    monkeypatch.setattr(cudnn, "create_handle", lambda: made.append("handle") or f"handle {len(made)}")
    monkeypatch.setattr(cudnn, "set_stream", lambda **_: None)
    handle = gpu.conv_cudnn._handle
    with ThreadPoolExecutor(1) as pool:
        found = {handle(0), handle(0), handle(1), pool.submit(handle, 0).result()}
    assert found == {"handle 1", "handle 2", "handle 3"}


def test_tf32_is_for_those_who_ask(cudnn: Any, gpu: Any, cuda: Any, monkeypatch: Any) -> None:
    x, w = cuda.ones((2, 2, 4, 4), np.float32), cuda.ones((2, 2, 3, 3), np.float32)
    how = (1, 1), ((0, 0), (0, 0)), (1, 1), 1
    note, blas = cudnn.numerical_note, cuda.cuda.cublas
    monkeypatch.setenv("CUPY_TF32", "1")  # CuPy's variable is for CuPy's own products
    blas.used.clear()
    try:
        for allowed in (False, True):
            mn.backends.cudnn.allow_tf32 = allowed
            mn.backends.cudnn.enabled = True
            gpu.forward(x, w, None, *how)
            mn.backends.cudnn.enabled = False
            gpu.forward(x, w, None, *how)
    finally:
        mn.backends.cudnn.allow_tf32, mn.backends.cudnn.enabled = False, True
    assert [note.TENSOR_CORE in deselected for deselected in cudnn.notes] == [True, False]
    assert blas.used == [blas.CUBLAS_COMPUTE_32F, blas.CUBLAS_COMPUTE_32F_FAST_TF32]


@pytest.mark.parametrize("dtype", [np.float16, dtypes.bfloat16], ids=str)
def test_sixteen_bits_go_into_products_as_they_are(dtype: Any, gpu: Any, cuda: Any) -> None:
    """Products come out in float32 if a bias follows: adding it costs no extra rounding."""
    x, w, b, dy, _ = arrays(CASES[1], np.dtype(dtype))
    _, _, *how = CASES[1]
    there = [cuda.array(a) for a in (x, w, b, dy)]
    cuda.transfers.clear()
    y = gpu.forward(*there[:3], *how)
    gpu.backward(there[3], *there[:2], *how)
    assert cuda.transfers.launches["gemm"] == 3
    assert cuda.transfers.launches["copy"] == 0  # no separate launch widens an array
    wide = reference.conv.forward(*(a.astype(np.float64) for a in (x, w, b)), *how)
    instances.close(y, wide.astype(dtype), 1, 0)


def test_both_gradients_turn_dy_round_once(gpu: Any, cuda: Any) -> None:
    x, w, _, dy, _ = (cuda.array(a) for a in arrays(CASES[1], np.dtype(np.float32)))
    _, _, *how = CASES[1]
    counts = []
    for run in (
        lambda: gpu.backward(dy, x, w, *how),
        lambda: (gpu.grad_input(dy, w, x.shape, *how), gpu.grad_weight(dy, x, w.shape, *how)),
    ):
        before = shim.State.launches
        run()
        counts.append(shim.State.launches - before)
    assert counts[0] == counts[1] - 1


def test_columns_where_cudnn_has_no_plan(cudnn: Any, gpu: Any, cuda: Any) -> None:
    x, w = cuda.ones((13, 1, 3, 3), np.float32), cuda.ones((1, 1, 3, 3), np.float32)
    y = gpu.forward(x, w, None, (1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    assert y.memory.ravel().tolist() == [9] * 13
    assert cudnn.executed == []


def test_the_struct_is_as_wide_as_the_kernel_reads_it() -> None:
    assert window_struct.STRUCT.itemsize == (3 * 7 + 3) * 4


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("r >= 0 && r < w.axis[2].n", "r >= 0 && r <= w.axis[2].n"),
        ("row - i * inner", "row - i * outer"),
    ],
)
def test_a_broken_kernel_is_found(right: str, wrong: str, gpu: Any, cuda: Any, monkeypatch: Any) -> None:
    program, case = gpu.columns._program, CASES[0]
    text = instances.source(program.name)
    assert right in text
    keys = [key for key in needed() if key[1] == dtypes.float32]
    names = [instances.expression(*key) for key in keys]
    module = shim.Module(
        code=text.replace(right, wrong), options=("-std=c++17", "-default-device"), name_expressions=names
    )
    for key, name in zip(keys, names, strict=True):
        monkeypatch.setitem(program._kernels, key, module.get_function(name))
    with pytest.raises((AssertionError, shim.KernelError)):
        compare(gpu, cuda, case, np.dtype(np.float32))
