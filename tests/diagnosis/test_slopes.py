"""Where activations are flat, by their own gradients."""

from __future__ import annotations

import numpy as np

import minorm as mn
from minorm import nn
from minorm.diagnosis import slopes


def test_the_flat_parts_are_where_the_slope_is_below_a_hundredth_of_its_largest() -> None:
    x = mn.linspace(-12, 12, 2001, dtype=mn.float64)
    for name, rule in slopes.WHERE.items():
        module = {"relu6": nn.ReLU6, "elu": nn.ELU, "selu": nn.SELU, "celu": nn.CELU}.get(name)
        function = module() if module else getattr(mn.functional, name)
        given = x.detach().requires_grad_()
        function(given).sum().backward()
        slope = np.abs(given.grad.array)
        expected = slope < 0.01 * slope.max()
        if name == "relu6":
            expected &= x.array > 0  # below 0 it is ReLU's zero, and no saturation
        different = expected != rule(x.array, {})
        assert different.sum() <= 2, name  # on the edge
