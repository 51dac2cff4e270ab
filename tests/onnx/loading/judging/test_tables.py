from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.onnx.loading.judging import judge, tables

F32 = np.float32
rng = np.random.default_rng(0)
angles = np.arange(6)[:, None] * 1e4 ** -(np.arange(4) / 4)
waves = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(6, 8)
row = np.array([1, 2, 1]) / 4


@pytest.mark.parametrize(
    ("array", "table"),
    [
        (np.triu(np.full((4, 4), -np.inf), 1), True),
        (np.triu(np.full((1, 4, 4), -100.0), 1), True),
        (waves[None], True),
        (np.concatenate([np.sin(angles), np.cos(angles)], 1), True),
        (waves.T[None, :, :, None], True),
        (1e4 ** -(np.arange(4) / 4), True),
        (np.arange(7.0), True),
        (np.broadcast_to(np.outer(row, row), (5, 1, 3, 3)), True),
        (np.ones((4, 4)), False),
        (np.zeros(4), False),
        (np.full((3, 1, 3, 3), 0.1), False),
        (np.array(-np.inf), False),
        (np.arange(3.0), False),
        (rng.standard_normal((4, 4)), False),
        (rng.standard_normal((8, 1, 3, 3)), False),
        (rng.standard_normal(16), False),
        (np.array([-60.0, 0.5, 1, 2]), False),
    ],
)
def test_a_table_has_a_formula(array: Any, table: bool) -> None:
    assert bool(tables.formula(array.astype(F32))) is table


def test_what_follows_a_buffer_of_a_module_is_another() -> None:
    def draw() -> Any:
        return rng.standard_normal(5).astype(F32)

    held = {
        "token": draw(),
        "index": np.arange(5),
        "scale": draw(),
        "a.weight": draw(),
        "a.running_mean": draw(),
        "a.other": draw(),
        "a.b.weight": draw(),
        "a.b.noise_const": draw(),
        "head.anchors": draw(),
        "head.m.weight": draw(),
        "onnx::MatMul_7": draw(),
    }
    buffers = {"index", "scale", "a.running_mean", "a.other", "a.b.noise_const", "head.anchors"}
    assert set(judge.buffers_of(held)) == buffers


# The same of weights: bases of a transform, banks and filters, and never numbers that were drawn


def stft(n: int, window: Any) -> Any:
    t, k = np.arange(n), np.arange(n // 2 + 1)[:, None]
    return np.concatenate([np.cos(2 * np.pi * k * t / n), -np.sin(2 * np.pi * k * t / n)]) * window


def mel(bins: int, count: int) -> Any:
    edges = np.linspace(0, 1, count + 2) ** 1.6 * (bins - 1)
    where = np.arange(bins)[:, None]
    rise, fall = (where - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - where) / np.diff(edges)[1:]
    return np.maximum(0, np.minimum(rise, fall))


def cosines(n: int, count: int) -> Any:
    return np.cos(np.pi / n * (np.arange(n)[:, None] + 0.5) * np.arange(count))


LONG = np.arange(300)[:, None] * 1e4 ** -(np.arange(32) / 32)
SCALED = cosines(16, 16) * np.where(np.arange(16) == 0, np.sqrt(1 / 16), np.sqrt(2 / 16))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(
    "array",
    [
        stft(32, np.hanning(33)[:-1])[:, None],
        stft(64, np.hamming(64)),
        stft(64, np.ones(64)).T,
        stft(400, np.blackman(400))[:, None],
        (stft(64, np.kaiser(64, 6)) / 64).T[:, None],
        cosines(20, 13),
        SCALED,
        SCALED.T,
        np.cos(LONG),
        np.sin(LONG).T,
        mel(65, 16),
        mel(201, 40).T,
        (np.sinc((np.arange(12) - 5.5) / 3) * np.hanning(12))[None, None],
        np.broadcast_to(np.outer(row, row), (5, 1, 3, 3)),
    ],
)
def test_a_basis_is_known_even_as_a_weight(array: Any, dtype: Any) -> None:
    assert tables.basis(array.astype(dtype))


SLOPES = 2.0 ** -np.array([1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5])
ROWS, COLUMNS = np.meshgrid(np.linspace(-1, 1, 7), np.linspace(0, 1, 9), indexing="ij")


@pytest.mark.parametrize(
    "array",
    [
        SLOPES[:, None, None],
        SLOPES[:8, None, None] * np.arange(10),
        np.stack([ROWS, COLUMNS])[None],
        ROWS,
        np.hanning(16),
        np.hamming(25)[:-1],
        np.kaiser(14, 5.0),
        np.linspace(0, 1, 40).reshape(5, 8),
    ],
)
def test_beside_values_of_the_network_windows_slopes_and_grids_are_known_too(array: Any) -> None:
    assert tables.formula(array.astype(F32))


@pytest.mark.parametrize("seed", range(20))
def test_no_formula_makes_what_was_drawn(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    for shape in [
        (5,),
        (8,),
        (64,),
        (4, 4),
        (6, 5),
        (16, 64),
        (4, 1, 5),
        (8, 3, 3, 3),
        (4, 1, 7),
        (2, 8, 6),
        (64, 1, 16),
    ]:
        for array in (
            drawn.standard_normal(shape),
            drawn.uniform(0, 1, shape),
            1 + 0.02 * drawn.standard_normal(shape),
        ):
            for dtype in (np.float32, np.float16):
                numbers = array.astype(dtype)
                found = tables.basis(numbers), tables.formula(numbers), tables.fixed_filters(numbers)
                assert found == ("", "", ""), (shape, dtype)
                assert dtype == np.float16 or not tables.few_numbers(numbers)
        assert not tables.formula(np.zeros(shape, F32))
        assert not tables.formula(np.full(shape, 0.3, F32))


def test_numbers_of_a_program_are_few() -> None:
    strides = np.repeat([8, 16, 32], [64, 16, 4]).astype(F32)
    assert tables.few_numbers(strides[None, :, None]) == "few different numbers, repeated"
    assert tables.few_numbers((rng.random((6, 6)) > 0.5).astype(F32)) == "zeros and ones"
    short = rng.standard_normal((40, 40)).astype(np.float16).astype(F32)  # weights that once were of 16 bits
    assert tables.few_numbers(short) == ""
    sobel = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]], F32)
    assert tables.fixed_filters(np.stack([sobel, sobel.T])[:, None] / 8)
    assert tables.fixed_filters(sobel[None, None])


@pytest.mark.parametrize("shape", [(8,), (1, 64, 1, 1), (16, 3), (2, 8, 8)])
@pytest.mark.parametrize("moved", [1e-7, 1e-5, 1e-4])
def test_a_scale_that_has_hardly_moved_from_ones_has_no_formula(shape: tuple[int, ...], moved: float) -> None:
    noise = np.random.default_rng(0).standard_normal(shape)
    array = (1 - moved * noise).astype(np.float32)
    assert tables.formula(array) == ""
