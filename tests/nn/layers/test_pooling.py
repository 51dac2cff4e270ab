"""Pooling layers beside PyTorch's."""

from __future__ import annotations

import pytest

import minorm as mn
from minorm import nn

SHAPES = {"1d": (2, 3, 9), "2d": (2, 3, 9, 8), "3d": (1, 2, 5, 6, 4)}
CASES = [
    *[(f"MaxPool{d}", {"kernel_size": 2}) for d in SHAPES],
    *[(f"AvgPool{d}", {"kernel_size": 2}) for d in SHAPES],
    ("MaxPool1d", {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("MaxPool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    ("MaxPool2d", {"kernel_size": (2, 3), "stride": (1, 2), "dilation": 2}),
    ("AvgPool1d", {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}),
    ("AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    ("AvgPool2d", {"kernel_size": 3, "divisor_override": 2}),
    ("AdaptiveAvgPool1d", {"output_size": 4}),
    ("AdaptiveAvgPool2d", {"output_size": 1}),
    ("AdaptiveAvgPool2d", {"output_size": (3, None)}),
]


@pytest.mark.parametrize(("layer", "options"), CASES)
def test_twins(twins, rng, layer, options):
    torch = pytest.importorskip("torch")
    x = rng.standard_normal(SHAPES[layer[-2:]])
    twins(_silent(getattr(nn, layer)(**options)), _silent(getattr(torch.nn, layer)(**options)), x)


def _silent(layer):
    """PyTorch prints kernel_size=(2,) for AvgPool1d(2), and nothing else so."""
    if type(layer).__name__ == "AvgPool1d":
        layer.extra_repr = str
    return layer


def test_max_pool_with_indices():
    torch = pytest.importorskip("torch")
    x = mn.randn(2, 3, 6, 6)
    y, places = nn.MaxPool2d(2, return_indices=True)(x)
    expected, their_places = torch.nn.MaxPool2d(2, return_indices=True)(torch.from_numpy(x.array))
    assert (y.array == expected.numpy()).all()
    assert (places.array == their_places.numpy()).all()
