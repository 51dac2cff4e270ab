"""Convolutions of bfloat16: the reference against float64, every level and number of threads against the reference."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm_ext
from minorm.devices.dtypes import bfloat16
from minorm.kernels.cpu import conv as cpu
from minorm.kernels.cpu import conv_axes, conv_products
from minorm.kernels.cpu.memory import empty
from minorm.kernels.reference import conv as reference
from tests.kernels.test_conv import CASES, in_guarded_memory
from tests.levels import at_level

SEEDS = st.integers(0, 2**32 - 1)


def numbers(shape, seed, exponent=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 2.0 ** (exponent + rng.integers(-6, 4, shape))).astype(bfloat16)


def three_sums(conv, x, w, b, dy, how):
    """y, dx, dW and db, in float64 too."""
    return [conv.forward(x, w, b, *how), conv.grad_input(dy, w, x.shape, *how), *conv.grad_weight(dy, x, w.shape, *how)]


def check(x, w, b, how):
    """All sums: the reference is near float64, and every level has its bits."""
    y_shape = reference.checked("", x.shape, w.shape, *how)
    dy = numbers(y_shape, 7)
    expected = three_sums(reference, x, w, b, dy, how)
    wide = [a.astype(np.float64) for a in (x, w, b, dy)]
    exact = three_sums(reference, *wide, how)
    sizes = three_sums(reference, *map(abs, wide), how)
    for name, got, right, size in zip(["y", "dx", "dw", "db"], expected, exact, sizes, strict=True):
        np.testing.assert_array_less(
            abs(got.astype(np.float64) - right), 2**-8 * abs(right) + 1e-6 * size + 1e-30, name
        )
    before = minorm_ext.get_num_threads()
    try:
        for level in minorm_ext.levels():
            for threads in (1, 2):
                minorm_ext.set_num_threads(threads)
                with at_level(level):
                    found = three_sums(cpu, x, w, b, dy, how)
                for name, got, right in zip(["y", "dx", "dw", "db"], found, expected, strict=True):
                    assert got.tobytes() == right.tobytes(), (name, level, threads)
    finally:
        minorm_ext.set_num_threads(before)


@given(
    images=st.sampled_from([1, 2, 5]),
    channels=st.sampled_from([(1, 1, 6), (1, 3, 8), (1, 16, 20), (2, 5, 2), (1, 9, 33), (3, 1, 2)]),
    size=st.tuples(st.integers(3, 9), st.integers(3, 11)),
    kernel=st.sampled_from([(1, 1), (3, 3), (2, 4)]),
    stride=st.integers(1, 3),
    low=st.integers(0, 2),
    high=st.integers(-1, 2),
    dilation=st.integers(1, 2),
    seed=SEEDS,
)
def test_every_level_has_the_bits_of_the_reference(images, channels, size, kernel, stride, low, high, dilation, seed):
    groups, inputs, outputs = channels
    size = tuple(max(n, dilation * (k - 1) + 2) for n, k in zip(size, kernel, strict=True))
    how = (stride,) * 2, ((low, high),) * 2, (dilation,) * 2, groups
    x = numbers((images, groups * inputs, *size), seed)
    w, b = numbers((groups * outputs, inputs, *kernel), seed + 1), numbers(groups * outputs, seed + 2)
    check(x, w, b, how)


@pytest.mark.parametrize("case", [case for case in CASES if np.prod(case[0]) * np.prod(case[1]) < 1e6])
def test_the_cases_of_float32(case):
    check(numbers(case[0], 1), numbers(case[1], 2), numbers(case[1][0], 3), case[2:])


@pytest.mark.parametrize(
    ("size", "kernel", "stride"),
    [((9,), (3,), (2,)), ((4, 5, 6), (2, 3, 3), (1, 2, 1)), ((1, 1), (1, 1), (1, 1)), ((2, 2), (2, 2), (1, 1)),
     ((5, 4), (4, 4), (5, 5))],
)  # fmt: skip
def test_other_ranks_and_small_images(size, kernel, stride):
    """Images of few pixels share a depth in the gradient for the weights."""
    how = stride, ((1, 0),) * len(size), (1,) * len(size), 1
    check(numbers((37, 3, *size), 1), numbers((5, 3, *kernel), 2), numbers(5, 3), how)


def test_strips_of_large_images(monkeypatch):
    """Where a plane would not fit the cache; the blocks of a weight's depth do not end with a strip."""
    monkeypatch.setattr(conv_products, "PLANE", 600)
    for how in [((1, 1), ((1, 1),) * 2, (1, 1), 1), ((2, 2), ((1, 0),) * 2, (1, 2), 1)]:
        axes = conv_axes.forward((2, 4, 33, 12), (3, 4, 3, 3), *how[:3])
        assert conv_products.Cut(axes, 2, 4, False).strips > 1
        check(numbers((2, 4, 33, 12), 1), numbers((3, 4, 3, 3), 2), numbers(3, 3), how)
    check(numbers((1, 2, 1, 400), 1), numbers((3, 2, 1, 5), 2), numbers(3, 3), ((1, 1), ((0, 0), (2, 2)), (1, 1), 1))
    for plan in (conv_products.forward, conv_products.grad_input, conv_products.grad_weight):
        plan.cache_clear()


