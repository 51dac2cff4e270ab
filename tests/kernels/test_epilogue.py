"""A convolution's epilogue has the bits of BatchNorm in evaluation and Relu or Clip after the convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm as mn
import minorm.functional as F
import minorm_ext
from minorm.devices import dtypes
from minorm.kernels.cpu import conv as cpu
from minorm.kernels.cpu import conv_layout, conv_plan
from minorm.kernels.epilogue import applied, epilogue
from minorm.kernels.protocol import Statistics
from minorm.kernels.reference import conv as reference
from minorm.normalization.equation import Equation

CASES = [  # x, w, stride, padding, groups, and the way
    ((3, 5, 9, 33), (7, 5, 3, 3), 2, 1, 1, "rows"),
    ((2, 24, 7, 21), (11, 24, 1, 1), 1, 0, 1, "rows of x itself"),
    ((2, 5, 9, 41), (5, 1, 3, 3), 1, 1, 5, "tall"),
    ((20, 6, 4, 4), (8, 3, 3, 3), 2, 1, 2, "images"),
    ((3, 6, 5, 6), (8, 3, 3, 2), 1, 1, 2, "lines"),
    ((4, 32, 14, 13), (33, 32, 3, 3), 1, 1, 1, "tiles"),
    ((2, 16, 1, 1), (9, 16, 1, 1), 1, 0, 1, "one pixel"),
]


def arrays(x_shape: Any, w_shape: Any, dtype: Any = np.float32) -> tuple[Any, ...]:
    rng = np.random.default_rng(sum(x_shape))
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))
    b, mean, scale, shift = rng.standard_normal((4, w_shape[0])).astype(dtype)
    return x, w, b, mean, rng.uniform(0.5, 2, w_shape[0]).astype(dtype), scale, shift


def how_of(stride: int, padding: int, groups: int) -> Any:
    return (stride, stride), ((padding, padding),) * 2, (1, 1), groups


def one_after_the_other(x: Any, w: Any, b: Any, norm: Any, how: Any, low: Any, high: Any) -> Any:
    """The public functions, a pass each."""
    y = mn.from_numpy(cpu.forward(x, w, b, *how))
    y = F.batch_norm(y, *map(mn.from_numpy, norm), eps=1e-3)
    if (low, high) == (0, None):
        y = F.relu(y)
    elif (low, high) != (None, None):
        y = y.clip(low, high)
    return y.numpy()


def same_bits(got: Any, expected: Any) -> None:
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan)
    assert np.where(nan, 0, got).tobytes() == np.where(nan, 0, expected).tobytes()


def table_of(norm: Any, low: Any, high: Any, dtype: Any) -> Any:
    mean, var, s, shift = norm
    stats = Statistics.given(mean, var, Equation(1e-3), dtype)
    return epilogue(len(mean), dtype, stats, s, shift, low, high)


@pytest.mark.parametrize("level", minorm_ext.levels())
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=[case[-1] for case in CASES])
def test_the_bits_of_one_after_the_other(case: Any, dtype: Any, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 bits are rounded after each pass, so they have those bits too."""
    monkeypatch.setattr(conv_plan, "kernels", minorm_ext.kernels("conv", level))
    monkeypatch.setattr(cpu, "_maps", minorm_ext.kernels("elementwise", level))
    plans = (conv_plan.forward, conv_plan.grad_input)
    for plan in plans:
        plan.cache_clear()
    how = how_of(*case[2:5])
    x, w, b, *norm = arrays(*case[:2], dtype)
    x[-1, 0, 0, 0] = np.nan
    computed = dtypes.compute_type(np.dtype(dtype))
    for low, high, bias in ((0, None, b), (0.0, 6.0, None), (None, None, b), (None, 0.5, None), (-0.25, None, b)):
        expected = one_after_the_other(x, w, bias, norm, how, low, high)
        same_bits(cpu.forward(x, w, bias, *how, epilogue=table_of(norm, low, high, computed)), expected)
    alone = cpu.forward(x, w, b, *how, epilogue=epilogue(len(w), computed, low=0))
    same_bits(alone, F.relu(mn.from_numpy(cpu.forward(x, w, b, *how))).numpy())
    dy = np.nan_to_num(alone)
    held = np.random.default_rng(1).standard_normal(x.shape).astype(dtype)
    same_bits(cpu.grad_input(dy, w, x.shape, *how, accumulate=held), cpu.grad_input(dy, w, x.shape, *how) + held)
    for plan in plans:
        plan.cache_clear()


@settings(max_examples=40)
@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)), kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)), dilation=st.integers(1, 2), images=st.integers(1, 18),
    channels=st.integers(1, 4), outputs=st.integers(1, 9), groups=st.integers(1, 2), cache=st.sampled_from([1, 1 << 19])
)  # fmt: skip
def test_any_shape(
    size: Any, kernel: Any, stride: Any, dilation: int, images: int, channels: int, outputs: int, groups: int,
    cache: int,
) -> None:  # fmt: skip
    """The epilogue, and a gradient that is added to another one; a tiny cache cuts planes into strips."""
    how: Any = stride, ((dilation * kernel[0], 1), (1, dilation * kernel[1])), (dilation, dilation), groups
    x, w, b, *norm = arrays((images, groups * channels, *size), (groups * outputs, channels, *kernel))
    before, conv_layout.CACHE = conv_layout.CACHE, cache
    try:
        for plan in (conv_plan.forward, conv_plan.grad_input):
            plan.cache_clear()
        table = table_of(norm, 0.0, 1.0, np.float32)
        y = cpu.forward(x, w, b, *how)
        same_bits(cpu.forward(x, w, b, *how, epilogue=table), applied(y, table))
        accumulated = cpu.grad_input(y, w, x.shape, *how, accumulate=x)
        same_bits(accumulated, cpu.grad_input(y, w, x.shape, *how) + x)
    finally:
        conv_layout.CACHE = before
        for plan in (conv_plan.forward, conv_plan.grad_input):
            plan.cache_clear()


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.bfloat16])
def test_the_reference(dtype: Any) -> None:
    """Results a rounding apart in 16 bits; the formula in float64 says what is right."""
    x, w, b, *norm = (a.astype(dtype) for a in arrays(*CASES[0][:2]))
    how = how_of(*CASES[0][2:5])
    mean, var, s, shift = (a.astype(np.float64)[:, None, None] for a in norm)
    wide = reference.forward(*(a.astype(np.float64) for a in (x, w, b)), *how)
    right = np.clip((wide - mean) / np.sqrt(var + 1e-3) * s + shift, 0, 6)
    table = table_of(norm, 0.0, 6.0, np.float32)
    for backend in (reference, cpu):
        y = backend.forward(x, w, b, *how, epilogue=table)
        assert y.dtype == dtype
        assert np.abs(y.astype(np.float64) - right).max() < (1e-5 if dtype == np.float32 else 0.2)


@pytest.mark.parametrize("backend", [reference, cpu])
def test_wrong_arguments_are_named(backend: Any) -> None:
    x, w, *_ = arrays(*CASES[0][:2])
    how = how_of(*CASES[0][2:5])
    with pytest.raises(ValueError, match=r"conv.forward: epilogue has shape \(6, 7\) .* expected \(7, 7\) and float32"):
        backend.forward(x, w, None, *how, epilogue=epilogue(6, np.float32))
    dy = backend.forward(x, w, None, *how)
    with pytest.raises(
        ValueError, match=r"conv.grad_input: accumulate has shape \(3, 7, 5, 17\) .* expected the shape"
    ):
        backend.grad_input(dy, w, x.shape, *how, accumulate=dy)
