"""SyncBatchNorm: converting keeps everything, one rank is BatchNorm, and what must not talk does not."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.distributed import DistributedDataParallel, run, simulate
from minorm.models import digits_cnn, resnet20
from minorm.tensor.tensor import Tensor


class Silent:
    """A group that must not be used."""

    rank, size = 0, 4

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was called")

    def __deepcopy__(self, memo: Any) -> Any:
        return self


GROUP = Silent()


def test_converting_replaces_every_batch_norm_and_keeps_the_rest() -> None:
    model = resnet20()
    parameters, buffers = list(model.parameters()), list(model.buffers())
    keys = list(model.state_dict())
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(model, GROUP)
    assert converted is model
    kinds = [type(module) for module in model.modules()]
    assert nn.BatchNorm2d not in kinds
    assert kinds.count(nn.SyncBatchNorm) == 21
    assert [id(p) for p in model.parameters()] == [id(p) for p in parameters]
    assert [id(b) for b in model.buffers()] == [id(b) for b in buffers]
    assert list(model.state_dict()) == keys
    assert all(layer.process_group is GROUP for layer in model.modules() if isinstance(layer, nn.SyncBatchNorm))


def test_converting_keeps_modes_and_options() -> None:
    layer = nn.BatchNorm1d(3, eps=1e-3, momentum=None, bias=False, unbiased_running_var=True, compute_dtype=mn.float64)
    layer.eval()
    layer.weight.requires_grad = False
    made = nn.SyncBatchNorm.convert_sync_batchnorm(layer, GROUP)
    assert isinstance(made, nn.SyncBatchNorm)
    assert not made.training
    assert made.weight is layer.weight
    assert not made.weight.requires_grad
    assert (made.bias, made.eps, made.momentum, made.unbiased_running_var) == (None, 1e-3, None, True)
    assert made.compute_dtype == mn.float64
    assert repr(made) == repr(layer).replace("BatchNorm1d", "SyncBatchNorm")
    made.freeze()
    assert made.frozen
    assert not layer.frozen


def test_a_layer_that_two_places_share_stays_one() -> None:
    norm = nn.BatchNorm1d(2)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(norm, nn.ReLU(), norm), GROUP)
    assert model[0] is model[2]


def test_instance_norm_stays_and_pools_its_running_statistics() -> None:
    x = np.random.default_rng(0).standard_normal((5, 3, 4, 4))
    one = nn.InstanceNorm2d(3, track_running_stats=True, dtype=mn.float64)
    one(Tensor(x))

    def program(group: Any) -> Any:
        model = nn.Sequential(nn.InstanceNorm2d(3, track_running_stats=True, dtype=mn.float64))
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model, group)
        model(Tensor(np.split(x, [1])[group.rank]))
        return type(model[0]), model[0].running_var.array

    for kind, var in simulate(2, program):
        assert kind is nn.InstanceNorm2d
        np.testing.assert_allclose(var, one.running_var.array, rtol=1e-14)


@pytest.mark.parametrize("how", ["eval", "frozen", "no statistics of the batch"])
def test_evaluation_and_frozen_layers_send_nothing(how: str) -> None:
    layer = nn.SyncBatchNorm(3, process_group=GROUP)
    x = mn.randn(4, 3, 2, 2, requires_grad=True)
    layer.freeze() if how == "frozen" else layer.eval()
    layer(x).sum().backward()
    assert x.grad is not None
    layer = nn.SyncBatchNorm(3, process_group=GROUP)
    with pytest.raises(AssertionError, match="all_reduce was called"):
        layer(x)


def test_a_copy_shares_the_group() -> None:
    model = copy.deepcopy(nn.Sequential(nn.SyncBatchNorm(3, process_group=GROUP)))
    assert model[0].process_group is GROUP


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (4, 3, 2, 2), (4, 3, 2, 2, 2)])
def test_without_a_group_it_is_batch_norm(shape: tuple[int, ...]) -> None:
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
    x = mn.randn(*shape)
    layers = kind(3), nn.SyncBatchNorm(3)
    a, b = (layer(x).array for layer in layers)
    assert a.tobytes() == b.tobytes()
    assert layers[0].running_var.array.tobytes() == layers[1].running_var.array.tobytes()


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"SyncBatchNorm: x has 1 axes; expected \(N, C\) or \(N, C, \*positions\)"):
        nn.SyncBatchNorm(3)(mn.randn(3))


@pytest.mark.parametrize("training", [False, True])
def test_export_sends_nothing_and_writes_batch_normalization(tmp_path: Path, training: bool) -> None:
    onnx = pytest.importorskip("onnx")
    import minorm.onnx as mo

    mn.manual_seed(0)
    plain = digits_cnn()
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain), GROUP)
    x = mn.randn(2, 1, 8, 8)
    files = []
    for name, model in (("plain", plain), ("sync", converted)):
        path = tmp_path / f"{name}.onnx"
        mo.export(model, (x,), path, training=training, verify=False)
        files.append(onnx.load(path).graph)
    assert [node.op_type for node in files[0].node] == [node.op_type for node in files[1].node]
    assert [node.op_type for node in files[1].node].count("BatchNormalization") == 3


def network() -> nn.Sequential:
    """Build a network so deep that a layer's input depends on the statistics before it."""
    mn.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3), nn.ReLU(),
        nn.Flatten(), nn.Linear(12, 3), nn.BatchNorm1d(3),
    ).double()  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_micro_batches_on_ranks_of_one_process_are_the_whole_batch(ranks: int) -> None:
    """Outputs, gradients and running statistics: what accumulation alone cannot give, for deeper layers."""
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((12, 2, 6, 6)) + np.arange(12).reshape(-1, 1, 1, 1), rng.standard_normal((12, 3))
    fresh = network()
    whole, given = copy.deepcopy(fresh), Tensor(x).requires_grad_()
    expected = whole(given)
    expected.backward(Tensor(dy))

    def program(group: Any) -> Any:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(fresh), group)
        mine = np.array_split(np.arange(12), ranks)[group.rank]
        part = Tensor(x[mine]).requires_grad_()
        y = model(part)
        y.backward(Tensor(dy[mine]))
        gradients = {name: group.all_reduce(p.grad.array) for name, p in model.named_parameters()}
        return y.detach().numpy(), part.grad.numpy(), gradients, {k: v.numpy() for k, v in model.state_dict().items()}

    found = run(program, ranks=ranks)
    np.testing.assert_allclose(np.concatenate([f[0] for f in found]), expected.detach().numpy(), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(np.concatenate([f[1] for f in found]), given.grad.numpy(), rtol=1e-8, atol=1e-10)
    for _, _, gradients, state in found:
        for name, p in whole.named_parameters():
            np.testing.assert_allclose(gradients[name], p.grad.numpy(), rtol=1e-8, atol=1e-9)
        for name, value in whole.state_dict().items():
            np.testing.assert_allclose(state[name], value.numpy(), rtol=1e-10, atol=1e-12)

    accumulated = fresh
    with nn.accumulate_stats(accumulated):
        parts = [accumulated(Tensor(part)) for part in np.array_split(x, ranks)]
    assert np.abs(mn.cat(parts).detach().numpy() - expected.detach().numpy()).max() > 0.1
    np.testing.assert_allclose(accumulated[1].running_var.numpy(), whole[1].running_var.numpy(), rtol=1e-10)
    assert np.abs(accumulated[8].running_var.numpy() - whole[8].running_var.numpy()).max() > 1e-3


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_compute_dtype_of_several_ranks(dtype: Any) -> None:
    """y and the gradient of x are the exact ones of the whole batch, rounded once."""
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal((8, 3, 5)) + 30).astype(dtype), rng.standard_normal((8, 3, 5)).astype(dtype)
    wide, one = Tensor(x.astype(np.float64)).requires_grad_(), nn.BatchNorm1d(3, dtype=mn.float64)
    y = one(wide)
    y.backward(Tensor(dy.astype(np.float64)))

    def program(group: Any) -> Any:
        layer = nn.SyncBatchNorm(3, process_group=group, compute_dtype=mn.float64)
        part = Tensor(np.split(x, 2)[group.rank]).requires_grad_()
        out = layer(part)
        out.backward(Tensor(np.split(dy, 2)[group.rank]))
        return out.detach().numpy(), part.grad.numpy()

    found = run(program, ranks=2)
    # one number in a thousand may lie so near the middle of two of `dtype` that the last bit of float64 decides
    for got, exact in zip(zip(*found, strict=True), (y.detach(), wide.grad), strict=True):
        got, rounded = np.concatenate(got), exact.numpy().astype(dtype)
        assert got.dtype == dtype
        assert (got != rounded).mean() < 1e-2
        np.testing.assert_allclose(got, rounded, rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("kind", ["batch", "instance"])
def test_a_part_that_is_not_finite_leaves_the_batch_out_on_all_ranks(kind: str) -> None:
    whole = np.random.default_rng(0).standard_normal((6, 3, 4)).astype(np.float32)

    def program(group: Any) -> Any:
        layer: Any = nn.BatchNorm1d(3) if kind == "batch" else nn.InstanceNorm1d(3, track_running_stats=True)
        layer = nn.SyncBatchNorm.convert_sync_batchnorm(layer, group)
        part = whole[2 * group.rank : 2 * group.rank + 2].copy()
        layer(Tensor(part))
        before = [buffer.numpy().copy() for buffer in layer.buffers()]
        if group.rank == 1:
            part[1, 2, 3] = np.inf
        layer(Tensor(part))
        return before, [buffer.numpy() for buffer in layer.buffers()], layer.skipped_batches

    for before, after, skipped in simulate(3, program):
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)
        assert skipped == 1
        mean = (whole.astype(np.float64)).mean((0, 2))
        np.testing.assert_allclose(after[0], 0.1 * mean, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_one_rank_alone_exports_saves_and_diagnoses(training: bool, parallel: bool, tmp_path: Path) -> None:
    """`if group.rank == 0:` asks no other rank, and moves neither the statistics nor what is drawn next."""
    onnx = pytest.importorskip("onnx")
    import minorm.onnx

    def made() -> nn.Sequential:
        mn.manual_seed(0)
        norms = nn.BatchNorm2d(2), nn.InstanceNorm2d(2, track_running_stats=True)
        return nn.Sequential(nn.Conv2d(1, 2, 3), *norms, nn.Dropout(0.5), nn.Flatten(), nn.Linear(32, 3)).train(
            training
        )

    x = Tensor(np.random.default_rng(0).standard_normal((8, 1, 6, 6)).astype(np.float32))
    minorm.onnx.export(made(), x, tmp_path / "one.onnx", training=training)

    def program(group: Any, alone: bool) -> tuple[Any, ...]:
        model: Any = nn.SyncBatchNorm.convert_sync_batchnorm(made(), group)
        model = DistributedDataParallel(model, group) if parallel else model
        if alone and group.rank == 0:
            minorm.onnx.export(model, x, tmp_path / "ranks.onnx", training=training)
            mn.save(model.state_dict(), tmp_path / "state.safetensors")
            mn.diagnose(model, [(x, mn.zeros(8, dtype=mn.int64))])
        y = model(x)
        return y.detach().numpy(), [buffer.numpy().copy() for buffer in model.buffers()]

    expected = simulate(2, lambda group: program(group, alone=False))
    for found, without in zip(simulate(2, lambda group: program(group, alone=True)), expected, strict=True):
        np.testing.assert_array_equal(found[0], without[0])
        for a, b in zip(found[1], without[1], strict=True):
            np.testing.assert_array_equal(a, b)
    graphs = [onnx.load(tmp_path / name).graph for name in ("one.onnx", "ranks.onnx")]
    assert graphs[0].initializer == graphs[1].initializer
    assert [node.op_type for node in graphs[0].node] == [node.op_type for node in graphs[1].node]
