"""Dropout of whole channels, and the kind that keeps mean and variance: the dropped values, how often, and eval()."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")

from tests.pytorch.twins.samples import ours, same_function, same_layer  # noqa: E402

CHANNELS = {"Dropout1d": (4000, 3, 5), "Dropout2d": (4000, 3, 2, 2), "Dropout3d": (4000, 3, 2, 2, 1)}
DRAWN: dict[str, tuple[int, ...]] = {**CHANNELS, "AlphaDropout": (200, 300), "FeatureAlphaDropout": (4000, 5, 2, 2)}
MISSING = -1.0507009873554805 * 1.6732632423543772  # what SELU tends to far below 0


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_nothing_happens_in_eval(name: str, p: float) -> None:
    x = mn.ones(*DRAWN[name])
    layer = getattr(mn.nn, name)(p)
    assert layer.eval()(x).tolist() == x.tolist()
    assert repr(layer) == repr(getattr(torch.nn, name)(p))


@pytest.mark.parametrize("name", CHANNELS)
def test_a_channel_goes_or_stays_as_a_whole(name: str) -> None:
    mn.manual_seed(0)
    x = mn.ones(*CHANNELS[name], requires_grad=True)
    y = getattr(mn.nn, name)(0.25)(x)
    channels = y.array.reshape(-1, y.numel() // 12000)
    assert (channels == channels[:, :1]).all()
    assert set(np.unique(channels)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((channels[:, 0] == 0).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 12000)  # four standard deviations
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.array, y.array)  # of ones, the gradient is the factor


@pytest.mark.parametrize("name", ["AlphaDropout", "FeatureAlphaDropout"])
def test_mean_and_variance_stay(name: str) -> None:
    mn.manual_seed(0)
    x = mn.randn(*DRAWN[name], dtype=mn.float64)
    y = getattr(mn.nn, name)(0.2)(x).array
    share = 1 / np.sqrt(0.8 * (1 + 0.2 * MISSING**2))
    gone = np.isclose(y, share * MISSING - share * 0.2 * MISSING)
    assert abs(gone.mean() - 0.2) < 0.02
    np.testing.assert_allclose(y[~gone], share * x.array[~gone] - share * 0.2 * MISSING, rtol=1e-12)
    assert abs(y.mean()) < 0.05
    assert abs(y.var() - 1) < 0.05
    if name == "FeatureAlphaDropout":
        whole = gone.reshape(*gone.shape[:2], -1)
        assert (whole == whole[..., :1]).all()


@pytest.mark.parametrize("name", ["dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"])
def test_all_or_nothing_is_pytorchs(name: str) -> None:
    x = torch.arange(24.0, dtype=torch.float64).reshape((2, 3, 4, 1, 1)[: 4 if "2d" in name else 5])
    x = (x.reshape(2, 3, 4) if "1d" in name else x).requires_grad_()
    for options in ({"p": 0.0, "training": True}, {"p": 1.0, "training": True}, {"p": 0.5, "training": False}):
        if name.startswith(("alpha", "feature")) and options["p"] == 1.0:
            assert np.isfinite(getattr(mn.functional, name)(ours(x), **options).array).all()
            continue
        same_function(name, x, **options)


@pytest.mark.parametrize("name", ["Dropout1d", "Dropout3d"])  # PyTorch takes three axes in Dropout2d for (N, C, L)
def test_without_a_batch(name: str) -> None:
    mn.manual_seed(0)
    shape = CHANNELS[name][:1] + CHANNELS[name][2:]
    y = getattr(mn.nn, name)(0.5)(mn.ones(*shape)).array.reshape(4000, -1)
    assert (y == y[:, :1]).all()
    assert 0.4 < (y == 0).mean() < 0.6


def test_rrelu() -> None:
    settings: dict[str, Any] = {"lower": 0.2, "upper": 0.6}
    x = torch.tensor(np.random.default_rng(0).standard_normal((40, 50)), requires_grad=True)
    theirs, layer = torch.nn.RReLU(**settings).eval(), mn.nn.RReLU(**settings).eval()
    assert repr(layer) == repr(theirs)
    np.testing.assert_allclose(layer(ours(x)).array, theirs(x).detach().numpy(), rtol=1e-12)
    same_layer("RReLU", x, lower=0.25, upper=0.25)
    mn.manual_seed(0)
    mine = ours(x)
    y = layer.train()(mine)
    below = mine.array < 0
    slopes = y.array[below] / mine.array[below]
    assert slopes.min() >= 0.2
    assert slopes.max() <= 0.6
    assert abs(slopes.mean() - 0.4) < 4 * 0.4 / np.sqrt(12 * below.sum())
    y.sum().backward()
    np.testing.assert_allclose(mine.grad.array[below], slopes, rtol=1e-12)
