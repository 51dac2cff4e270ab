"""The kernels of the level `amx` on a processor without tiles: built with tiles in plain C, everything else as it is.

Where the processor has tiles, test_tiles.py and test_conv_products.py here run them as one level of all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.devices.dtypes import bfloat16
from minorm.kernels.cpu import conv, conv_products, matmul
from minorm.kernels.cpu.memory import empty
from minorm.kernels.reference import conv as reference
from minorm.kernels.reference import tiles
from tests.kernels.products.emulated import built
from tests.kernels.products.test_conv_products import numbers, three_sums
from tests.kernels.test_conv import CASES

pytestmark = pytest.mark.slow  # for the compiler


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    module = built("products", tmp_path_factory.mktemp("emulated"), "-DMINORM_TILES -DMINORM_EMULATED")
    assert module.COLUMNS == 32  # two tiles, which no level without them has
    return module


@pytest.fixture
def by_tiles(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The CPU backend on tiles."""
    plans = conv_products.forward, conv_products.grad_input, conv_products.grad_weight
    monkeypatch.setattr(matmul, "_tiled", emulated)
    monkeypatch.setattr(conv_products, "kernels", emulated)
    for plan in plans:
        plan.cache_clear()
    yield emulated
    for plan in plans:
        plan.cache_clear()


@pytest.mark.parametrize("exponent", [0, -62, 61])
def test_products(by_tiles: Any, exponent: int) -> None:
    for rows, depth, columns in [(1, 1, 1), (5, 31, 3), (33, 70, 40), (130, 600, 65), (2, 33_000, 3), (70, 9, 1)]:
        a, b = numbers((rows, depth), 1, exponent), numbers((depth, columns), 2, exponent)
        bias = numbers(columns, 3, 2 * exponent)
        for left, right in [(a, b), (np.asfortranarray(a), np.asfortranarray(b))]:
            for threads in (1, 2):
                got = by_tiles.multiply(left, right, bias, empty, threads)
                with np.errstate(over="ignore", invalid="ignore"):
                    expected = tiles.with_bias(tiles.product(a, b), bias).astype(bfloat16)
                np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))


MORE = ((2, 64, 9, 9), (40, 64, 3, 3), (2, 2), ((1, 1),) * 2, (1, 1), 1)


@pytest.mark.parametrize("case", [case for case in (*CASES, MORE) if case[1][:2] != (case[-1], 1)])  # not depthwise
@pytest.mark.usefixtures("by_tiles")
def test_convolutions(case: Any) -> None:
    x, w, b = numbers(case[0], 1), numbers(case[1], 2), numbers(case[1][0], 3)
    dy = numbers(reference.checked("", x.shape, w.shape, *case[2:]), 4)
    for got, expected in zip(
        three_sums(conv, x, w, b, dy, case[2:]), three_sums(reference, x, w, b, dy, case[2:]), strict=True
    ):
        np.testing.assert_array_equal(got, expected)
