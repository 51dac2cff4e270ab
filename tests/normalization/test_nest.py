"""The planner against brute force: visit every element through the loops and see where one lands."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minorm.normalization.nest import Loop, is_dense, plan


def strides_of(shape, order):
    """Steps in elements of a gapless array whose axes lie in memory in this order, widest first."""
    steps, step = [0] * len(shape), 1
    for axis in reversed(order):
        steps[axis] = step
        step *= shape[axis]
    return tuple(steps)


@st.composite
def problems(draw):
    rank = draw(st.integers(1, 6))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=rank, max_size=rank)))
    order = draw(st.permutations(range(rank)))
    axes = tuple(sorted(draw(st.sets(st.integers(0, rank - 1)))))
    groups = 1
    if rank > 1 and 1 not in axes:
        groups = draw(st.sampled_from([g for g in (1, 2, 3, 4, 6) if shape[1] % g == 0]))
    param = tuple(sorted(draw(st.sets(st.integers(0, rank - 1 + (groups > 1))))))
    strides = None if order == list(range(rank)) else strides_of(shape, order)
    return shape, axes, groups, param, strides


def visits(loops):
    """(number of the turn, data offset, parameter offset) of all turns of some loops, the last one turning fastest."""
    for turn, indices in enumerate(itertools.product(*[range(loop.count) for loop in loops])):
        yield (
            turn,
            sum(i * loop.data for i, loop in zip(indices, loops, strict=True)),
            sum(i * loop.param for i, loop in zip(indices, loops, strict=True)),
        )


@settings(max_examples=150, deadline=None)
@given(problems())
def test_loops_visit_every_element_once_with_its_statistic_and_parameter(problem):
    shape, axes, groups, param, strides = problem
    nest = plan(shape, axes, groups, param, strides)

    # The data: each element is its own address, seen through the shape after the split.
    steps = strides or strides_of(shape, range(len(shape)))
    memory = np.arange(prod(shape))
    data = np.lib.stride_tricks.as_strided(memory, shape, [8 * step for step in steps]).reshape(nest.shape)
    statistic = np.broadcast_to(nest.statistics(np.arange(nest.rows)).reshape(nest.keepdims_shape), nest.shape)
    # The parameters: numbered as the nest wants them, brought to the logical order of their axes.
    varying = [n for n, axis in zip(nest.shape, nest.axes, strict=True) if axis.varies]
    order = nest.param_order or tuple(range(len(varying)))
    numbers = np.arange(nest.param_size).reshape([varying[i] for i in order])
    numbers = numbers.transpose([order.index(i) for i in range(len(order))])
    wide = numbers.reshape([n if axis.varies else 1 for n, axis in zip(nest.shape, nest.axes, strict=True)])
    parameter = np.broadcast_to(wide, nest.shape)
    expected = {
        int(address): (int(row), int(number))
        for address, row, number in zip(data.flat, statistic.flat, parameter.flat, strict=True)
    }

    seen = {}
    for row, data0, param0 in visits(nest.keep):
        for _, data1, param1 in visits(nest.reduce):
            assert data0 + data1 not in seen
            seen[data0 + data1] = (row, param0 + param1)
    assert seen == expected
    assert nest.rows * nest.columns == prod(shape)


@settings(max_examples=50, deadline=None)
@given(problems())
def test_statistics_and_flat_are_inverse(problem):
    nest = plan(*problem)
    flat = np.arange(nest.rows)
    assert nest.statistics(flat).shape == nest.kept_shape
    np.testing.assert_array_equal(nest.flat(nest.statistics(flat)), flat)


@pytest.mark.parametrize(
    ("arguments", "keep", "reduce"),
    [
        (((32, 64, 56, 56), (0, 2, 3), 1, (1,)), [(64, 3136, 1)], [(32, 200704, 0), (3136, 1, 0)]),
        (((8, 64, 56, 56), (2, 3), 1, (1,)), [(8, 200704, 0), (64, 3136, 1)], [(3136, 1, 0)]),
        (((8, 64, 56, 56), (2, 3), 8, (1, 2)), [(8, 200704, 0), (8, 25088, 8)], [(8, 3136, 1), (3136, 1, 0)]),
        (((8, 128, 768), (2,), 1, (2,)), [(1024, 768, 0)], [(768, 1, 1)]),
        (((8, 64, 56, 56), (2, 3), 8, (1,)), [(8, 200704, 0), (8, 25088, 1)], [(25088, 1, 0)]),
        (((32, 16, 7, 7), (0,), 1, (1, 2, 3)), [(784, 1, 1)], [(32, 784, 0)]),
        (((32, 64, 56, 56), (0, 2, 3), 1, (1,), (200704, 1, 3584, 64)), [(64, 1, 1)], [(100352, 64, 0)]),
    ],
    ids=["batch", "instance", "group", "layer", "group-18", "batch-7 spatial=0", "batch channels-last"],
)
def test_the_loops_of_the_design(arguments, keep, reduce):
    nest = plan(*arguments)
    assert nest.keep == tuple(Loop(*loop) for loop in keep)
    assert nest.reduce == tuple(Loop(*loop) for loop in reduce)


def test_every_axes_mask_fits_up_to_rank_4():
    for rank in range(1, 5):
        for size in range(rank + 1):
            for axes in itertools.combinations(range(rank), size):
                assert plan((2, 3, 4, 5)[:rank], axes).fits
    assert not plan((2, 3, 2, 3, 2), (0, 2, 4)).fits  # three reduced loops
    assert plan((2, 3, 2, 3, 2), (0, 2, 4)).code == b""


def test_lanes_whose_parameters_vary_both_ways_do_not_fit():
    assert plan((4, 5), (0,), 1, (1,)).fits
    assert plan((4, 5), (0,), 1, (0,)).fits
    assert not plan((4, 5), (0,), 1, (0, 1)).fits


def test_plans_are_shared():
    assert plan((2, 3, 4), (0, 2), 1, (1,)) is plan((2, 3, 4), (0, 2), 1, (1,))


def test_groups_must_divide_and_strides_must_leave_no_gaps():
    with pytest.raises(ValueError, match=r"num_groups=3 must divide channels=8; shape is \(2, 8, 4, 4\)"):
        plan((2, 8, 4, 4), (2, 3), 3)
    with pytest.raises(ValueError, match="leave gaps"):
        plan((2, 3), (1,), 1, (), (6, 2))
    assert is_dense((2, 3), (3, 1))
    assert is_dense((2, 3), (1, 2))
    assert is_dense((2, 1, 3), (3, 99, 1))
    assert not is_dense((2, 3), (6, 2))
    assert not is_dense((2, 3), (0, 1))


def test_str_shows_the_loops():
    text = str(plan((8, 64, 56, 56), (2, 3), 8, (1, 2)))
    assert "64 statistics over 25088 elements each" in text
    assert "data step   200704, same parameters" in text
    assert "data step    25088, parameters step 8" in text
