"""Starting values: bounds, moments, the seed, and PyTorch's defaults."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.nn import init


def fails(error, message):
    return pytest.raises(error, match=re.escape(message))


def moments(f, shape=(200, 300), **options):
    w = mn.zeros(*shape)
    assert f(w, **options) is w
    return float(w.array.mean()), float(w.array.std()), float(np.abs(w.array).max())


@pytest.mark.parametrize(
    ("f", "options", "std"),
    [
        (init.kaiming_uniform_, {}, math.sqrt(2 / 300)),
        (init.kaiming_uniform_, {"a": math.sqrt(5)}, math.sqrt(2 / 6 / 300)),
        (init.kaiming_uniform_, {"mode": "fan_out", "nonlinearity": "relu"}, math.sqrt(2 / 200)),
        (init.kaiming_normal_, {"nonlinearity": "relu"}, math.sqrt(2 / 300)),
        (init.kaiming_normal_, {"mode": "fan_out", "nonlinearity": "linear"}, math.sqrt(1 / 200)),
        (init.xavier_uniform_, {"gain": 2.0}, 2 * math.sqrt(2 / 500)),
        (init.xavier_normal_, {}, math.sqrt(2 / 500)),
        (init.normal_, {"mean": 0.0, "std": 0.3}, 0.3),
        (init.uniform_, {"a": -1.0, "b": 1.0}, math.sqrt(1 / 3)),
        (init.trunc_normal_, {"std": 0.1}, 0.1),
    ],
)
def test_moments(f, options, std):
    mean, found, largest = moments(f, **options)
    assert found == pytest.approx(std, rel=0.01)
    assert abs(mean) < std / 50
    if "uniform" in f.__name__:
        assert largest <= std * math.sqrt(3)
        assert largest > 0.999 * std * math.sqrt(3)


def test_truncation_and_constants():
    w = init.trunc_normal_(mn.zeros(10_000), std=1.0, a=-0.5, b=1.0)
    assert w.array.min() >= -0.5
    assert w.array.max() <= 1.0
    assert (init.zeros_(mn.ones(3)).array == 0).all()
    assert (init.ones_(mn.zeros(3)).array == 1).all()
    assert (init.constant_(mn.zeros(3), 0.25).array == 0.25).all()


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float64], ids=str)
def test_every_type_gets_the_same_draws(dtype):
    mn.manual_seed(1)
    w = init.normal_(mn.zeros(50))
    mn.manual_seed(1)
    v = init.normal_(mn.zeros(50, dtype=dtype))
    assert v.dtype == dtype
    np.testing.assert_allclose(v.array.astype(np.float64), w.array, rtol=1e-2)


def test_the_seed_repeats_a_layer():
    mn.manual_seed(4)
    a, b = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)
    mn.manual_seed(4)
    c = nn.Conv2d(3, 4, 3)
    np.testing.assert_array_equal(a.weight.array, c.weight.array)
    assert (a.weight.array != b.weight.array).any()


@pytest.mark.parametrize(
    ("layer", "arguments"),
    [
        ("Linear", (400, 300)),
        ("Conv1d", (30, 200, 3)),
        ("Conv2d", (20, 200, 3)),
        ("Conv3d", (10, 100, 3)),
        ("ConvTranspose2d", (60, 40, 3)),
    ],
)
def test_defaults_are_pytorch_s(layer, arguments):
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(nn, layer)(*arguments), getattr(torch.nn, layer)(*arguments)
    for name in ("weight", "bias"):
        a, b = getattr(ours, name).array, getattr(theirs, name).detach().numpy()
        assert a.shape == b.shape
        tight = name == "weight" or b.size >= 100
        assert np.abs(a).max() == pytest.approx(
            np.abs(b).max(), rel=0.001 if name == "weight" else 0.1 if tight else 0.3
        )
        assert a.std() == pytest.approx(b.std(), rel=0.02 if name == "weight" else 0.3)


def test_gains():
    torch = pytest.importorskip("torch")
    for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    assert init.calculate_gain("leaky_relu", 0.3) == pytest.approx(torch.nn.init.calculate_gain("leaky_relu", 0.3))


def test_mistakes():
    with fails(
        ValueError, "init: fan_in and fan_out need a weight of at least 2 dimensions (out, in, ...); shape is (3,)"
    ):
        init.kaiming_uniform_(mn.zeros(3))
    with fails(ValueError, "init: mode is 'fan'; expected 'fan_in' or 'fan_out'"):
        init.kaiming_normal_(mn.zeros(3, 3), mode="fan")
    with fails(ValueError, "calculate_gain: nonlinearity is 'mish'"):
        init.calculate_gain("mish")
    with fails(TypeError, "init: tensor is a ndarray; expected a Tensor or Parameter"):
        init.zeros_(np.zeros(3))
    with fails(ValueError, "trunc_normal_: [a, b] is [20, 30]; expected a < b, and an interval that overlaps mean"):
        init.trunc_normal_(mn.zeros(3), a=20, b=30)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (2, 3, 2, 2), (7, 1, 2, 3), (0, 3), (60, 40)])
def test_orthogonal_is_the_q_of_normal_draws(shape):
    torch = pytest.importorskip("torch")
    w = mn.zeros(*shape, dtype=mn.float64)
    assert init.orthogonal_(w, gain=1.5, generator=np.random.default_rng(3)) is w
    rows = shape[0]
    drawn = torch.tensor(np.random.default_rng(3).normal(size=(rows, math.prod(shape) // max(1, rows))))
    q, r = torch.linalg.qr(drawn.T if rows < drawn.shape[1] else drawn)
    q = q * torch.sign(torch.diagonal(r))  # as torch.nn.init.orthogonal_ does it
    expected = (q.T if rows < drawn.shape[1] else q).reshape(shape) * 1.5
    np.testing.assert_allclose(w.numpy(), expected.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("shape", "groups"), [((4, 4, 3), 1), ((5, 3, 3, 2), 1), ((6, 2, 3, 3), 3), ((4, 2, 1, 2, 3), 2)]
)
def test_dirac_is_pytorchs(shape, groups):
    torch = pytest.importorskip("torch")
    expected = torch.nn.init.dirac_(torch.empty(shape), groups).numpy()
    assert np.array_equal(init.dirac_(mn.ones(*shape), groups).numpy(), expected)


def test_eye_and_what_is_no_matrix():
    assert init.eye_(mn.zeros(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    with fails(ValueError, "eye_: tensor has shape (2,); expected a matrix"):
        init.eye_(mn.zeros(2))
    with fails(ValueError, "orthogonal_: tensor has shape (2,); expected at least 2 dimensions"):
        init.orthogonal_(mn.zeros(2))
    with fails(ValueError, "dirac_: tensor has shape (3, 2, 1) with groups=2; expected (out, in, *kernel)"):
        init.dirac_(mn.zeros(3, 2, 1), 2)
