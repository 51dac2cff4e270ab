"""softmax.cu and softmax.py: rows of a warp, of a block, too long for registers; columns; the cross entropy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import instances
import numpy as np
import pytest
import shim

import minorm as mn
import minorm.functional as F
from minorm.devices import dtypes
from minorm.kernels.gpu import launch
from minorm.kernels.gpu.plans import softmax_plan
from minorm.kernels.reference import softmax as reference

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")
FUNCTIONS = {"softmax": 1, "log_softmax": 1, "softmax_grad": 2, "log_softmax_grad": 2}
SHAPES = [((1, 1), -1), ((5, 3), -1), ((3, 100), -1), ((9, 64), 1), ((2, 1030), 1), ((3, 5, 4), 1), ((130, 3), 0)]
LONG = (1, 2100)  # with few registers allowed, this is read again and again
CLASSES = [(1, 1), (7, 10), (3, 64), (2, 1030), LONG]


def needed() -> list[tuple[Any, ...]]:
    keys: list[tuple[Any, ...]] = []
    for dtype in instances.FLOATS:
        compute = dtypes.compute_type(dtype)
        for name, inputs in FUNCTIONS.items():
            for shape, axis in SHAPES:
                if axis in (-1, len(shape) - 1):
                    plan = softmax_plan.rows(shape[0], shape[1], dtype, True, inputs)
                    rest = (plan.width, plan.packs, plan.lanes, plan.integer)
                    keys.append(("rows", f"op::{name}", dtype, dtype, compute, *rest))
            keys.append(("columns", f"op::{name}", dtype, dtype, compute, dtypes.int32))
            width = launch.width(dtype.itemsize, LONG[1])
            keys.append(("rows", f"op::{name}", dtype, dtype, compute, width, 0, 0, dtypes.int32))
        for shape in CLASSES:
            plan = softmax_plan.rows(*shape, dtype, True, 1, once=True)
            rest = (plan.width, plan.packs, plan.lanes, plan.integer)
            keys += [("cross_entropy", dtype, compute, *rest, smooth) for smooth in (False, True)]
            plan = softmax_plan.pieces(*shape, dtype, True)
            rest = (plan.width, plan.packs, plan.lanes, plan.integer)
            keys += [("cross_entropy_grad", dtype, kind, compute, *rest) for kind in {dtype, compute}]
        keys += [("sum_losses", dtype, compute), ("sum_parts", dtype)]
    return keys


@pytest.fixture
def gpu(cuda: Any) -> Any:
    from minorm.kernels.gpu import softmax

    instances.compiled(softmax._program, needed())
    return softmax


def random(shape: Any, dtype: Any, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(dtype)


def compare(gpu: Any, cuda: Any, shape: Any, axis: int, dtype: Any) -> None:
    units = 1 if dtype in dtypes.HALVES else 40
    small = 3e-6 if dtype != dtypes.float64 else 1e-14
    x, dy = random(shape, dtype), random(shape, dtype, 1)
    for name in ("softmax", "log_softmax"):
        y = getattr(reference, name)(x, axis)
        instances.close(getattr(gpu, name)(cuda.array(x), axis), y, units, small)
        dx = getattr(reference, f"{name}_grad")(dy, y, axis)
        instances.close(getattr(gpu, f"{name}_grad")(cuda.array(dy), cuda.array(y), axis), dx, units, small * 10)


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_softmax(shape: Any, axis: int, dtype: Any, gpu: Any, cuda: Any) -> None:
    compare(gpu, cuda, shape, axis, dtype)
    assert cuda.transfers.to_host == 0


@pytest.fixture
def few_registers(gpu: Any, monkeypatch: Any) -> Iterator[None]:
    plans = softmax_plan.rows, softmax_plan.pieces
    for plan in plans:
        plan.cache_clear()
    monkeypatch.setattr(softmax_plan, "REGISTERS", 0)
    yield
    for plan in plans:
        plan.cache_clear()


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
def test_rows_too_long_for_registers(dtype: Any, few_registers: None, gpu: Any, cuda: Any) -> None:
    assert softmax_plan.rows(*LONG, dtype, True, 1).packs == 0
    compare(gpu, cuda, LONG, -1, dtype)
    assert softmax_plan.pieces(*LONG, dtype, True).grid[1] > 2
    for smoothing in (0.0, 0.1):
        compare_cross_entropy(gpu, cuda, LONG, dtype, smoothing)


def test_more_pieces_than_a_grid_has(few_registers: None, gpu: Any, cuda: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(softmax_plan, "MOST_PIECES", 2)  # so that a block takes every other piece
    compare_cross_entropy(gpu, cuda, LONG, dtypes.float32, 0.1)


def test_a_plan_holds_every_row() -> None:
    for dtype, inputs, once in itertools.product(instances.FLOATS, (1, 2), (False, True)):
        for n in (1, 2, 7, 10, 31, 512, 513, 1000, 16384, 50_257, 10**6):
            plan = softmax_plan.rows(10, n, dtype, True, inputs, once)
            team = plan.lanes or plan.block[0]
            assert plan.grid[0] * (plan.block[0] // team) >= 10
            if plan.packs:  # and all threads have all packs but the last one
                assert (plan.packs - 1) * plan.width * team < n <= plan.packs * plan.width * team
            assert plan.packs * plan.width * dtype.itemsize * inputs <= softmax_plan.REGISTERS
            pieces = softmax_plan.pieces(10, n, dtype, True)
            team = pieces.lanes or pieces.block[0]
            assert pieces.grid[1] * pieces.packs * pieces.width * team >= n


def test_ten_classes_take_one_thread_and_a_thousand_some_lanes() -> None:
    lanes = [softmax_plan.rows(100, n, dtypes.bfloat16, True, 1, once=True).lanes for n in (10, 1024, 2048, 4096)]
    assert lanes == [1, 16, 32, 0]


def test_infinities_and_large_numbers(gpu: Any, cuda: Any) -> None:
    x = np.array([[1e30, 0, -1e30], [np.inf, 0, 1], [-np.inf, 0, 1], [-np.inf] * 3, [np.nan, 1, 2]], np.float32)
    with np.errstate(all="ignore"):
        for name in ("softmax", "log_softmax"):
            instances.close(getattr(gpu, name)(cuda.array(x)), getattr(reference, name)(x), 2)
        target = np.array([2, 1, 0, 0, 1])
        loss, lse = gpu.cross_entropy(cuda.array(x), cuda.array(target))
        expected = reference.cross_entropy(x, target)
        instances.close(loss, expected[0], 2)
        np.testing.assert_allclose(lse.memory, expected[1])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize("shape", CLASSES)
def test_cross_entropy(shape: Any, dtype: Any, smoothing: float, gpu: Any, cuda: Any) -> None:
    compare_cross_entropy(gpu, cuda, shape, dtype, smoothing)


def compare_cross_entropy(gpu: Any, cuda: Any, shape: Any, dtype: Any, smoothing: float) -> None:
    x, dy = random(shape, dtype), random(shape[0], dtype, 1)
    target = np.random.default_rng(2).integers(0, shape[1], shape[0])
    target[: shape[0] // 2] = -100
    units, small = (1, 1e-3) if dtype in dtypes.HALVES else (40, 1e-5 if dtype == dtypes.float32 else 1e-13)
    options = {"label_smoothing": smoothing}
    loss, lse = gpu.cross_entropy(cuda.array(x), cuda.array(target), **options)
    expected, expected_lse = reference.cross_entropy(x, target, **options)
    instances.close(loss, expected, units, small * 1e-2)
    np.testing.assert_allclose(lse.memory, expected_lse, rtol=1e-6 if dtype != dtypes.float64 else 1e-15)
    dx = gpu.cross_entropy_grad(cuda.array(dy), cuda.array(x), cuda.array(target), lse, **options)
    expected = reference.cross_entropy_grad(dy, x, target, expected_lse, **options)
    instances.close(dx, expected, units, small * 1e-2)
    assert cuda.transfers.to_host == 0


def test_a_target_that_is_no_class_is_nan(gpu: Any, cuda: Any) -> None:
    x = random((4, 10), np.float32)
    loss, _ = gpu.cross_entropy(cuda.array(x), cuda.array(np.array([0, 10, -1, 9])))
    assert np.isnan(loss.memory).tolist() == [False, True, True, False]


def test_a_label_that_is_no_class_makes_the_loss_nan(cuda: Any) -> None:
    """On the CPU it is a ValueError; to raise one here the host would have to wait."""
    x = mn.randn(4, 3, device="cuda", requires_grad=True)
    weight = mn.ones(3, device="cuda")
    labels = {bad: mn.tensor([0, 2, bad, -100], device="cuda") for bad in (3, -1, 1)}
    cuda.transfers.clear()
    losses = {
        bad: (F.cross_entropy(x, t), F.cross_entropy(x, t, weight), F.nll_loss(x, t), F.nll_loss(x, t, weight))
        for bad, t in labels.items()
    }
    for several in losses.values():
        for loss in several:
            loss.backward()
    assert cuda.transfers.to_host == 0
    for bad, several in losses.items():
        assert [np.isnan(loss.item()) for loss in several] == [bad != 1] * 4


def test_nothing_and_integers(gpu: Any, cuda: Any) -> None:
    assert gpu.softmax(cuda.zeros((0, 3), np.float32)).shape == (0, 3)
    loss, lse = gpu.cross_entropy(cuda.zeros((0, 3), np.float32), cuda.zeros(0, np.int64))
    assert loss.shape == lse.shape == (0,)


def test_an_unaligned_view(gpu: Any, cuda: Any) -> None:
    x = random((4, 5, 4), np.float32)
    there = cuda.array(x.reshape(-1)[1:]).reshape(-1)[:76].reshape(19, 4)
    instances.close(gpu.softmax(cuda.array(x)[:, 1:]), reference.softmax(x[:, 1:]), 8)
    instances.close(gpu.softmax(there[1:]), reference.softmax(there.memory[1:]), 8)


def test_any_order_of_threads_gives_the_same_bits(gpu: Any, cuda: Any) -> None:
    x = random((2, 1030), np.float32)
    results = set()
    for shim.State.seed in range(2):
        results.add(gpu.softmax(cuda.array(x)).memory.tobytes())
    shim.State.seed = 0
    assert len(results) == 1


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    __syncthreads();\n    for (int warp = 0", "    for (int warp = 0"),
        ("warp < blockDim.x / 32; warp++", "warp < blockDim.x / 32 - 1; warp++"),
        ("if (top < highest) total *=", "if (top > highest) total *="),
    ],
)
def test_a_broken_kernel_is_found(right: str, wrong: str, gpu: Any, cuda: Any, monkeypatch: Any) -> None:
    text = instances.source(gpu._program.name)
    assert right in text
    plan = softmax_plan.rows(2, 1030, dtypes.float32, True, 1)
    float32 = dtypes.float32
    key = ("rows", "op::log_softmax", float32, float32, float32, plan.width, plan.packs, plan.lanes, plan.integer)
    name = instances.expression(*key)
    module = shim.Module(
        code=text.replace(right, wrong), options=("-std=c++17", "-default-device"), name_expressions=[name]
    )
    monkeypatch.setitem(gpu._program._kernels, key, module.get_function(name))
    x = random((2, 1030), np.float32) * 40
    x[:, 1000] = 500  # of the last warp
    with pytest.raises((AssertionError, shim.KernelError)):
        instances.close(gpu.log_softmax(cuda.array(x)), reference.log_softmax(x), 8)


@pytest.mark.parametrize("dtype", sorted(dtypes.HALVES, key=str), ids=str)
@pytest.mark.parametrize(("shape", "axis"), [((3, 100), -1), ((2, 1030), -1), ((3, 5, 4), 1)])
def test_sixteen_bits_are_read_as_they_are(shape: Any, axis: int, dtype: Any, gpu: Any, cuda: Any) -> None:
    """Under autocast the result is float32, and the gradient has the type of the input."""
    x, dy = random(shape, dtype), random(shape, np.float32, 1)
    for name in ("softmax", "log_softmax"):
        y = getattr(reference, name)(x.astype(np.float64), axis)
        found = getattr(gpu, name)(cuda.array(x), axis, dtype=dtypes.float32)
        assert found.dtype == np.float32
        instances.close(found, y, 40, 3e-6)
        dx = getattr(gpu, f"{name}_grad")(cuda.array(dy), cuda.array(y.astype(np.float32)), axis, dtype=dtype)
        assert dx.dtype == dtype
        instances.close(dx, getattr(reference, f"{name}_grad")(dy.astype(np.float64), y, axis), 1, 1e-5)


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize("rows", [1, 33, 300])
def test_losses_are_added_up(rows: int, dtype: Any, gpu: Any, cuda: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(gpu, "CHUNK", 100)  # so that there are several blocks
    losses = random(rows, dtypes.compute_type(dtype))
    target = np.random.default_rng(2).integers(0, 3, rows)
    for mean in (True, False):
        total, count = gpu.reduce_losses(cuda.array(losses), cuda.array(target), 1, mean, dtype)
        assert (total.dtype, total.shape, count.memory) == (dtype, (), (target != 1).sum())
        exact = losses.astype(np.float64).sum() / ((target != 1).sum() if mean else 1)
        instances.close(total, exact, 0.5 if dtype != dtypes.float64 else 2, 1e-14)
    assert cuda.transfers.to_host == 0
    nothing, count = gpu.reduce_losses(cuda.array(losses * 0), cuda.array(target * 0 + 1), 1, True, dtype)
    assert np.isnan(nothing.memory)
    assert count.memory == 0


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
def test_one_gradient_for_all_rows(dtype: Any, gpu: Any, cuda: Any) -> None:
    """One number, an expanded view of it, and a mean over nothing, which passes nothing on."""
    x, target = random((7, 10), dtype), np.arange(7)
    lse = reference.cross_entropy(x, target)[1]
    for kind in (dtype, dtypes.compute_type(dtype)):
        one = np.array(3, kind)
        expected = reference.cross_entropy_grad(np.full(7, 3 / 7), x.astype(np.float64), target, lse)
        for dy in (cuda.array(one), cuda.broadcast_to(cuda.array(one), (7,))):
            dx = gpu.cross_entropy_grad(dy, cuda.array(x), cuda.array(target), cuda.array(lse), count=cuda.array(7.0))
            assert dx.dtype == dtype
            instances.close(dx, expected, 1 if dtype in dtypes.HALVES else 8, 2e-6 if kind != dtypes.float64 else 1e-15)
            dx = gpu.cross_entropy_grad(dy, cuda.array(x), cuda.array(target), cuda.array(lse), count=cuda.array(0.0))
            assert not dx.memory.astype(np.float64).any()


@pytest.mark.parametrize("inside", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_losses_type_and_gradient_are_those_of_widened_logits(reduction: str, inside: bool, cuda: Any) -> None:
    """bfloat16 logits: no kernel widens them, the loss is float32 inside autocast, and all is as on the CPU."""
    x, labels = random((9, 20), dtypes.bfloat16), np.arange(9) * 2
    labels[3] = -100
    results = []
    for device in ("cpu", "cuda"):
        logits = mn.tensor(x).to(device)
        logits.requires_grad = True
        cuda.transfers.launches.clear()
        with mn.autocast(device, mn.bfloat16, enabled=inside):
            loss = F.cross_entropy(logits, mn.tensor(labels).to(device), reduction=reduction)
        assert loss.dtype == (mn.float32 if inside else mn.bfloat16)
        dy = mn.ones(*loss.shape, dtype=loss.dtype, device=device)
        loss.backward(dy)
        assert logits.grad.dtype == mn.bfloat16
        results.append([t.detach().cpu().float().numpy() for t in (loss, logits.grad)])
    for actual, expected in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(
            actual, expected, rtol=2e-7 if inside and actual is results[1][0] else 2**-8, atol=1e-7
        )


def test_a_loss_and_its_gradient_are_three_launches(cuda: Any) -> None:
    """And a copy of the labels, which the caller may fill again. The gradient becomes the leaf's without a copy."""
    logits = mn.tensor(random((9, 20), dtypes.bfloat16), device="cuda", requires_grad=True)
    labels = mn.tensor(np.arange(9), device="cuda")
    x = logits.array
    for inside in (False, True):
        cuda.transfers.launches.clear()
        shim.State.ran.clear()
        with mn.autocast("cuda", mn.bfloat16, enabled=inside):
            loss = F.cross_entropy(mn.Tensor(x, requires_grad=True), labels)
        loss.backward()
        assert not cuda.transfers.launches
        names = [name.partition("<")[0] for name in shim.State.ran]
        assert names == ["move", "cross_entropy", "sum_losses", "fill", "cross_entropy_grad"]


