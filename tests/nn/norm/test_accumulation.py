"""accumulate_stats: k micro-batches leave the running statistics that one batch leaves."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import minorm as mn
from minorm import nn
from minorm.distributed import DistributedDataParallel, simulate
from minorm.tensor.tensor import Tensor

LAYERS: dict[str, Callable[..., Any]] = {
    "BatchNorm2d": lambda dtype: nn.BatchNorm2d(3, dtype=dtype),
    "cumulative": lambda dtype: nn.BatchNorm2d(3, momentum=None, dtype=dtype),
    "unbiased": lambda dtype: nn.BatchNorm2d(3, unbiased_running_var=True, dtype=dtype),
    "every position": lambda dtype: nn.BatchNorm2d((3, 2, 2), dtype=dtype),
    "compute_dtype": lambda dtype: nn.BatchNorm2d(3, dtype=dtype, compute_dtype=mn.float64),
    "SyncBatchNorm": lambda dtype: nn.SyncBatchNorm(3, dtype=dtype),
    "InstanceNorm2d": lambda dtype: nn.InstanceNorm2d(3, track_running_stats=True, dtype=dtype),
    "InstanceNorm2d, unbiased": lambda dtype: nn.InstanceNorm2d(
        3, track_running_stats=True, unbiased_running_var=True, dtype=dtype
    ),
    "InstanceNorm2d, cumulative": lambda dtype: nn.InstanceNorm2d(
        3, momentum=None, track_running_stats=True, dtype=dtype
    ),
}


def state(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def same(a: dict[str, Any], b: dict[str, Any], tolerance: float = 0) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_allclose(value, b[name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
@settings(max_examples=15)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    offset=st.sampled_from([0, 3, 1000]),
    seed=st.integers(0, 99),
)
def test_micro_batches_count_as_one(make: Any, dtype: Any, sizes: list[int], offset: float, seed: int) -> None:
    if len(make(dtype).running_mean.shape) > 1:
        sizes = [*sizes, 1]  # one value per position at least once, and more in the whole
    x = np.random.default_rng(seed).standard_normal((sum(sizes), 3, 2, 2))
    x = (x + offset + np.arange(sum(sizes)).reshape(-1, 1, 1, 1) % 3).astype(dtype)
    whole, parts = make(dtype), make(dtype)
    warm = Tensor(x[::-1].copy() * 0.5)
    if len(x) > 1:
        whole(warm)
        parts(warm)
    before = state(parts)
    whole(Tensor(x))
    with nn.accumulate_stats(parts):
        for part in np.split(x, np.cumsum(sizes)[:-1]):
            parts(Tensor(part))
        same(state(parts), before)
    same(state(parts), state(whole), 1e-6 if dtype == np.float32 else 1e-12)
    assert parts.num_batches_tracked.item() == whole.num_batches_tracked.item()


@pytest.mark.parametrize("name", ["BatchNorm1d", "SyncBatchNorm", "BatchRenorm1d"])
def test_parts_of_one_sample(name: str) -> None:
    """(1, C): the part has no variance and becomes bias, the whole has one. Against float64 NumPy."""
    x = np.random.default_rng(0).standard_normal((4, 3))
    layer = getattr(nn, name)(3, dtype=mn.float64, momentum=0.75)
    layer.bias.data = mn.tensor([1.0, 2.0, 3.0], dtype=mn.float64)
    with nn.accumulate_stats(layer):
        for part in (x[:1], x[1:2], x[2:]):
            given = mn.tensor(part, requires_grad=True)
            y = layer(given)
            y.sum().backward()
            if len(part) == 1 and name != "BatchRenorm1d":
                np.testing.assert_array_equal(y.detach().numpy(), [[1.0, 2.0, 3.0]])
                np.testing.assert_array_equal(given.grad.numpy(), 0.0)
            assert np.isfinite(given.grad.numpy()).all()
    np.testing.assert_allclose(layer.running_mean.numpy(), x.mean(0) * 0.25, rtol=1e-12)
    np.testing.assert_allclose(layer.running_var.numpy(), 0.75 + x.var(0) * 0.25, rtol=1e-12)


@pytest.mark.parametrize("name", ["BatchNorm1d", "SyncBatchNorm", "BatchRenorm1d"])
def test_one_sample_is_no_whole(name: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), getattr(nn, name)(3))
    before = state(model)
    with pytest.raises(ValueError, match=r"accumulate_stats: .*one value per channel for 1\.running_mean"), \
            nn.accumulate_stats(model):  # fmt: skip
        model(mn.ones(1, 3))
    same(state(model), before)
    with nn.accumulate_stats(model):
        for _ in range(2):
            with nn.accumulate_stats(model):  # the outer block has two samples
                model(mn.randn(1, 3))
    other = getattr(nn, name)(3)
    for layer in (other, nn.BatchNorm1d(3, track_running_stats=False)):  # none of the block's
        with pytest.raises(ValueError, match="one value per channel"), nn.accumulate_stats(model):
            layer(mn.ones(1, 3))
    with pytest.raises(ValueError, match=r"precise_bn: .*one value per channel for 1\.running_mean"):
        nn.utils.precise_bn(model, [mn.ones(1, 3)])
    x = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    alone = getattr(nn, name)(3)
    nn.utils.precise_bn(alone, [mn.tensor(x[:2]), mn.tensor(x[2:])])
    np.testing.assert_allclose(alone.running_var.numpy(), x.astype(np.float64).var(0), rtol=1e-5)


def test_the_formula_far_from_zero() -> None:
    """Against float64 NumPy: the variance between the micro-batches is there."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((40, 5)) + 1e4 + np.repeat(np.arange(4), 10)[:, None]).astype(np.float32)
    layer = nn.BatchNorm1d(5, momentum=0.75)
    with nn.accumulate_stats(layer):
        for part in np.split(x, 4):
            layer(Tensor(part))
    wide = x.astype(np.float64)
    np.testing.assert_allclose(layer.running_mean.array, wide.mean(0) * 0.25, rtol=1e-6)
    np.testing.assert_allclose(layer.running_var.array, 0.75 + wide.var(0) * 0.25, rtol=1e-6)
    assert layer.num_batches_tracked.item() == 1


