"""BatchNorm folded into a convolution: PyTorch's formula, gradients by finite differences, rounding that commutes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm import quantization as Q
from minorm.testing import gradcheck


def parts(rng: np.random.Generator, dtype: Any = np.float64) -> tuple[Any, ...]:
    """weight, bias, mean, variance, weight and bias of the norm; one of its weights is negative."""
    arrays = [rng.normal(size=(3, 2, 3, 3)), rng.normal(size=3), rng.normal(size=3), rng.uniform(0.5, 2, 3)]
    return tuple(a.astype(dtype) for a in (*arrays, np.array([1.2, -0.7, 0.4]), rng.normal(size=3)))


def test_it_is_pytorchs(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    from torch.nn.utils.fusion import fuse_conv_bn_weights

    w, b, mean, var, weight, bias = parts(rng)
    want = fuse_conv_bn_weights(*map(torch.tensor, (w, b, mean, var)), 1e-3, torch.tensor(weight), torch.tensor(bias))
    found = Q.fuse_conv_bn_weights(*map(mn.tensor, (w, b, mean, var)), 1e-3, mn.tensor(weight), mn.tensor(bias))
    for ours, theirs in zip(found, want, strict=True):
        np.testing.assert_allclose(ours.array, theirs.detach().numpy(), rtol=1e-12)


def test_the_folded_convolution_is_the_two_layers(rng: np.random.Generator) -> None:
    w, b, mean, var, weight, bias = map(mn.tensor, parts(rng))
    x = mn.tensor(rng.normal(size=(2, 2, 5, 5)))
    folded = F.conv2d(x, *Q.fuse_conv_bn_weights(w, b, mean, var, 1e-3, weight, bias))
    apart = F.batch_norm(F.conv2d(x, w, b), mean, var, weight, bias, False, 0.9, 1e-3)
    np.testing.assert_allclose(folded.array, apart.array, atol=1e-12)
    for left_out in ((w, None, mean, var, 1e-3, weight, bias), (w, b, mean, var, 1e-3, None, None)):
        folded = F.conv2d(x, *Q.fuse_conv_bn_weights(*left_out))
        apart = F.batch_norm(F.conv2d(x, w, left_out[1]), mean, var, left_out[5], left_out[6], False, 0.9, 1e-3)
        np.testing.assert_allclose(folded.array, apart.array, atol=1e-12)


def test_gradients_by_finite_differences(rng: np.random.Generator) -> None:
    x = mn.tensor(rng.normal(size=(2, 2, 4, 4)))

    def folded(w: Any, b: Any, mean: Any, var: Any, weight: Any, bias: Any) -> Any:
        return F.conv2d(x, *Q.fuse_conv_bn_weights(w, b, mean, var, 1e-3, weight, bias))

    gradcheck(folded, *parts(rng))


def test_rounding_commutes_with_folding(rng: np.random.Generator) -> None:
    """round(a W / (|a| s)) == sign(a) round(W / s), but where a product of floats moves a tie."""
    w = rng.normal(size=(64, 1000))
    a, s = rng.normal(size=(64, 1)), np.abs(w).max(1, keepdims=True) / 127
    np.testing.assert_array_equal(np.rint(a * w / (np.abs(a) * s)), np.sign(a) * np.rint(w / s))


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"bn_rm has shape \(4,\); expected \(3,\).*conv_w.shape is \(3, 2\)"):
        Q.fuse_conv_bn_weights(mn.ones(3, 2), None, mn.ones(4), mn.ones(4), 1e-5, None, None)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_step_of_training_is_pytorchs(rng: np.random.Generator, frozen: bool) -> None:
    """torch.ao's ConvBn2d rounds a W by its scale: the same integers, the same gradients."""
    torch = pytest.importorskip("torch")
    from torch.ao.nn.intrinsic.qat import ConvBn2d, freeze_bn_stats
    from torch.ao.quantization import FakeQuantize, PerChannelMinMaxObserver, QConfig

    x = rng.normal(size=(4, 2, 6, 6)).astype(np.float32)
    w, _, mean, var, weight, bias = parts(rng, np.float32)
    model = nn.Sequential(nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3))
    for parameter, value in ((model[0].weight, w), (model[1].weight, weight), (model[1].bias, bias)):
        parameter.set_array(value.copy())
    model[1].running_mean.set_array(mean.copy())
    model[1].running_var.set_array(var.copy())
    qat = Q.prepare_qat(model, mn.tensor(x))
    for site in qat.plan.sites:
        qat.fake_quant[site.key].disable_fake_quant()
    if frozen:
        Q.freeze_bn_stats(qat)
    y = qat(mn.tensor(x))
    r = rng.normal(size=y.shape).astype(np.float32)
    (y * mn.tensor(r)).sum().backward()

    make = FakeQuantize.with_args(
        observer=PerChannelMinMaxObserver, quant_min=-127, quant_max=127, dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric, ch_axis=0,
    )  # fmt: skip
    other = ConvBn2d(2, 3, 3, qconfig=QConfig(activation=torch.nn.Identity, weight=make))
    with torch.no_grad():
        for tensor, value in (
            (other.weight, w), (other.bn.weight, weight), (other.bn.bias, bias), (other.bn.running_mean, mean),
            (other.bn.running_var, var),
        ):  # fmt: skip
            tensor.copy_(torch.tensor(value))
    if frozen:
        freeze_bn_stats(other)
    theirs = other(torch.tensor(x))
    (theirs * torch.tensor(r)).sum().backward()
    np.testing.assert_allclose(y.array, theirs.detach().numpy(), atol=2e-3 if frozen else 2e-5)
    inner = qat.model
    pairs = (inner[0].weight, other.weight), (inner[1].weight, other.bn.weight), (inner[1].bias, other.bn.bias)
    for ours, want in pairs:
        # PyTorch rounds a W, whose slope in a is W where nothing is rounded; ours is conv(x, round W), the true slope.
        apart = 0.02 if ours is inner[1].weight else 1e-3
        np.testing.assert_allclose(ours.grad.array, want.grad.numpy(), atol=apart * np.abs(want.grad.numpy()).max())
    kept = mean if frozen else other.bn.running_mean.numpy()
    np.testing.assert_allclose(inner[1].running_mean.array, kept, atol=1e-5)


