"""precise_bn: exact statistics of a data set. freeze_norm: statistics that stay."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.data import DataLoader, TensorDataset
from minorm.distributed import simulate
from minorm.nn.utils import freeze_norm, precise_bn
from minorm.tensor.tensor import Tensor


def images(n: int = 22) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.standard_normal((n, 2, 4, 4)) + np.arange(n).reshape(-1, 1, 1, 1) / 4).astype(np.float32)


def network() -> nn.Sequential:
    mn.manual_seed(0)
    return nn.Sequential(
        nn.BatchNorm2d(2, momentum=0.9), nn.Conv2d(2, 3, 3), nn.Dropout(0.5), nn.BatchNorm2d(3, momentum=None),
        nn.ReLU(), nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4, unbiased_running_var=True),
    )  # fmt: skip


def check(layer: Any, x: np.ndarray) -> None:
    """The statistics are the exact ones of x."""
    axes = (0, *range(2, x.ndim))
    np.testing.assert_allclose(layer.running_mean.array, x.astype(np.float64).mean(axes), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(layer.running_var.array, x.astype(np.float64).var(axes), rtol=2e-6, atol=1e-6)


def seen_by(model: nn.Module, layer: nn.Module, batches: list[np.ndarray]) -> np.ndarray:
    found = []
    with mn.no_grad(), layer.register_forward_pre_hook(lambda _, args: found.append(args[0].numpy())):
        for x in batches:
            model(Tensor(x))
    return np.concatenate(found)


def test_one_pass_takes_what_passes_when_every_batch_normalizes_itself() -> None:
    model, batches = network(), np.split(images(), [8, 16])
    precise_bn(model, [(Tensor(x), "a label") for x in batches])
    for layer in (model[0], model[3], model[7]):
        model.eval()
        for norm in (model[0], model[3], model[7]):
            norm.train()
        with mn.no_stats_update():
            check(layer, seen_by(model, layer, batches))


def test_layerwise_takes_what_passes_in_evaluation() -> None:
    model, batches = network(), np.split(images(), [8, 16])
    precise_bn(model, [Tensor(x) for x in batches], layerwise=True)
    model.eval()
    for layer in (model[0], model[3], model[7]):
        check(layer, seen_by(model, layer, batches))


def test_layerwise_does_not_depend_on_the_batches() -> None:
    found = []
    for cuts in ([8, 16], [5], [2, 4, 20]):
        model = network()
        precise_bn(model, [Tensor(x) for x in np.split(images(), cuts)], layerwise=True)
        found.append(model[7].running_var.array)
    for var in found[1:]:
        np.testing.assert_allclose(var, found[0], rtol=2e-6)


def test_instance_norm_takes_the_mean_over_samples() -> None:
    layer, x = nn.InstanceNorm2d(2, track_running_stats=True), images()
    precise_bn(layer, [Tensor(x[:7]), Tensor(x[7:])])
    np.testing.assert_allclose(layer.running_mean.array, x.mean((2, 3)).mean(0), rtol=1e-5)
    np.testing.assert_allclose(layer.running_var.array, x.var((2, 3)).mean(0), rtol=1e-5)


def test_everything_else_stays() -> None:
    model = network()
    model[2].eval()
    model(Tensor(images()))
    before = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    momenta = [m.momentum for m in (model[0], model[3], model[7])]
    for layerwise in (False, True):
        assert precise_bn(model, [Tensor(images())], layerwise=layerwise) is None
        assert [m.training for m in model.modules()] == modes
        assert [m.momentum for m in (model[0], model[3], model[7])] == momenta
        for name, value in model.state_dict().items():
            if "running" not in name:
                np.testing.assert_array_equal(value.numpy(), before[name])
        assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_num_iters_and_loaders() -> None:
    x = images()
    layer = nn.BatchNorm2d(2)
    precise_bn(layer, DataLoader(TensorDataset(x, np.zeros(22, np.int64)), batch_size=8), num_iters=2)
    check(layer, x[:16])
    precise_bn(layer, (x[i : i + 11] for i in (0, 11)))  # a generator of arrays
    check(layer, x)


def test_frozen_layers_and_those_that_nothing_reaches_stay() -> None:
    model = nn.Sequential(nn.BatchNorm2d(2), nn.BatchNorm2d(2))
    model.spare = nn.BatchNorm1d(5)
    model.forward = lambda x: model[1](model[0](x))
    model[0].freeze()
    precise_bn(model, [Tensor(images())])
    assert model[0].running_mean.array.any() == model.spare.running_mean.array.any() == False  # noqa: E712
    check(model[1], images() / np.sqrt(np.float32(1 + 1e-5)))


def test_a_shared_layer_takes_all_that_it_sees() -> None:
    norm = nn.BatchNorm2d(2)
    model, x = nn.Sequential(norm, nn.ReLU(), norm), images()
    for layerwise in (False, True):
        precise_bn(model, [Tensor(x)], layerwise=layerwise)
        first = (x - x.mean((0, 2, 3), keepdims=True)) / np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)
        check(norm, np.concatenate([x, np.maximum(first, 0)]))


@pytest.mark.parametrize("layerwise", [False, True])
def test_an_error_leaves_the_statistics(layerwise: bool) -> None:
    model = network()
    before = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    batches = [Tensor(images()), Tensor(images()[:, :1])]
    with pytest.raises(ValueError, match="channels"):
        precise_bn(model, batches, layerwise=layerwise)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    assert model.training


def test_ranks_find_the_statistics_of_all() -> None:
    x = images(20)

    def program(group: Any) -> Any:
        layer = nn.SyncBatchNorm(2, process_group=group)
        precise_bn(layer, [Tensor(part) for part in np.split(x[group.rank :: 2], 2)])
        return layer

    for layer in simulate(2, program):
        check(layer, x)


@pytest.mark.parametrize("layerwise", [False, True])
def test_a_loaded_graph(layerwise: bool) -> None:
    onnx = pytest.importorskip("minorm.onnx")
    model, x = network().eval(), images()
    loaded = onnx.load(onnx.export(model, Tensor(x), None))
    precise_bn(loaded, [Tensor(x[:8]), Tensor(x[8:])], layerwise=layerwise)
    precise_bn(model, [Tensor(x[:8]), Tensor(x[8:])], layerwise=layerwise)
    for name in ("0.running_mean", "3.running_var", "7.running_var"):
        np.testing.assert_allclose(loaded.state_dict()[name].numpy(), model.state_dict()[name].numpy(), rtol=2e-6)
    assert not loaded.training


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((nn.Linear(2, 2), [mn.zeros(2, 2)]), ValueError, "no layer whose running statistics could change"),
        (([], []), TypeError, r"model is a list; expected an nn\.Module"),
        ((nn.BatchNorm1d(2), []), ValueError, "loader gives no batch"),
        ((nn.BatchNorm1d(2), 3), TypeError, "loader is a int|loader is an int"),
        ((nn.BatchNorm1d(2), [(3, mn.zeros(2, 2))]), TypeError, "a batch begins with"),
        ((nn.BatchNorm1d(2), [mn.zeros(2, 2)], 0), ValueError, "num_iters=0; expected an int of at least 1"),
        ((nn.BatchNorm1d(2), iter([mn.zeros(2, 2)]), None, True), ValueError, "can be read only once"),
    ],
)
def test_bad_input_of_precise_bn(arguments: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=f"precise_bn: .*(?:{words})"):
        precise_bn(*arguments)


def test_freeze_norm() -> None:
    model = network()
    model(Tensor(images()))
    assert freeze_norm(model) is model
    before = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    model.train()
    x = mn.randn(2, 2, 4, 4, requires_grad=True)
    model(x).sum().backward()
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    grads = {name for name, p in model.named_parameters() if p.grad is not None}
    assert grads == {"1.weight", "1.bias", "6.weight", "6.bias"}
    assert {name for name, p in model.named_parameters() if p.requires_grad} == grads
    assert x.grad.numpy().any()


def test_freeze_norm_leaves_norms_without_running_statistics() -> None:
    model = freeze_norm(nn.Sequential(nn.LayerNorm(3), nn.BatchNorm1d(3, track_running_stats=False)))
    assert all(p.requires_grad for p in model.parameters())


def test_freeze_norm_of_a_loaded_graph() -> None:
    onnx = pytest.importorskip("minorm.onnx")
    loaded = freeze_norm(onnx.load(onnx.export(network().eval(), Tensor(images()), None))).train()
    before = {k: v.numpy().copy() for k, v in loaded.state_dict().items()}
    loaded(Tensor(images() + 5))
    for name, value in loaded.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    assert {n for n, p in loaded.named_parameters() if not p.requires_grad} == {
        f"{i}.{n}" for i in (0, 3, 7) for n in ("weight", "bias")
    }


def test_bad_input_of_freeze_norm() -> None:
    with pytest.raises(TypeError, match=re.escape("freeze_norm: model is a int; expected an nn.Module")):
        freeze_norm(3)
