"""Stochastic depth: which samples a branch loses, how often, its gradient, and what evaluation and freezing do."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import nn

F = mn.functional
SHAPE = (4000, 3, 2)


@pytest.mark.parametrize("mode", ["row", "batch"])
def test_nothing_happens_in_eval_where_frozen_and_without_a_probability(mode: str) -> None:
    x = mn.ones(*SHAPE)
    assert nn.StochasticDepth(0.3, mode).eval()(x) is x
    assert nn.StochasticDepth(0.0, mode)(x) is x
    layer = nn.StochasticDepth(0.3, mode)
    layer.freeze()
    assert layer(x) is x
    assert repr(layer) == f"StochasticDepth(p=0.3, mode='{mode}')"


def test_a_sample_goes_or_stays_as_a_whole() -> None:
    mn.manual_seed(0)
    x = mn.ones(*SHAPE, requires_grad=True)
    y = nn.StochasticDepth(0.25, "row")(x)
    samples = y.array.reshape(4000, -1)
    assert (samples == samples[:, :1]).all()
    assert set(np.unique(samples)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((samples[:, 0] == 0).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4000)  # four standard deviations
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.array, y.array)  # of ones, the gradient is the factor


def test_a_batch_goes_or_stays_as_a_whole() -> None:
    mn.manual_seed(0)
    layer, x = nn.StochasticDepth(0.25, "batch"), mn.ones(2, 3)
    draws = np.stack([layer(x).array for _ in range(1000)]).reshape(1000, -1)
    assert (draws == draws[:, :1]).all()
    assert set(np.unique(draws)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((draws[:, 0] == 0).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 1000)


@pytest.mark.parametrize("mode", ["row", "batch"])
def test_probability_1_leaves_zeros(mode: str) -> None:
    x = mn.ones(3, 2, requires_grad=True)
    y = F.stochastic_depth(x, 1.0, mode)
    y.sum().backward()
    assert y.tolist() == x.grad.tolist() == [[0, 0]] * 3


def test_types_and_seeds() -> None:
    layer = nn.StochasticDepth(0.5, "row")
    for dtype in (mn.float16, mn.bfloat16, mn.float32, mn.float64):
        assert layer(mn.ones(4, 2, dtype=dtype)).dtype == dtype
    mn.manual_seed(3)
    first = layer(mn.ones(64, 2)).tolist()
    mn.manual_seed(3)
    assert layer(mn.ones(64, 2)).tolist() == first


def test_what_it_refuses() -> None:
    x = mn.ones(2, 3)
    with pytest.raises(ValueError, match=r"StochasticDepth: p is 1.5; expected a probability, 0 <= p <= 1"):
        nn.StochasticDepth(1.5, "row")
    with pytest.raises(ValueError, match="stochastic_depth: mode is 'rows'; expected 'batch' or 'row'"):
        F.stochastic_depth(x, 0.5, "rows")
    with pytest.raises(ValueError, match="mode is None; expected 'batch' or 'row'"):
        nn.StochasticDepth(0.5, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stochastic_depth: input is int64"):
        F.stochastic_depth(mn.tensor([1, 2]), 0.5, "row")
    with pytest.raises(ValueError, match=r"input has no axes; expected \(N, \*\)"):
        F.stochastic_depth(mn.tensor(1.0), 0.5, "row")
