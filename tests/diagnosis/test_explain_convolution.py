"""mn.explain of a convolution: the ways that the kernels take, as they are chosen."""

from __future__ import annotations

import time
from typing import Any

import pytest

import minorm as mn
import minorm.functional as F
import minorm_ext

SUMS = ("forward", "grad_input", "grad_weight")


@pytest.mark.skipif(not minorm_ext.WINOGRAD, reason="turned off in the environment")
def test_winograd_is_named() -> None:
    found: Any = mn.explain(F.conv2d, (64, 32, 16, 16), (48, 32, 3, 3), padding="same")
    assert found.strategies == dict.fromkeys(SUMS, "winograd")
    assert found.y_shape == (64, 48, 16, 16)
    assert found.multiply_adds == 64 * 48 * 16 * 16 * 32 * 9
    assert str(found).splitlines()[0] == "conv2d of 64x32x16x16 float32, weight 48x32x3x3"
    assert "  forward     winograd: 8x8 tiles an image, 128 at a time, 32 times" in str(found)


def test_tiles_are_named() -> None:
    found: Any = mn.explain(F.conv2d, (64, 32, 2, 2), (48, 32, 3, 3), padding="same", dtype=mn.bfloat16)
    assert found.strategies == dict.fromkeys(SUMS, "tiles")
    assert "grad_input  tiles: the channels of a place side by side, added up in the order of" in str(found)
    depthwise: Any = mn.explain(F.conv2d, (64, 8, 9, 9), (8, 1, 3, 3), groups=8, dtype=mn.bfloat16)
    assert "tiles" not in depthwise.strategies.values()


@pytest.mark.parametrize(
    ("function", "shape", "weight", "options", "strategies"),
    [
        (F.conv2d, (64, 8, 4, 4), (8, 8, 3, 3), {"padding": 1}, {"images"}),
        (F.conv1d, (4, 8, 900), (16, 8, 5), {}, {"rows"}),
        (F.conv2d, (1, 3, 40, 40), (8, 3, 3, 3), {"stride": 2, "bias": (8,)}, {"lines", "images", "rows"}),
        (F.conv3d, (2, 4, 6, 6, 6), (8, 2, 3, 3, 3), {"groups": 2, "dtype": "float16"}, {"lines", "images"}),
    ],
)
def test_other_ways_are_named(function: Any, shape: Any, weight: Any, options: Any, strategies: set[str]) -> None:
    found: Any = mn.explain(function, shape, weight, **options)
    assert tuple(found.strategies) == SUMS
    assert set(found.strategies.values()) <= strategies
    assert len(str(found).splitlines()) == 5


def test_nothing_is_computed() -> None:
    begin = time.perf_counter()
    found: Any = mn.explain(F.conv2d, (64, 256, 112, 112), (256, 256, 3, 3), padding=1)
    assert found.multiply_adds == 64 * 256 * 112 * 112 * 256 * 9  # seconds of work
    assert time.perf_counter() - begin < 1


def test_errors_are_those_of_the_function() -> None:
    with pytest.raises(ValueError, match="conv2d: weight has 5 input channels per group, x has 3 channels"):
        mn.explain(F.conv2d, (1, 3, 8, 8), (4, 5, 3, 3))
    with pytest.raises(TypeError, match="missing a required argument: 'weight'"):
        mn.explain(F.conv2d, (1, 3, 8, 8))
