"""FakeQuantize and its learned form: the gradient of LSQ, and the type in which the scale divides."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import quantization as Q


def test_the_learned_scales_gradient_is_divided_by_the_root_of_elements_times_steps(rng: np.random.Generator) -> None:
    """LSQ, 2.2: g = 1 / sqrt(N Q_P), N the features of one sample."""
    x = rng.normal(size=(4, 25)).astype(np.float32)
    fake = Q.LearnedFakeQuantize(dtype=mn.int8, symmetric=True)
    fake(mn.tensor(x)).sum().backward()
    s = float(fake.scale.item())
    v = x.astype(np.float64) / s
    q = np.rint(v)
    slope = np.where(q < -128, -128, np.where(q > 127, 127, q - v)).sum()
    assert fake.scale.grad.item() == pytest.approx(slope / np.sqrt(25 * 127), rel=1e-3)


def test_a_scale_is_not_rounded_to_the_type_of_what_passes() -> None:
    """1/3 has 8 bits in bfloat16, and its multiples would leave the grid that integers have."""
    fake = Q.FakeQuantize(Q.MinMaxObserver, dtype=mn.int8, symmetric=True)
    fake(mn.tensor([-42.5, 42.5]))  # 127.5 steps of a third
    x = np.linspace(-40, 40, 50).astype(np.float32)
    y = fake.eval()(mn.tensor(x).to(mn.bfloat16))
    assert y.dtype == mn.bfloat16
    want = np.rint(mn.tensor(x).to(mn.bfloat16).array.astype(np.float64) * 3) / 3
    np.testing.assert_array_equal(y.array, want.astype(y.array.dtype))
