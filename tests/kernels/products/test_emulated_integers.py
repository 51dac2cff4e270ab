"""Products of bytes by VNNI and by AMX on a processor without: their instructions in plain C, everything else as it is.

Where the processor has them, test_integers.py runs them as one level of all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.kernels.cpu import integers as cpu
from minorm.kernels.reference import integers as reference
from minorm.kernels.reference.integers import Requantization
from tests.kernels.products.emulated import built

pytestmark = pytest.mark.slow  # for the compiler
FLAGS = {"vnni": "-DMINORM_EMULATED", "amx": "-DMINORM_TILES -DMINORM_EMULATED"}


@pytest.fixture(scope="module", params=FLAGS)
def emulated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    module = built("integers", tmp_path_factory.mktemp(request.param), FLAGS[request.param])
    assert (4, 32 if request.param == "amx" else 8) == (module.GROUP, module.COLUMNS)
    return module


@pytest.fixture(autouse=True)
def instructions(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The CPU backend with these instructions."""
    monkeypatch.setattr(cpu, "kernels", emulated)
    cpu.planned.cache_clear()
    yield
    cpu.planned.cache_clear()


def whole(shape: Any, seed: int, dtype: Any) -> Any:
    ends = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(ends.min, ends.max + 1, shape).astype(dtype)


TYPES = [(np.uint8, np.int8), (np.int8, np.uint8), (np.uint8, np.uint8), (np.int8, np.int8)]


@pytest.mark.parametrize("types", TYPES)
def test_matrices(types: Any) -> None:
    for rows, depth, columns in [(1, 1, 1), (5, 31, 3), (33, 70, 40), (130, 600, 65), (2, 3_001, 3), (70, 9, 1)]:
        a, b = whole((rows, depth), 1, types[0]), whole((depth, columns), 2, types[1])
        zeros, bias = whole(columns, 3, types[1]), whole(columns, 4, np.int32)
        for b_zero in (zeros, types[1](0)):
            got = cpu.integer_matmul(a, b, types[0](7), b_zero, bias)
            np.testing.assert_array_equal(got, reference.integer_matmul(a, b, 7, b_zero, bias))
        how = Requantization.of(np.full(columns, 1e-3), np.uint8(9))
        got = cpu.integer_matmul(a, b, 3, zeros, None, how)
        np.testing.assert_array_equal(got, reference.integer_matmul(a, b, 3, zeros, None, how))


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "form"),
    [
        ((2, 5, 9, 11), (7, 5, 3, 3), ((1, 1), ((1, 1), (1, 2)), (1, 1), 1)),
        ((1, 64, 12, 12), (40, 64, 3, 3), ((2, 2), ((1, 1), (1, 1)), (1, 1), 1)),
        ((3, 8, 17), (6, 4, 3), ((1,), ((2, 2),), (2,), 2)),
        ((1, 70, 6, 7), (33, 70, 1, 1), ((1, 1), ((0, 0), (0, 0)), (1, 1), 1)),
        ((1, 6, 8, 8), (6, 1, 3, 3), ((1, 1), ((1, 1), (1, 1)), (1, 1), 6)),
    ],
)
def test_convolutions(types: Any, x_shape: Any, w_shape: Any, form: Any) -> None:
    x, w, bias = whole(x_shape, 1, types[0]), whole(w_shape, 2, types[1]), whole(w_shape[0], 3, np.int32) // 1000
    for w_zero in (whole(w_shape[0], 4, types[1]), types[1](0)):
        got = cpu.integer_conv(x, w, types[0](5), w_zero, form, bias)
        np.testing.assert_array_equal(got, reference.integer_conv(x, w, 5, w_zero, form, bias))
    how = Requantization.of(1e-4, np.int8(-9), -9)
    got = cpu.integer_conv(x, w, types[0](5), types[1](0), form, bias, how)
    np.testing.assert_array_equal(got, reference.integer_conv(x, w, 5, 0, form, bias, how))
