"""InstanceNorm of a single sample."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import nn

INSTANCE = [(nn.InstanceNorm1d, (4, 3, 5)), (nn.InstanceNorm2d, (4, 3, 5, 2)), (nn.InstanceNorm3d, (4, 3, 2, 2, 2))]


@pytest.mark.parametrize(("layer", "shape"), [(layer, shape[1:]) for layer, shape in INSTANCE])
@pytest.mark.parametrize("training", [True, False])
def test_instance_norm_of_one_sample(layer, shape, training, rng):
    torch = pytest.importorskip("torch")
    ours = layer(3, affine=True, track_running_stats=True, unbiased_running_var=True).train(training)
    theirs = getattr(torch.nn, layer.__name__)(3, affine=True, track_running_stats=True).train(training)
    x = mn.tensor(rng.standard_normal(shape), dtype=mn.float32, requires_grad=True)
    y = ours(x)
    assert y.shape == shape
    y.backward(np.ones(shape, np.float32))
    assert x.grad.shape == shape
    np.testing.assert_allclose(y.array, theirs(torch.tensor(x.array)).detach(), atol=2e-6)
    np.testing.assert_allclose(ours.running_var.array, theirs.running_var, rtol=1e-5)
