"""A chain of maps has the bits of one map after the other, on any level and any number of threads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels.cpu import chain as cpu
from minorm.kernels.cpu import elementwise
from minorm.kernels.reference import chain as reference
from minorm.kernels.reference.chain import LONGEST, MOST_LINKS, Link
from tests.levels import at_level

GELU = (Link("add", 0, 1), Link("div", 5, 2), Link("erf", 6), Link("add", 7, 3), Link("mul", 5, 8), Link("mul", 9, 4))
MAPS_OF_ONE = ["relu", "relu6", "sigmoid", "tanh", "silu", "hardswish", "gelu", "gelu_tanh", "erf", "exp"]
MAPS_OF_TWO = ["add", "sub", "mul", "div"]


def gelu_operands(shape: tuple[int, ...], dtype: Any) -> list[Any]:
    rng = np.random.default_rng(math.prod(shape))
    arrays = [rng.standard_normal(shape), rng.standard_normal(shape[-1:]), math.sqrt(2), np.ones(1), 0.5]
    return [np.asarray(a).astype(dtype) for a in arrays]


def alike(got: Any, want: Any) -> bool:
    return got.shape == want.shape and got.dtype == want.dtype and got.tobytes() == want.tobytes()


@pytest.mark.parametrize("level", minorm_ext.levels())
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize(
    "shape", [(2, 197, 768), (5, 7), (3, 1), (1,), (2, 0), (40, LONGEST), (3, LONGEST + 1)], ids=str
)
def test_the_bits_of_one_after_the_other(shape: tuple[int, ...], dtype: Any, level: str) -> None:
    operands = gelu_operands(shape, dtype)
    before = minorm_ext.get_num_threads()
    with at_level(level):
        want = reference.chain(GELU, operands, shape, elementwise)
        try:
            for threads in (1, 2, 3):
                minorm_ext.set_num_threads(threads)
                assert alike(cpu.chain(GELU, operands, shape), want)
        finally:
            minorm_ext.set_num_threads(before)


@settings(max_examples=60)
@given(
    data=st.data(), shape=st.lists(st.integers(1, 30), min_size=1, max_size=4).map(tuple),
    dtype=st.sampled_from([np.float32, np.float64]), operands=st.integers(1, 4), count=st.integers(1, MOST_LINKS),
)  # fmt: skip
def test_any_chain(data: Any, shape: tuple[int, ...], dtype: Any, operands: int, count: int) -> None:
    """Whole operands in any layout, numbers and rows; links that read any source, once or more often."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    forms = [shape, *data.draw(st.lists(st.sampled_from([shape, (), shape[-1:], (1,)]), max_size=operands - 1))]
    given = [np.asarray(rng.standard_normal(form)).astype(dtype) for form in forms]
    given = [np.asfortranarray(a) if data.draw(st.booleans()) and a.ndim > 1 else a for a in given]
    links = []
    for i in range(count):
        whole = [0, *range(len(given), len(given) + i)]
        a = data.draw(st.sampled_from(whole))
        if data.draw(st.booleans()):
            links.append(Link(data.draw(st.sampled_from(MAPS_OF_ONE)), a))
        else:
            b = data.draw(st.integers(0, len(given) + i - 1))
            links.append(Link(data.draw(st.sampled_from(MAPS_OF_TWO)), a, b))
    links.append(Link("leaky_relu", len(given) + count - 1, None, 0.125) if count < MOST_LINKS else links.pop())
    with np.errstate(all="ignore"):
        want = reference.chain(links, given, shape, elementwise)
        got = cpu.chain(tuple(links), given, shape)
    np.testing.assert_array_equal(got, want)


def test_the_formula() -> None:
    """GELU of x + bias in float64, by the standard library's erfc, against the reference and the kernel in float32."""
    x, bias, *_ = operands = gelu_operands((3, 50), np.float32)
    t = x.astype(np.float64) + bias
    want = t * np.frompyfunc(math.erfc, 1, 1)(-t / math.sqrt(2)).astype(np.float64) / 2
    for backend in (reference, cpu):
        np.testing.assert_allclose(backend.chain(GELU, operands, x.shape), want, rtol=2e-6, atol=5e-7)


def test_too_long_a_chain_is_an_error() -> None:
    x = np.ones(5, np.float32)
    links = tuple(Link("relu", i) for i in range(MOST_LINKS + 1))
    with pytest.raises(ValueError, match=f"chain: {MOST_LINKS + 1} steps on 1 operands; expected at most {MOST_LINKS}"):
        cpu.chain(links, [x], x.shape)


def test_as_many_links_and_operands_as_there_can_be() -> None:
    operands = [np.full((3, 5), i, np.float32) for i in range(MOST_LINKS + 1)]
    first = Link("add", 0, 1)
    links = (first, *(Link("add", len(operands) + i, i + 2) for i in range(MOST_LINKS - 1)))
    np.testing.assert_array_equal(cpu.chain(links, operands, (3, 5)), sum(operands))
