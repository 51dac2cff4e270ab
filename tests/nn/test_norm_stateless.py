"""GroupNorm, LayerNorm, RMSNorm, MeanVarianceNorm and Normalization as layers."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn


@pytest.mark.parametrize(
    ("name", "arguments", "shape"),
    [
        ("GroupNorm", (2, 6), (3, 6, 4, 5)),
        ("GroupNorm", (3, 6, 1e-3, False), (3, 6)),
        ("LayerNorm", (5,), (3, 4, 5)),
        ("LayerNorm", ((4, 5), 1e-3), (3, 4, 5)),
        ("LayerNorm", ((4, 5), 1e-3, True, False), (3, 4, 5)),
        ("LayerNorm", (5, 1e-5, False), (3, 4, 5)),
        ("RMSNorm", ((4, 5),), (3, 4, 5)),
        ("RMSNorm", (5, 1e-3, False), (3, 4, 5)),
    ],
)
def test_beside_pytorch(name, arguments, shape, rng):
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(nn, name)(*arguments), getattr(torch.nn, name)(*arguments)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x, dy = rng.standard_normal((2, *shape)).astype(np.float32)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        p.array[...] = rng.standard_normal(p.shape)
        q.data[...] = torch.tensor(p.array)
    x_ours, x_theirs = mn.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, expected = ours(x_ours), theirs(x_theirs)
    y.backward(dy)
    expected.backward(torch.tensor(dy))
    np.testing.assert_allclose(y.array, expected.detach(), rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(x_ours.grad.array, x_theirs.grad, rtol=1e-4, atol=5e-6)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.array, q.grad, rtol=1e-5, atol=1e-5)


def test_one_number_a_group(rng):
    layer = nn.GroupNorm(3, 6, per_group=True)
    assert layer.weight.shape == layer.bias.shape == (3,)
    layer.weight.array[...] = [1, 2, 3]
    x = mn.tensor(rng.standard_normal((2, 6, 4)), dtype=mn.float32)
    np.testing.assert_allclose(
        layer(x).array, F.group_norm(x, 3, mn.tensor([1.0, 1, 2, 2, 3, 3])).array, rtol=1e-6, atol=1e-6
    )
    assert repr(layer) == "GroupNorm(3, 6, eps=1e-05, affine=True, per_group=True)"


def test_mean_variance_and_normalization(rng):
    x = mn.tensor(rng.standard_normal((2, 6, 4, 5)), dtype=mn.float32)
    np.testing.assert_array_equal(nn.MeanVarianceNorm()(x).array, F.mean_variance_norm(x).array)
    assert list(nn.MeanVarianceNorm().state_dict()) == []
    layer = nn.Normalization([1, 3, 1, 1], axes=0b1100, num_groups=3)
    assert layer.weight.shape == layer.bias.shape == (1, 3, 1, 1)
    np.testing.assert_array_equal(layer(x).array, F.group_norm(x, 3).array)
    assert nn.Normalization(compute_dtype=mn.float64)(x).dtype == np.float32
    assert nn.Normalization().weight is None


@pytest.mark.parametrize(
    ("layer", "arguments", "function"),
    [
        (nn.GroupNorm, (2, 6), lambda x, layer, c: F.group_norm(x, 2, layer.weight, layer.bias, compute_dtype=c)),
        (nn.LayerNorm, (500,), lambda x, layer, c: F.layer_norm(x, 500, layer.weight, layer.bias, compute_dtype=c)),
        (nn.RMSNorm, (500,), lambda x, layer, c: F.rms_norm(x, 500, layer.weight, compute_dtype=c)),
        (nn.BatchNorm1d, (6,), lambda x, layer, c: F.batch_norm(x, None, None, layer.weight, layer.bias, True,
                                                                compute_dtype=c)),
        (nn.InstanceNorm1d, (6,), lambda x, layer, c: F.instance_norm(x, compute_dtype=c)),
        (nn.MeanVarianceNorm, ((0, 2),), lambda x, layer, c: F.mean_variance_norm(x, (0, 2), compute_dtype=c)),
        (nn.Normalization, ([1, 6, 1], (2,)), lambda x, layer, c: F.normalization(x, layer.weight, layer.bias, (2,),
                                                                                compute_dtype=c)),
    ],
)  # fmt: skip
def test_compute_dtype_is_handed_on(layer, arguments, function, rng):
    """Computed in float64, both y and dx are other float32 numbers than computed in float32."""
    values, dy = (rng.standard_normal((4, 6, 500)).astype(np.float32) + 100 for _ in range(2))
    found = []
    for options in ({}, {"compute_dtype": mn.float64}):
        x, same = mn.tensor(values, requires_grad=True), mn.tensor(values, requires_grad=True)
        module = layer(*arguments, **options)
        y = module(x)
        y.backward(dy)
        function(same, module, options.get("compute_dtype")).backward(dy)
        np.testing.assert_array_equal(x.grad.array, same.grad.array)
        found.append((y.array, x.grad.array))
    (y, dx), (wide_y, wide_dx) = found
    assert (y != wide_y).any()
    assert (dx != wide_dx).any()
    np.testing.assert_allclose(y, wide_y, atol=1e-5)


def test_reset_parameters():
    layer = nn.LayerNorm(3)
    layer.weight.array[...] = 7
    layer.reset_parameters()
    assert layer.weight.array.tolist() == [1, 1, 1]


def test_errors():
    with pytest.raises(ValueError, match="num_groups=4 must divide num_channels=6"):
        nn.GroupNorm(4, 6)
    with pytest.raises(ValueError, match=r"x has shape \(2, 5\), the layer num_channels=6"):
        nn.GroupNorm(3, 6)(mn.randn(2, 5))
    with pytest.raises(ValueError, match=r"layer_norm: normalized_shape is \(3,\), x ends in \(4,\)"):
        nn.LayerNorm(3)(mn.randn(2, 4))
    with pytest.raises(TypeError, match=r"LayerNorm: normalized_shape\[1\] is 2\.5; expected an int"):
        nn.LayerNorm((3, 2.5))
    with pytest.raises(ValueError, match="RMSNorm: normalized_shape is empty"):
        nn.RMSNorm(())
    with pytest.raises(TypeError, match=r"mean_variance_norm: axes is 3; expected a tuple"):
        nn.MeanVarianceNorm(3)(mn.randn(2, 4))
    assert nn.Normalization(axes=np.int64(2))(mn.randn(2, 4)).shape == (2, 4)