@pytest.mark.parametrize("offset", [1e4, 1e6, 1e8])
@pytest.mark.parametrize("name", ["BatchNorm2d", "SyncBatchNorm", "GhostBatchNorm", "BatchRenorm2d", "masked"])
def test_float64_keeps_its_digits_far_from_zero(name: str, offset: float) -> None:
    """Means of micro-batches differ by little of what they are: their rounding counts, and is carried along."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((48, 4, 5, 5)) + offset + np.arange(48).reshape(-1, 1, 1, 1) / 20
    mask = Tensor(np.ones((1, 1, 5, 1), bool))
    plain, one = nn.BatchNorm2d(4, dtype=mn.float64), nn.BatchNorm2d(4, dtype=mn.float64)
    make = {"GhostBatchNorm": lambda: nn.GhostBatchNorm(4, 5, dtype=mn.float64), "masked": lambda: plain}
    layer = make.get(name, lambda: getattr(nn, name)(4, dtype=mn.float64))()
    layer.momentum = one.momentum = 0.0
    one(Tensor(x))
    with nn.accumulate_stats(layer), nn.accumulate_stats(layer):
        for part in np.split(x, [5, 11]):
            layer(Tensor(part), *([mask] if name == "masked" else []))
    exact = (x - offset).astype(np.longdouble).var((0, 2, 3)).astype(np.float64)
    np.testing.assert_allclose(layer.running_var.numpy(), one.running_var.numpy(), rtol=1e-12)
    np.testing.assert_allclose(layer.running_mean.numpy(), one.running_mean.numpy(), rtol=1e-15)
    np.testing.assert_allclose(layer.running_var.numpy(), exact, rtol=1e-12)


def test_outputs_and_gradients_are_those_of_the_micro_batches() -> None:
    x = mn.randn(6, 3, 4, 4)
    grads = []
    for block in (False, True):
        layer = nn.BatchNorm2d(3)
        given = x.clone().requires_grad_()
        if block:
            with nn.accumulate_stats(layer):
                y = layer(given)
        else:
            y = layer(given)
        (y * y * y).sum().backward()
        grads.append((y.detach().numpy().tobytes(), given.grad.numpy().tobytes(), layer.weight.grad.numpy().tobytes()))
    assert grads[0] == grads[1]


def test_an_error_inside_changes_nothing() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3, momentum=None))
    before, versions = state(model), [b.version.count for b in model.buffers()]
    with pytest.raises(RuntimeError, match="stop"), nn.accumulate_stats(model):
        model(mn.randn(4, 3))
        raise RuntimeError("stop")
    same(state(model), before)
    assert [b.version.count for b in model.buffers()] == versions
    model(mn.randn(4, 3))  # and the next batch counts again
    assert model[0].num_batches_tracked.item() == 1


def test_nothing_inside_changes_nothing() -> None:
    model = nn.BatchNorm1d(3)
    before = state(model)
    with nn.accumulate_stats(model):
        model.eval()
        model(mn.randn(4, 3))
        model.train()
        model(mn.zeros(0, 3))
        with mn.no_stats_update():
            model(mn.randn(4, 3))
    same(state(model), before)
    with mn.no_stats_update(), nn.accumulate_stats(model):
        model(mn.randn(4, 3))
    same(state(model), before)
    model.freeze()
    with nn.accumulate_stats(model):
        model(mn.randn(4, 3))
    same(state(model), before)


def test_a_layer_in_two_places_takes_all_its_inputs() -> None:
    x, y = mn.randn(4, 3), mn.randn(6, 3) + 2
    shared, one = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    model = nn.ModuleList([shared, nn.Sequential(shared)])
    with nn.accumulate_stats(model):
        model[0](x)
        model[1](y)
    one(mn.cat([x, y]))
    same(state(shared), state(one), 1e-6)


def test_nested_blocks_make_one_step() -> None:
    x = mn.randn(12, 3)
    nested, one = nn.Sequential(nn.BatchNorm1d(3)), nn.Sequential(nn.BatchNorm1d(3))
    with nn.accumulate_stats(nested):
        nested(x[:4])
        with nn.accumulate_stats(nested[0]):
            nested(x[4:8])
            nested(x[8:])
        assert nested[0].num_batches_tracked.item() == 0
    one(x)
    same(state(nested), state(one), 1e-6)


def test_other_models_are_left_alone() -> None:
    inside, outside, alone = (nn.BatchNorm1d(3) for _ in range(3))
    x = mn.randn(4, 3)
    alone(x)
    with nn.accumulate_stats(inside):
        outside(x)
        with nn.accumulate_stats(outside):
            inside(x)
        assert inside.num_batches_tracked.item() == 0
    assert state(outside)["running_mean"].tobytes() == state(alone)["running_mean"].tobytes()
    same(state(inside), state(alone), 1e-6)


def test_an_inner_error_leaves_the_outer_block() -> None:
    x = mn.randn(4, 3)
    layer, one = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    with nn.accumulate_stats(layer):
        layer(x)
        with pytest.raises(RuntimeError), nn.accumulate_stats(layer):
            layer(x * 100)
            raise RuntimeError
    one(x)
    same(state(layer), state(one), 1e-6)


def test_a_model_that_is_converted_inside() -> None:
    layer = nn.BatchNorm1d(3)
    x = mn.randn(4, 3)
    with nn.accumulate_stats(layer):
        layer(x)
        layer.double()
        layer(x.double() + 1)
    both = np.concatenate([x.numpy(), x.numpy() + 1])
    assert layer.running_mean.dtype == mn.float64
    np.testing.assert_allclose(layer.running_mean.array, 0.1 * both.mean(0), rtol=1e-6, atol=1e-7)
    assert layer.num_batches_tracked.item() == 1


def test_backward_through_evaluation_knows_that_statistics_changed() -> None:
    layer = nn.BatchNorm1d(3)
    x = mn.randn(4, 3, requires_grad=True)
    layer.eval()
    y = layer(x)
    layer.train()
    with nn.accumulate_stats(layer):
        layer(x)
    with pytest.raises(RuntimeError, match=r"in place|changed"):
        y.sum().backward()


def test_threads_have_their_own_blocks() -> None:
    layer, x = nn.BatchNorm1d(3), mn.randn(4, 3)
    with nn.accumulate_stats(layer):
        thread = threading.Thread(target=lambda: layer(x))
        thread.start()
        thread.join()
        assert layer.num_batches_tracked.item() == 1


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_accumulate_alike(ranks: int) -> None:
    x = np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)
    one = nn.BatchNorm1d(3)
    one(Tensor(x))

    def program(group: Any) -> Any:
        layer = nn.SyncBatchNorm(3, process_group=group)
        with nn.accumulate_stats(layer):
            for half in np.split(x, 2):
                layer(Tensor(np.array_split(half, ranks)[group.rank]))
        return state(layer)

    for found in simulate(ranks, program):
        same(found, state(one), 1e-6)


def test_a_loaded_graph() -> None:
    onnx = pytest.importorskip("minorm.onnx")
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3))
    x = mn.randn(6, 2, 4, 4)
    loaded = onnx.load(onnx.export(model.eval(), x, None)).train()
    one = copy.deepcopy(loaded)
    one(x)
    with nn.accumulate_stats(loaded):
        loaded(x[:2])
        loaded(x[2:])
    same(state(loaded), state(one), 1e-6)
    assert np.abs(state(loaded)["1.running_mean"]).max() > 0


def test_a_lazy_layer_and_a_wrapped_model() -> None:
    x = mn.randn(6, 3)
    one, lazy = nn.BatchNorm1d(3), nn.Sequential(nn.LazyBatchNorm1d())
    one(x)
    with nn.accumulate_stats(lazy):
        lazy(x[:2])
        lazy(x[2:])
    same(state(lazy[0]), state(one), 1e-6)

    def program(group: Any) -> Any:
        wrapped = DistributedDataParallel(nn.SyncBatchNorm(3, process_group=group), group)
        with nn.accumulate_stats(wrapped):
            for part in x.split(2):
                wrapped(part[group.rank : group.rank + 1])
        return state(wrapped)

    for found in simulate(2, program):
        same(found, state(one), 1e-6)


def test_what_is_no_model_is_named() -> None:
    with pytest.raises(TypeError, match=r"accumulate_stats: model is a list; expected an nn\.Module"), \
            nn.accumulate_stats([nn.BatchNorm1d(3)]):  # fmt: skip
        pass


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm1d(3), lambda: nn.BatchNorm1d(3, unbiased_running_var=True),
                                  lambda: nn.InstanceNorm1d(3, track_running_stats=True)])  # fmt: skip
@pytest.mark.parametrize("nested", [False, True])
def test_masked_micro_batches_count_as_one(make: Any, nested: bool) -> None:
    rng = np.random.default_rng(0)
    x, mask = rng.normal(3, 2, (6, 3, 5)), rng.random((6, 3, 5)) < 0.6
    mask[:2, 1] = False  # the first micro-batch has nothing of this channel
    mask[:, 2, 1:] = False
    mask[3, 0] = False
    whole, parts = make().double(), make().double()
    whole(mn.tensor(x), mn.tensor(mask))
    with nn.accumulate_stats(parts):
        for i in range(0, 6, 2):
            with nn.accumulate_stats(parts) if nested else contextlib.nullcontext():
                parts(mn.tensor(x[i : i + 2]), mn.tensor(mask[i : i + 2]))
    np.testing.assert_allclose(parts.running_mean.numpy(), whole.running_mean.numpy(), rtol=1e-12, atol=0)
    np.testing.assert_allclose(parts.running_var.numpy(), whole.running_var.numpy(), rtol=1e-12, atol=0)
    assert parts.num_batches_tracked.item() == whole.num_batches_tracked.item() == 1


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("where", [0, 1])
def test_a_part_that_is_not_finite_is_left_out(name: str, where: int) -> None:
    x = np.random.default_rng(0).standard_normal((6, 3, 2, 2))
    ill = x[:2].copy()
    ill[0, 1, 0, 0] = np.inf
    parts = [x[:4], x[4:]]
    parts.insert(where, ill)
    one, merged = (LAYERS[name](mn.float64) for _ in range(2))
    one(Tensor(x))
    with nn.accumulate_stats(merged):
        for part in parts:
            merged(Tensor(part))
    assert merged.skipped_batches == 1
    for key, value in state(one).items():
        np.testing.assert_allclose(state(merged)[key], value, rtol=1e-12, atol=1e-14)


def test_without_a_finite_part_nothing_moves() -> None:
    layer = nn.BatchNorm2d(3)
    before = state(layer)
    with nn.accumulate_stats(layer):
        for _ in range(2):
            layer(mn.full((2, 3, 2, 2), float("nan")))
    assert layer.skipped_batches == 2
    for key, value in state(layer).items():
        np.testing.assert_array_equal(value, before[key])
    nn.utils.precise_bn(layer, [mn.full((2, 3, 2, 2), float("nan")), mn.ones(2, 3, 2, 2)])
    np.testing.assert_array_equal(layer.running_mean.numpy(), 1)
