"""Arrays and parameters on their way to the kernels and back: nothing may be lost, whatever the order in memory."""

from __future__ import annotations

import numpy as np
import pytest

from minorm.normalization.layout import CopiedLayout, Layout, arrange, layout_of, same_order
from minorm.normalization.nest import plan


def permuted(shape, order):
    x = np.arange(np.prod(shape), dtype=np.float64).reshape([shape[i] for i in order])
    return x.transpose(np.argsort(order))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)])
def test_gapless_arrays_are_not_copied(order):
    x = permuted((2, 3, 4, 5), order)
    layout, data = arrange(x, (0, 2, 3), 1, (1,))
    assert data is x
    assert type(layout) is Layout
    assert layout.data(x) is x
    assert layout.result(x, x) is x


@pytest.mark.parametrize(
    "x",
    [
        np.arange(48.0).reshape(2, 4, 6)[:, ::2],
        np.arange(24.0).reshape(2, 3, 4)[::-1],
        np.broadcast_to(np.arange(4.0), (2, 3, 4)),
        np.frombuffer(b"\0" + np.arange(24.0).tobytes(), np.uint8)[1:].view(np.float64).reshape(2, 3, 4),
    ],
    ids=["gaps", "negative", "broadcast", "unaligned"],
)
def test_other_arrays_are_copied(x):
    _, data = arrange(x, (0,), 1, ())
    assert data.flags.c_contiguous
    assert data.flags.aligned
    np.testing.assert_array_equal(data, x)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2)])
def test_parameters_lie_as_the_data(order):
    x = permuted((2, 3, 4, 5), order)
    layout, _ = arrange(x, (1, 2, 3), 1, (1, 2, 3))
    s = np.arange(60.0).reshape(3, 4, 5)
    flat = layout.parameter(s)
    np.testing.assert_array_equal(flat.ravel(), s.transpose([i - 1 for i in order[1:]]).ravel())
    np.testing.assert_array_equal(layout.parameter_gradient(flat.ravel(), s), s)
    assert layout.parameter(None) is None


def test_a_nest_that_does_not_fit_becomes_a_matrix():
    shape = (2, 3, 2, 3, 2)
    x = permuted(shape, (0, 1, 2, 3, 4))
    layout, _ = arrange(x, (0, 2, 4), 1, (1, 2))
    assert type(layout) is CopiedLayout
    assert layout.nest.fits
    matrix = layout.data(x)
    assert matrix.shape == (9, 8)
    np.testing.assert_array_equal(matrix, x.transpose(1, 3, 0, 2, 4).reshape(9, 8))
    np.testing.assert_array_equal(layout.result(matrix, x), x)

    s = np.arange(6.0).reshape(3, 2)
    wide = np.broadcast_to(s[None, :, :, None, None], shape)
    np.testing.assert_array_equal(layout.parameter(s), wide.transpose(1, 3, 0, 2, 4).ravel())
    np.testing.assert_array_equal(layout.parameter_gradient(layout.parameter(s), s), s * 12)

    flat = np.arange(9.0)
    np.testing.assert_array_equal(layout.statistics(flat), flat.reshape(3, 3))
    np.testing.assert_array_equal(layout.flat(layout.statistics(flat)), flat)


def test_statistics_in_another_memory_order():
    x = permuted((2, 3, 4), (1, 0, 2))
    layout, _ = arrange(x, (2,), 1, ())
    flat = layout.flat(np.arange(6.0).reshape(2, 3))
    assert layout.nest is plan((2, 3, 4), (2,), 1, (), tuple(s // 8 for s in x.strides))
    np.testing.assert_array_equal(layout.statistics(flat), np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(flat, [0, 3, 1, 4, 2, 5])


def test_same_order():
    x = permuted((2, 3, 4), (0, 2, 1))
    dy = np.random.default_rng(0).standard_normal((2, 3, 4))
    copy = same_order(dy, x)
    assert copy.strides == x.strides
    np.testing.assert_array_equal(copy, dy)
    assert same_order(copy, x) is copy


def test_layouts_are_shared():
    assert layout_of((2, 3), None, (0,), 1, ()) is layout_of((2, 3), None, (0,), 1, ())
