"""Statistics over ranks: as with the whole batch, however it is cut; against BatchNorm, the formulae and PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm.functional as F
from minorm.distributed import simulate
from minorm.normalization.sync_normalize import merge
from minorm.tensor.tensor import Tensor
from minorm.testing import numerical_gradient
from tests.distributed.engines import on_processes

CUTS = {  # how many images each rank has
    "even": (4, 4),
    "uneven": (1, 7, 2),
    "empty first": (0, 3, 5),
    "empty last": (6, 0),
    "empty in the middle": (2, 0, 0, 4),
    "one image a rank": (1, 1, 1, 1, 1),
    "one rank has all": (0, 0, 9, 0),
}
TYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
TOLERANCE = {"float64": 1e-12, "float32": 3e-6, "float16": 4e-3, "bfloat16": 3e-2}


def parts(x: Any, counts: Sequence[int]) -> list[Any]:
    return np.split(x, np.cumsum(counts)[:-1])


def channels_last(x: Any) -> Any:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if x.ndim > 2 else x


def across(
    xs: list[Any],
    dys: list[Any],
    s: Any,
    b: Any,
    last: bool = False,
    processes: int = 1,
    **options: Any,
) -> dict[str, Any]:
    """y, dx, ds and db of all ranks together, and the running statistics, which must be alike on all."""

    def program(group: Any) -> Any:
        x, dy = xs[group.rank], dys[group.rank]
        if last and group.rank % 2 == 0:  # the other ranks have theirs in another order
            x = np.moveaxis(channels_last(x), -1, 1)
        inputs = [Tensor(a.copy(order="K"), True) for a in (x, s, b)]
        mean, var, seen = Tensor(np.zeros_like(s)), Tensor(np.ones_like(s)), Tensor(np.zeros((), np.int64))
        y = F.batch_norm(
            inputs[0], mean, var, *inputs[1:], True, num_batches_tracked=seen, process_group=group, **options
        )
        assert y.array.strides == inputs[0].array.strides
        y.backward(Tensor(dy))
        return y.array, *[t.grad.array for t in inputs], mean.array, var.array, seen.array

    found = on_processes(processes, len(xs), program)
    for rank in found[1:]:
        for mine, theirs in zip(rank[4:], found[0][4:], strict=True):
            assert mine.tobytes() == theirs.tobytes()
    joined = {name: np.concatenate([rank[i] for rank in found]) for i, name in enumerate(("y", "dx"))}
    summed = {name: sum(rank[i].astype(np.float64) for rank in found) for i, name in ((2, "ds"), (3, "db"))}
    return {**joined, **summed, "mean": found[0][4], "var": found[0][5], "batches": found[0][6]}


def formulae(x: Any, dy: Any, s: Any, b: Any, eps: float = 1e-5, unbiased: bool = False) -> dict[str, Any]:
    """Compute the same for the whole batch, in float64 with NumPy alone."""
    x, dy, s, b = (np.asarray(a, np.float64) for a in (x, dy, s, b))
    axes = (0, *range(2, x.ndim))
    shape = (1, -1, *[1] * (x.ndim - 2))
    mean, var, m = x.mean(axes), x.var(axes), x.size // x.shape[1]
    rstd = (1 / np.sqrt(var + eps)).reshape(shape)
    xhat = (x - mean.reshape(shape)) * rstd
    g = dy * s.reshape(shape)
    dx = rstd * (g - g.mean(axes, keepdims=True) - xhat * (g * xhat).mean(axes, keepdims=True))
    return {
        "y": xhat * s.reshape(shape) + b.reshape(shape),
        "dx": dx,
        "ds": (dy * xhat).sum(axes),
        "db": dy.sum(axes),
        "mean": 0.1 * mean,
        "var": 0.9 + 0.1 * var * (m / (m - 1) if unbiased else 1),
        "batches": 1,
    }


def data(counts: Sequence[int], rest: tuple[int, ...], dtype: Any, offset: float = 1.0, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    shape = (sum(counts), *rest)
    x, dy = rng.standard_normal(shape) * 2 + offset, rng.standard_normal(shape)
    s, b = rng.standard_normal((2, rest[0]))
    return [a.astype(dtype) for a in (x, dy, s, b)]


def close(found: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
    for name, value in expected.items():
        scale = max(1.0, float(np.abs(value).max()))
        error = float(np.abs(np.asarray(found[name], np.float64) - value).max()) / scale
        assert error <= tolerance, (name, error)


@pytest.mark.parametrize("last", [False, True], ids=["row-major", "channels last"])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("cut", CUTS)
def test_as_with_the_whole_batch(cut: str, kind: str, last: bool) -> None:
    counts = CUTS[cut]
    x, dy, s, b = data(counts, (3, 4, 5), TYPES[kind])
    found = across(parts(x, counts), parts(dy, counts), s, b, last)
    close(found, formulae(x, dy, s, b), TOLERANCE[kind])
    assert found["y"].dtype == found["dx"].dtype == x.dtype


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(0, 5), min_size=2, max_size=7),
    rest=st.sampled_from([(1,), (4,), (3, 2), (2, 3, 2), (2, 1, 2, 3)]),
    unbiased=st.booleans(),
    seed=st.integers(0, 1000),
    processes=st.integers(1, 3),
)
def test_any_cut(counts: list[int], rest: tuple[int, ...], unbiased: bool, seed: int, processes: int) -> None:
    if sum(counts) * np.prod(rest[1:], dtype=int) < 2:
        return
    x, dy, s, b = data(counts, rest, np.float64, seed=seed)
    found = across(
        parts(x, counts), parts(dy, counts), s, b, processes=min(processes, len(counts)), unbiased_running_var=unbiased
    )
    close(found, formulae(x, dy, s, b, unbiased=unbiased), 1e-10)


def test_against_pytorch() -> None:
    torch = pytest.importorskip("torch")
    counts = (3, 0, 5, 1)
    x, dy, s, b = data(counts, (4, 3, 3), np.float64)
    inputs = [torch.tensor(a, requires_grad=True) for a in (x, s, b)]
    mean, var = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    y = torch.nn.functional.batch_norm(inputs[0], mean, var, *inputs[1:], training=True)
    y.backward(torch.tensor(dy))
    expected = [y.detach(), *[t.grad for t in inputs], mean, var]
    names = ("y", "dx", "ds", "db", "mean", "var")
    found = across(parts(x, counts), parts(dy, counts), s, b, unbiased_running_var=True)
    close(found, dict(zip(names, (t.numpy() for t in expected), strict=True)), 1e-12)


def test_far_from_zero_the_error_is_what_one_rank_has() -> None:
    counts = (20, 3, 0, 41)
    x, dy, s, b = data(counts, (2, 3, 3), np.float32, offset=1e6)
    found = across(parts(x, counts), parts(dy, counts), s, b)
    close({"y": found["y"]}, {"y": formulae(x, dy, s, b)["y"]}, 1e-6)


def test_momentum_none_counts_the_batches_of_all_ranks_as_one() -> None:
    counts = (2, 5)
    x, dy, s, b = data(counts, (3, 2), np.float64)
    found = across(parts(x, counts), parts(dy, counts), s, b, momentum=None)
    np.testing.assert_allclose(found["mean"], x.mean((0, 2)), rtol=1e-12)
    np.testing.assert_allclose(found["var"], x.var((0, 2)), rtol=1e-12)
    assert found["batches"] == 1


def test_statistics_of_every_position_in_other_orders_of_memory() -> None:
    """Ranks agree on channels and positions, not on how these lie in memory."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 3, 4))

    def program(group: Any) -> Any:
        mine = parts(x, (2, 4))[group.rank]
        if group.rank:
            mine = np.ascontiguousarray(mine.transpose(0, 2, 1)).transpose(0, 2, 1)
        weight, bias = Tensor(np.ones((3, 4))), Tensor(np.zeros((3, 4)))
        return F.batch_norm(Tensor(mine), None, None, weight, bias, True, process_group=group).array

    expected = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
    np.testing.assert_allclose(np.concatenate(simulate(2, program)), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("counts", [(2, 3), (0, 2, 1), (1, 1, 1)])
def test_gradients_against_finite_differences(counts: tuple[int, ...]) -> None:
    x, dy, s, b = data(counts, (2, 2), np.float64, seed=4)
    cut = parts(dy, counts)

    def whole(x: Tensor, s: Tensor, b: Tensor) -> Tensor:
        def program(group: Any) -> Any:
            mine = Tensor(parts(x.array, counts)[group.rank])
            return F.batch_norm(mine, None, None, s, b, True, process_group=group).array

        return Tensor(np.concatenate(simulate(len(counts), program)))

    found = across(parts(x, counts), cut, s, b)
    inputs = tuple(Tensor(a) for a in (x, s, b))
    for which, name in enumerate(("dx", "ds", "db")):
        expected = numerical_gradient(whole, inputs, which, dy, 1e-5)
        np.testing.assert_allclose(found[name], expected, atol=1e-8)


def test_one_value_per_channel_in_all_is_the_same_error_on_all_ranks() -> None:
    raised = []

    def program(group: Any) -> None:
        try:
            F.batch_norm(Tensor(np.ones((int(group.rank == 1), 3))), None, None, training=True, process_group=group)
        except ValueError as error:
            raised.append(str(error))

    simulate(3, program)
    assert len(raised) == 3
    assert all("one value per channel on all 3 ranks together has no variance" in text for text in raised)


def test_a_batch_that_is_empty_everywhere_changes_nothing() -> None:
    def program(group: Any) -> Any:
        mean, var = Tensor(np.zeros(3)), Tensor(np.ones(3))
        x = Tensor(np.ones((0, 3, 2)), True)
        y = F.batch_norm(x, mean, var, training=True, process_group=group)
        y.backward(Tensor(np.ones((0, 3, 2))))
        return y.shape, x.grad.shape, mean.tolist(), var.tolist()

    assert simulate(2, program) == [((0, 3, 2), (0, 3, 2), [0] * 3, [1] * 3)] * 2


def test_messages_one_forward_one_backward_none_in_evaluation() -> None:
    class Counting:
        def __init__(self, group: Any) -> None:
            self.group, self.size, self.messages = group, group.size, 0

        def all_reduce(self, *args: Any, **options: Any) -> Any:
            self.messages += 1
            return self.group.all_reduce(*args, **options)

    def program(group: Any) -> list[int]:
        counting, found = Counting(group), []
        x = Tensor(np.random.default_rng(group.rank).standard_normal((2, 3)), True)
        y = F.batch_norm(x, None, None, training=True, process_group=counting)
        found.append(counting.messages)
        y.sum().backward()
        found.append(counting.messages)
        F.batch_norm(x, Tensor(np.zeros(3)), Tensor(np.ones(3)), process_group=counting).sum().backward()
        return [*found, counting.messages]

    assert simulate(2, program) == [[1, 2, 2]] * 2


def test_one_rank_is_batch_norm_to_the_bit() -> None:
    x, dy, s, b = data((9,), (3, 4), np.float32)
    found = across([x], [dy], s, b)
    inputs = [Tensor(a, True) for a in (x, s, b)]
    mean, var = Tensor(np.zeros_like(s)), Tensor(np.ones_like(s))
    y = F.batch_norm(inputs[0], mean, var, *inputs[1:], True)
    y.backward(Tensor(dy))
    for name, value in zip(("y", "dx", "mean", "var"), (y, inputs[0].grad, mean, var), strict=True):
        assert found[name].tobytes() == value.array.tobytes(), name


# Merging


def moments(x: Any) -> Any:
    if not len(x):
        return np.zeros((4, x.shape[1]))
    k = x.mean(0).astype(np.float32).astype(np.float64)
    return np.stack([np.full(x.shape[1], len(x)), k, x.mean(0) - k, x.var(0)])


@settings(max_examples=60, deadline=None)
@given(na=st.integers(0, 6), nb=st.integers(0, 6), offset=st.sampled_from([0.0, 1e3, 1e8]), seed=st.integers(0, 99))
def test_merge_against_the_moments_of_both(na: int, nb: int, offset: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((n, 2)) + offset for n in (na, nb))
    m, k, d, var = merge(moments(a), moments(b))
    both = np.concatenate([a, b])
    assert (m == len(both)).all()
    if len(both):
        np.testing.assert_allclose(k + d, both.mean(0), rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(var, both.var(0), rtol=1e-6, atol=1e-12)


def test_merging_with_nothing_changes_no_bit() -> None:
    some = moments(np.random.default_rng(1).standard_normal((5, 4)) * 1e3 + 0.1)
    nothing = np.zeros_like(some)
    np.testing.assert_array_equal(merge(some, nothing), some)
    np.testing.assert_array_equal(merge(nothing, some), some)
    np.testing.assert_array_equal(merge(nothing, nothing), nothing)


# InstanceNorm


@pytest.mark.parametrize("counts", [(2, 3), (0, 4), (1, 0, 0, 2), (5,)])
@pytest.mark.parametrize("unbiased", [False, True])
def test_instance_norm_pools_its_running_statistics(counts: tuple[int, ...], unbiased: bool) -> None:
    x = np.random.default_rng(2).standard_normal((sum(counts), 3, 7)) * 2 + 1

    def run(mine: Any, group: Any = None) -> Any:
        mean, var, seen = Tensor(np.zeros(3)), Tensor(np.ones(3)), Tensor(np.zeros((), np.int64))
        y = F.instance_norm(
            Tensor(mine), mean, var, num_batches_tracked=seen, unbiased_running_var=unbiased, process_group=group
        )
        return y.array, mean.array, var.array, seen.item()

    found = simulate(len(counts), lambda group: run(parts(x, counts)[group.rank], group))
    y, mean, var, seen = run(x)
    np.testing.assert_array_equal(np.concatenate([rank[0] for rank in found]), y)
    for rank in found:
        np.testing.assert_allclose(rank[1], mean, rtol=1e-14)
        np.testing.assert_allclose(rank[2], var, rtol=1e-14)
        assert rank[3] == seen == 1