@pytest.mark.parametrize("exponent", [-64, 63])
def test_products_beyond_float32(exponent):
    """Where baseline's two roundings would not be one."""
    how = (1, 1), ((1, 1),) * 2, (1, 1), 1
    x, w = numbers((2, 3, 5, 6), 1, exponent), numbers((4, 3, 3, 3), 2, exponent)
    y = reference.forward(x, w, None, *how)
    dw = reference.grad_weight(y, x, w.shape, *how, False)[0]
    assert not np.isfinite(y.astype(np.float64)).all() or (y == 0).any()
    for level in minorm_ext.levels():
        with at_level(level):
            found = cpu.forward(x, w, None, *how), cpu.grad_weight(y, x, w.shape, *how, False)[0]
        for got, expected in zip(found, (y, dw), strict=True):
            np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))


def test_a_result_without_elements():
    """A kernel that is larger than the image by one place."""
    how = (1, 1), ((0, 0),) * 2, (1, 1), 1
    y = cpu.forward(numbers((2, 3, 4, 4), 1), numbers((5, 3, 5, 2), 2), None, *how)
    assert y.shape == (2, 5, 0, 3)
    assert cpu.grad_input(y, numbers((5, 3, 5, 2), 2), (2, 3, 4, 4), *how).shape == (2, 3, 4, 4)
    assert not cpu.grad_weight(y, numbers((2, 3, 4, 4), 1), (5, 3, 5, 2), *how)[0].any()


def test_accumulate_and_other_memory():
    """dx plus what is there, rounded each by itself; strides of every kind by copy."""
    how = (1, 1), ((1, 1),) * 2, (1, 1), 1
    x, w = numbers((2, 3, 5, 6), 1), numbers((4, 3, 3, 3), 2)
    dy, total = numbers((2, 4, 5, 6), 3), numbers(x.shape, 4)
    got = cpu.grad_input(dy, w, x.shape, *how, None, total)
    np.testing.assert_array_equal(got, cpu.grad_input(dy, w, x.shape, *how) + total)
    odd = np.asfortranarray(x), w[:, :, ::-1][:, :, ::-1], numbers((4, 2), 5)[:, 0]
    same = x, w, np.ascontiguousarray(odd[2])
    np.testing.assert_array_equal(cpu.forward(*odd, *how), cpu.forward(*same, *how))


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect through ctypes")
@pytest.mark.parametrize("level", minorm_ext.levels())
def test_no_address_is_outside_the_arrays(level):
    result = in_guarded_memory("products", level)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


@pytest.mark.parametrize("level", minorm_ext.levels())
def test_the_kernel_itself_refuses_short_arrays(level):
    """The last gate: whatever Python believes of the shapes, memory of the plan's size is there."""
    how = (1, 1), ((1, 1),) * 2, (1, 1), 1
    x, w, b, dy = numbers((2, 3, 5, 6), 1), numbers((4, 3, 3, 3), 2), numbers(4, 3), numbers((2, 4, 5, 6), 4)
    with at_level(level):
        forward, _ = conv_products.forward(x.shape, w.shape, *how)
        weights = conv_products.grad_weight(dy.shape, x.shape, w.shape, *how)
    for i in range(4):
        short = [a.ravel()[:-1] if i == j else a for j, a in enumerate((x, w, b, dy.copy()))]
        with pytest.raises(ValueError, match=r"kernel: array has \d+ elements; expected at least \d+"):
            forward.correlate(*short, empty, False, 1)
    for i in range(3):
        short = [a.ravel()[:-1] if i == j else a for j, a in enumerate((dy, x, w.copy()))]
        with pytest.raises(ValueError, match=r"kernel: array has \d+ elements; expected at least \d+"):
            weights.weight_gradient(*short, empty, 1)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"conv\.forward: b\.shape is"):
        cpu.forward(numbers((1, 3, 5, 5), 1), numbers((4, 3, 3, 3), 2), numbers(5, 3), (1, 1), ((0, 0),) * 2, (1, 1), 1)
