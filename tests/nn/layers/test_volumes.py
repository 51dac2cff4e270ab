"""Pooling beyond the mean and the largest of pictures: against PyTorch's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.pytorch.twins.samples import assert_same, numbers, ours, same_function, same_layer  # noqa: E402

SIZES = (7, 6, 5)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("settings", [{"stride": None}, {"stride": 1}, {"ceil_mode": True}])
def test_power_pools(n: int, p: float, settings: dict[str, Any]) -> None:
    x = numbers(2, 3, *SIZES[:n])
    if p == 3.0:  # PyTorch takes the root of what may be below 0, and so do we: NaN in the same places
        x = x.detach().abs().requires_grad_()
    same_layer(f"LPPool{n}d", x, norm_type=p, kernel_size=2, **settings)
    same_function(f"lp_pool{n}d", x, p, 3, **settings)
    same_layer(f"LPPool{n}d", x[0].detach().requires_grad_(), norm_type=p, kernel_size=2, **settings)


def unpooled_count(sizes: tuple[int, ...], kernel: int, stride: int | None = None, padding: int = 0) -> int:
    step = stride or kernel
    pooled = [(size + 2 * padding - kernel) // step + 1 for size in sizes]
    return math.prod((count - 1) * step - 2 * padding + kernel for count in pooled)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("settings", [{}, {"stride": 1}, {"stride": 3, "padding": 1}])
@pytest.mark.parametrize("batched", [True, False])
def test_unpooling(n: int, settings: dict[str, Any], batched: bool) -> None:
    x = numbers(2, 3, *SIZES[:n], grad=False)
    options = {"kernel_size": 3 if "padding" in settings else 2, **settings}
    values, places = getattr(torch.nn.functional, f"max_pool{n}d")(x, return_indices=True, **options)
    mine = getattr(mn.functional, f"max_pool{n}d")(ours(x), return_indices=True, **options)
    assert_same(mine[0], values, "values")
    assert_same(mine[1], places, "places")
    if options.get("stride") == 1:
        return  # a place that comes twice is written twice, by PyTorch in any order
    if not batched:
        values, places = values[0], places[0]
    given = values.detach().clone().requires_grad_()
    for size in (None, list(x.shape[-n:])):
        if size is None and int(places.max()) >= unpooled_count(SIZES[:n], options["kernel_size"], **settings):
            continue  # the usual output is too small: an error, in PyTorch too
        theirs, layer = (getattr(side, f"MaxUnpool{n}d")(**options) for side in (torch.nn, mn.nn))
        assert repr(layer) == repr(theirs)
        back, leaf = ours(given), given.detach().clone().requires_grad_()
        expected, found = theirs(leaf, places, output_size=size), layer(back, ours(places), output_size=size)
        assert_same(found, expected, "unpooled")
        weights = np.random.default_rng(1).standard_normal(expected.shape)
        (expected * torch.tensor(weights)).sum().backward()
        (found * mn.tensor(weights)).sum().backward()
        assert_same(back.grad, leaf.grad, "gradient")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_largest_of_each_part(n: int) -> None:
    x = numbers(2, 3, *SIZES[:n])
    for size in (1, 3, (2, None, 3)[:n] if n > 1 else (2,)):
        same_layer(f"AdaptiveMaxPool{n}d", x, given=(size,))
        expected = getattr(torch.nn.functional, f"adaptive_max_pool{n}d")(x, size, return_indices=True)[1]
        assert_same(getattr(mn.functional, f"adaptive_max_pool{n}d")(ours(x), size, True)[1], expected, "places")
