"""weight_norm and spectral_norm beside PyTorch's: results, gradients, keys. weight_standardization by its formula."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.nn.utils import parametrizations

torch = pytest.importorskip("torch")


def compared(mine: Any, other: Any, x: np.ndarray) -> None:
    y, expected = mine(mn.tensor(x)), other(torch.tensor(x))
    np.testing.assert_allclose(y.array, expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    theirs = dict(other.named_parameters())
    assert {name for name, _ in mine.named_parameters()} == set(theirs)
    for name, p in mine.named_parameters():
        np.testing.assert_allclose(p.grad.array, theirs[name].grad.numpy(), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim: Any, rng: np.random.Generator) -> None:
    other = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4).double(), dim=dim)
    mine = parametrizations.weight_norm(nn.Linear(3, 4).double(), dim=dim)
    mine.load_state_dict(other.state_dict())
    compared(mine, other, rng.standard_normal((5, 3)))


def test_spectral_norm(rng: np.random.Generator) -> None:
    other = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Conv2d(2, 3, 3).double())
    mine = parametrizations.spectral_norm(nn.Conv2d(2, 3, 3).double())
    mine.load_state_dict(other.state_dict())
    x = rng.standard_normal((2, 2, 5, 5))
    compared(mine, other, x)
    compared(mine.eval(), other.eval(), x)


def test_a_copy_computes_with_its_own_originals() -> None:
    x = mn.randn(2, 3)
    for wrap in (parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.weight_standardization):
        layer = wrap(nn.Linear(3, 4))
        y = layer(x)
        y.sum().backward()
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert isinstance(other, nn.Linear)
            assert type(other).__name__ == "Linear"
            other.eval()
            same = other(x).detach().numpy()
            with mn.no_grad():
                for p in layer.parameters():
                    p.mul_(2).add_(0.5)
            assert other(x).detach().numpy().tobytes() == same.tobytes()


KINDS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {  # the axes under one output channel, the input
    "Linear": (lambda: nn.Linear(3, 4), (1,), (5, 3)),
    "Conv1d": (lambda: nn.Conv1d(2, 3, 3), (1, 2), (2, 2, 5)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3, groups=2), (1, 2, 3), (2, 4, 5, 5)),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), (1, 2, 3, 4), (2, 2, 3, 3, 3)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 3, 3), (0, 2, 3), (2, 4, 3, 3)),
}


def _sizes(layer: Any) -> tuple[Any, ...]:
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    return layer.in_channels, layer.out_channels, layer.kernel_size


@pytest.mark.parametrize("name", KINDS)
def test_weight_standardization(name: str, rng: np.random.Generator) -> None:
    make, axes, shape = KINDS[name]
    layer = make().double()
    before = layer.weight.detach().numpy().copy()
    made = parametrizations.weight_standardization(layer, eps=1e-3)
    assert made is layer
    assert list(made.state_dict()) == ["bias", "parametrizations.weight.original"]
    std = np.sqrt(before.var(axes, keepdims=True) + 1e-3)
    expected = (before - before.mean(axes, keepdims=True)) / std
    np.testing.assert_allclose(made.weight.detach().numpy(), expected, rtol=1e-10, atol=1e-12)
    plain = make().double()
    plain.load_state_dict({"weight": expected, "bias": made.bias})
    x = mn.tensor(rng.standard_normal(shape))
    np.testing.assert_allclose(made(x).detach().numpy(), plain(x).detach().numpy(), rtol=1e-10, atol=1e-12)
    (made(x) ** 2).sum().backward()
    other = getattr(torch.nn, name)(*_sizes(plain), **({"groups": plain.groups} if name == "Conv2d" else {})).double()
    w = torch.tensor(before, requires_grad=True)
    mean, var = w.mean(axes, keepdim=True), w.var(axes, keepdim=True, unbiased=False)
    state = {"weight": (w - mean) / (var + 1e-3).sqrt(), "bias": torch.tensor(made.bias.detach().numpy())}
    (torch.func.functional_call(other, state, torch.tensor(x.numpy())) ** 2).sum().backward()
    found = made.parametrizations.weight.original.grad.numpy()
    np.testing.assert_allclose(found, w.grad.numpy(), rtol=1e-8, atol=1e-8)


def test_weight_standardization_has_mean_0_and_variance_1() -> None:
    made = parametrizations.weight_standardization(nn.Conv2d(8, 5, 3))
    rows = made.weight.detach().numpy().reshape(5, -1)
    np.testing.assert_allclose(rows.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose(rows.var(1), 1, rtol=1e-3)


def test_groups_of_a_transposed_convolution(rng: np.random.Generator) -> None:
    """Output channel j of a group adds up the inputs of that group."""
    made = parametrizations.weight_standardization(nn.ConvTranspose2d(4, 6, 2, groups=2).double())
    w = made.parametrizations.weight.original.detach().numpy().reshape(2, 2, 3, 2, 2)
    expected = (w - w.mean((1, 3, 4), keepdims=True)) / np.sqrt(w.var((1, 3, 4), keepdims=True) + 1e-6)
    np.testing.assert_allclose(made.weight.detach().numpy(), expected.reshape(4, 3, 2, 2), rtol=1e-10)
    x = mn.tensor(rng.standard_normal((1, 4, 3, 3)))
    y = F.conv_transpose2d(x, mn.tensor(expected.reshape(4, 3, 2, 2)), made.bias, groups=2)
    np.testing.assert_allclose(made(x).detach().numpy(), y.detach().numpy(), rtol=1e-10)


def test_the_standardized_weight_trains() -> None:
    mn.manual_seed(0)
    model = parametrizations.weight_standardization(nn.Linear(6, 4))
    optimizer, x, target = mn.optim.SGD(model.parameters(), lr=0.1), mn.randn(32, 6), mn.randn(32, 4)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    np.testing.assert_allclose(model.weight.detach().numpy().var(1), 1, rtol=1e-3)


def test_bad_input_of_weight_standardization() -> None:
    wrap = parametrizations.weight_standardization
    with pytest.raises(ValueError, match="Linear has no parameter 'weigth'"):
        wrap(nn.Linear(3, 4), "weigth")
    with pytest.raises(
        ValueError, match=r"weight has shape \(3, 1, 1, 1\), which is one number for each of 3 output channels"
    ):
        wrap(nn.Conv2d(3, 3, 1, groups=3))
    with pytest.raises(ValueError, match=r"bias has shape \(4,\)"):
        wrap(nn.Linear(3, 4), "bias")
    with pytest.raises(ValueError, match="eps=-1"):
        wrap(nn.Linear(3, 4), eps=-1)
    with pytest.raises(ValueError, match="Linear has no parameter 'weight'"):
        wrap(wrap(nn.Linear(3, 4)))


def test_weight_norm_of_a_vector_is_that_of_each_element() -> None:
    """With dim=0 no other axis is left to sum over. PyTorch's values."""
    found = []
    for library, wrap in ((mn, parametrizations.weight_norm), (torch, torch.nn.utils.parametrizations.weight_norm)):
        module = library.nn.Module()
        module.w = library.nn.Parameter(library.tensor([1.0, -2.0, 3.0]))
        wrap(module, "w", dim=0)
        module.w.sum().backward()
        found.append([[p.tolist(), p.grad.tolist()] for p in module.parameters()])
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_weight_norm_of_float16_is_summed_in_float32() -> None:
    module = nn.Linear(400, 2, bias=False)
    module.weight.data = mn.full((2, 400), 20.0)
    wrapped = parametrizations.weight_norm(module.half())
    assert wrapped.parametrizations.weight.original0.tolist() == [[400.0], [400.0]]  # 400 * 20^2 is beyond float16
    np.testing.assert_allclose(wrapped.weight.float().detach().numpy(), 20.0, rtol=2**-10)