@pytest.mark.parametrize(
    ("frozen", "rounded"), [(False, False), (True, False), (False, True)], ids=["batch", "frozen", "rounded weights"]
)
def test_gradients_of_a_training_step_by_finite_differences(
    rng: np.random.Generator, frozen: bool, rounded: bool
) -> None:
    """With rounded weights those of the norm alone: the others jump."""
    x = rng.normal(size=(4, 2, 5, 5))
    qat = Q.prepare_qat(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)), mn.tensor(x.astype(np.float32)))
    for key in qat.fake_quant:
        if not (rounded and key.endswith("_weight")):
            qat.fake_quant[key].disable_fake_quant()
    if frozen:
        Q.freeze_bn_stats(qat)
    qat.double()
    norm, r = qat.model[1], mn.tensor(rng.normal(size=(4, 3, 3, 3)))
    norm.momentum = 1.0  # the running ones stay as they are, or a second run would differ

    def loss() -> mn.Tensor:
        return (qat(mn.tensor(x)) * r).sum()

    loss().backward()
    parameters = [norm.weight, norm.bias] if rounded else list(qat.model.parameters())
    for parameter in parameters:
        for place in list(np.ndindex(*parameter.shape))[:4]:
            sides = []
            for h in (1e-6, -1e-6):
                before = parameter.array[place]
                parameter.array[place] += h
                sides.append(loss().item())
                parameter.array[place] = before
            slope = (sides[0] - sides[1]) / 2e-6
            assert parameter.grad.array[place] == pytest.approx(slope, rel=1e-5, abs=1e-7)