@pytest.mark.parametrize("last", [False, True])
def test_classes_of_pixels(last: bool, cuda: Any) -> None:
    """Logits (N, C, H, W) are read where they lie if their channels come last, else turned by a kernel of ours."""
    x = random((2, 5, 3, 4), np.float32)
    labels = np.random.default_rng(0).integers(0, 5, (2, 3, 4))
    stored = cuda.array(np.ascontiguousarray(np.moveaxis(x, 1, -1))).transpose(0, 3, 1, 2) if last else cuda.array(x)
    there = mn.Tensor(stored, requires_grad=True)
    target = mn.tensor(labels, device="cuda")
    shim.State.ran.clear()
    cuda.transfers.launches.clear()
    loss = F.cross_entropy(there, target)
    copies = [name for name in shim.State.ran if name.startswith(("move<", "turn<"))]
    assert len(copies) == (1 if last else 2)  # of the labels, which the caller may fill again
    assert not cuda.transfers.launches  # nothing is left to CuPy
    loss.backward()
    here = mn.tensor(x, requires_grad=True)
    expected = F.cross_entropy(here, mn.tensor(labels))
    expected.backward()
    np.testing.assert_allclose(loss.cpu().numpy(), expected.numpy(), rtol=1e-6)
    np.testing.assert_allclose(there.grad.cpu().numpy(), here.grad.numpy(), rtol=1e-5, atol=1e-7)
