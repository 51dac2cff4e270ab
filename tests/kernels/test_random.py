"""Philox's words against those that its authors published and against NumPy's; dropout against its formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels import cpu, reference
from minorm.kernels.reference.random import _stirred, threshold

BACKENDS = [cpu.random, reference.random]
LARGEST = 2**64 - 1
WORDS = st.integers(0, LARGEST)
FLOATS = [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]


@pytest.fixture(params=minorm_ext.levels(), autouse=True)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu.random, "_kernels", minorm_ext.kernels("random", request.param))


@pytest.mark.parametrize(
    ("number", "key", "words"),
    [
        ([0] * 4, [0] * 2, "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b"),
        ([LARGEST] * 4, [LARGEST] * 2, "87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0"),
        (
            [0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89],  # the digits of pi
            [0x452821E638D01377, 0xBE5466CF34E90C6C],
            "a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6",
        ),
    ],
)
def test_the_known_answers_of_random123(number: list[int], key: list[int], words: str) -> None:
    found = _stirred(*(np.array([word], np.uint64) for word in number), *key)
    assert " ".join(f"{int(word[0]):016x}" for word in found) == words


def numpys(before: int, rank: int, key: tuple[int, int]) -> np.random.Generator:
    counter = np.array([before, 0, rank, 1], np.uint64)
    return np.random.Generator(np.random.Philox(counter=counter, key=np.array(key, np.uint64)))


@given(
    st.sampled_from([0, 1, 7, 8, 9, 255, 257, 8192, 8199, 20_001]) | st.integers(0, 3000),
    st.integers(0, 2**63),
    WORDS,
    st.tuples(WORDS, WORDS),
    st.sampled_from([dtypes.float32, dtypes.float64]),
)
def test_uniform_numbers_are_those_that_numpy_makes_of_the_same_blocks(n, before, rank, key, dtype):
    expected = numpys(before, rank, key).random(n, dtype)
    for backend in BACKENDS:
        found = backend.uniform((n,), dtype, (before, rank, *key))
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("p", [0.0, 1e-9, 0.3, 0.5, 1 - 2.0**-33, 1.0])
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 13), (3, 3001)])
def test_dropout_keeps_the_elements_whose_words_are_large_enough(
    shape: tuple[int, ...], p: float, dtype: Any, rng: np.random.Generator
) -> None:
    x, blocks = rng.standard_normal(shape).astype(dtype), (11, 2, 3, 4)
    words = numpys(11, 2, (3, 4)).integers(0, 2**32 - 1, shape, np.uint32, endpoint=True)
    kept = words >= min(round(p * 2**32), 2**32 - 1)
    factor = dtypes.compute_type(dtype).type(1 / (1 - p) if p < 1 else 0)
    expected = (x * (kept * factor)).astype(dtype)
    for backend in BACKENDS:
        y, found = backend.dropout(x, p, blocks)
        assert (y.dtype, found.dtype) == (dtype, dtypes.bool)
        np.testing.assert_array_equal(found, kept)
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(backend.keep(x, kept, p), expected)


def test_an_element_has_its_word_in_any_layout_and_on_any_number_of_threads(rng: np.random.Generator) -> None:
    x, blocks = rng.standard_normal((40, 30, 7, 9)).astype(np.float32), (0, 0, 1, 2)
    before, results = minorm_ext.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            minorm_ext.set_num_threads(threads)
            layouts = x, np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1), np.repeat(x, 2, 3)[..., ::2]
            results += [cpu.random.dropout(layout, 0.4, blocks)[0] for layout in layouts]
            results.append(cpu.random.keep(x, cpu.random.dropout(x, 0.4, blocks)[1], 0.4))
    finally:
        minorm_ext.set_num_threads(before)
    for result in results:
        np.testing.assert_array_equal(result, results[0])
    large = cpu.random.uniform((2**21 + 3,), dtypes.float64, blocks)  # around the cache
    np.testing.assert_array_equal(large, numpys(0, 0, (1, 2)).random(len(large)))


def test_dropped_infinities_are_nan_as_in_pytorch() -> None:
    x = np.array([np.inf, np.nan, -1.0], np.float32)
    for backend in BACKENDS:
        np.testing.assert_array_equal(backend.keep(x, np.zeros(3, bool), 0.5), [np.nan, np.nan, -0.0])


def test_the_share_that_is_dropped() -> None:
    assert threshold(0.25) == (2**30, 1 / 0.75)
    assert threshold(1.0) == (2**32 - 1, 0.0)
    for p in (0.1, 0.9):
        _, kept = cpu.random.dropout(np.ones(400_000, np.float32), p, (5, 0, 6, 7))
        assert kept.mean() == pytest.approx(1 - p, abs=0.003)
