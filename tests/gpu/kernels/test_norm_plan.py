"""Grids and loops of the GPU's normalization kernels: plain arithmetic, looked at from all sides without a device."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minorm.devices import dtypes
from minorm.kernels.gpu import launch
from minorm.kernels.gpu.plans import norm_plan, relay_plan, short_plan
from minorm.normalization.nest import Nest, plan

BATCH = plan((32, 64, 56, 56), (0, 2, 3), 1, (1,))
LAYER = plan((8192, 1024), (1,), 1, (1,))
GROUPS = plan((8, 64, 56, 56), (2, 3), 8, (1, 2))
LAST = plan((32, 64, 56, 56), (0, 2, 3), 1, (1,), (64 * 56 * 56, 1, 64 * 56, 64))
GROUPS_LAST = plan((8, 64, 56, 56), (2, 3), 8, (1, 2), (64 * 56 * 56, 1, 64 * 56, 64))


def rows(nest: Nest, together: bool = False, most_packs: int = 8) -> norm_plan.Rows | None:
    return norm_plan.rows(norm_plan.of_statistics(nest), nest.rows * nest.columns, 4, True, most_packs, 512, together)


def walk(nest: Nest, elementwise: bool = False) -> norm_plan.Walk:
    return norm_plan.walk(norm_plan.of_statistics(nest), nest.rows * nest.columns, 4, True, elementwise)


def test_a_layer_norm_row_is_read_by_a_part_of_a_warp_or_by_a_block() -> None:
    for columns, lanes, packs, threads in (
        (16, 4, 1, 128), (64, 4, 4, 128), (256, 16, 4, 128), (512, 32, 4, 128), (768, 0, 4, 64), (1024, 0, 4, 64),
        (4096, 0, 4, 256), (8192, 0, 4, 512), (16384, 0, 8, 512),
    ):  # fmt: skip
        found = rows(plan((8192, columns), (1,), 1, (1,)))
        assert found is not None
        assert (found.lanes, found.packs, found.block) == (lanes, packs, (threads,))
        assert found.width == 4
        assert found.grid == (8192 * (lanes or threads) // threads,)
    assert rows(plan((8192, 16388), (1,), 1, (1,))) is None
    assert rows(LAST) is None


def test_a_large_batch_norm_keeps_a_device_busy() -> None:
    assert rows(BATCH) is None
    found = walk(BATCH)
    assert found.form == "rows"
    assert found.grid == (64, 13)  # eight accesses a thread at least
    assert found.chunk * 13 >= BATCH.columns > found.chunk * 12
    last = walk(LAST)
    assert last.form == "lanes"
    assert last.team * last.width == 64  # as many threads side by side as there are channels
    assert last.grid == (1, 784)  # chunks of whole steps of all threads


def test_teams_that_add_up_gradients_of_scale_take_several_rows() -> None:
    found = rows(LAYER, together=True, most_packs=4)
    assert found is not None
    assert (found.packs, found.block, found.grid) == (4, (64,), (1024,))
    few = rows(plan((9, 1024), (1,), 1, (1,)), together=True, most_packs=4)
    assert few is not None
    assert few.grid == (3,)
    widest = rows(plan((8192, 8192), (1,), 1, (1,)), together=True, most_packs=4)
    assert widest is not None
    assert (widest.packs, widest.block) == (4, (512,))  # the largest team, and then as many packs as it must keep


@pytest.mark.parametrize("width", [64, 256, 1024, 4096, 8192])
def test_teams_that_take_rows_in_turn_are_as_many_as_a_large_device_has_registers_for(width: int) -> None:
    found = rows(plan((2**26 // width, width), (1,), 1, (1,)), together=True, most_packs=4)
    assert found is not None
    assert 0.24 < found.grid[0] * found.block[0] / (132 * 2048) < 0.26  # of the threads that an H100 holds


SERIAL = 32  # steps that no sum goes over one after the other, whatever the shape


@given(st.integers(1, 1 << 20), st.integers(1, 2048))
def test_no_merge_is_serial(results: int, parts: int) -> None:
    found = norm_plan.merge(results, parts)
    side = found.block[0] // found.splits
    assert -(-parts // found.splits) + found.splits.bit_length() - 1 <= SERIAL
    assert found.grid[0] * side >= results > (found.grid[0] - 1) * side
    assert found.block[0] in (256, 512)


@pytest.mark.parametrize(
    "nest", [BATCH, LAST, GROUPS, LAYER, GROUPS_LAST], ids=["batch", "last", "groups", "layer", "groups last"]
)
def test_merges_of_real_shapes_take_few_steps(nest: Nest) -> None:
    found = walk(nest)
    merge = norm_plan.merge(nest.rows, found.chunks)
    assert -(-found.chunks // merge.splits) <= norm_plan.SERIAL
    if norm_plan.has_runs(nest):
        runs = norm_plan.runs(nest)
        chunks = norm_plan.walk(runs.runs, nest.rows * nest.columns, 4, True).chunks
        for loops in runs.in_chunks(chunks)[1:]:
            assert -(-loops.terms // norm_plan.team(loops.terms, dtypes.int32)) + 10 <= SERIAL
    most = norm_plan.SERIAL * norm_plan.SPLITS[-1]
    assert most >= norm_plan.walk(norm_plan.of_statistics(plan((1 << 28,), (0,))), 1 << 28, 4, True).chunks
    assert most >= norm_plan.TEAM_THREADS // 64  # blocks of teams, each of 64 threads at least


def test_wide_indices_leave_fewer_registers() -> None:
    assert norm_plan.registers_of_an_index(LAYER) == 1
    assert norm_plan.registers_of_an_index(plan((1 << 16, 1 << 16), (1,), 1, (1,))) == 2
    assert [norm_plan.team(1 << 30, index) for index in (dtypes.int32, dtypes.int64)] == [1024, 512]
    assert norm_plan.team(1, dtypes.int64) == 32


def test_long_rows_are_walked_up_by_columns() -> None:
    long = plan((1024, 65536), (1,), 1, (1,))
    found = norm_plan.columns(long, 4, True)
    assert found is not None
    assert (found.width, found.grid, found.block, found.chunk) == (4, (64, 16), (256,), 64)
    odd = norm_plan.columns(plan((33, 20001), (1,), 1, (1,)), 4, True)
    assert odd is not None
    assert (odd.width, odd.grid, odd.chunk) == (1, (79, 3), 11)
    for nest in (BATCH, LAST, GROUPS, plan((3, 4, 5, 6), (1, 3), 1, (1, 3))):
        assert norm_plan.columns(nest, 4, True) is None


def test_which_sums_share_a_pass() -> None:
    assert norm_plan.has_runs(BATCH)
    assert norm_plan.has_runs(GROUPS)
    assert norm_plan.has_runs(LAST)
    assert not norm_plan.has_runs(LAYER)
    assert norm_plan.fits_param_columns(LAYER)
    assert not norm_plan.fits_param_columns(BATCH)
    runs = norm_plan.runs(GROUPS)
    assert runs.runs.results == 8 * 64  # a run is a channel of a sample
    assert runs.runs.terms == 56 * 56
    assert (runs.to_rows.results, runs.to_rows.terms) == (64, 8)
    assert (runs.to_parameters.results, runs.to_parameters.terms) == (64, 8)
    last = norm_plan.runs(GROUPS_LAST)  # the same runs, side by side in memory
    assert last.runs.is_lanes
    assert (last.runs.results, last.runs.terms, last.runs.width(4)) == (8 * 64, 56 * 56, 4)
    assert (last.to_rows, last.to_parameters) == (runs.to_rows, runs.to_parameters)
    chunked = last.in_chunks(5)
    assert (chunked.to_rows.terms, chunked.to_rows.reduced[0].data) == (40, 512)


def test_columns_lie_side_by_side_where_rows_would_be_read_in_small_pieces() -> None:
    small = norm_plan.of_statistics(plan((512, 512, 7, 7), (0, 2, 3), 1, (1,)))
    apart = small.side_by_side(2)
    assert (small.width(2), apart.width(2)) == (1, 8)
    assert (apart.results, apart.columns, apart.terms) == (512 * 49, 49, 512)
    assert norm_plan.walk(apart, 512 * 512 * 49, 2, True).ragged  # four pixels may be those of two channels
    groups = norm_plan.of_statistics(GROUPS_LAST).side_by_side(4)
    assert (groups.results, groups.columns, groups.terms) == (8 * 64, 8, 56 * 56)
    assert not norm_plan.walk(groups, 8 * 64 * 56 * 56, 4, True).ragged
    runs = norm_plan.runs(plan((512, 512, 7, 7), (0, 2, 3), 1, (1,)), 2)
    assert (runs.runs.results, runs.to_rows.terms, runs.to_parameters.terms) == (512 * 49, 49, 49)
    for nest in (BATCH, LAST, GROUPS, LAYER):
        loops = norm_plan.of_statistics(nest)
        assert loops.side_by_side(4) is loops


def test_a_thread_has_eight_lanes_in_16_bits() -> None:
    size = LAST.rows * LAST.columns
    loops = norm_plan.of_statistics(LAST)
    for itemsize, computed, width in ((2, 4, 8), (2, 8, 4), (4, 4, 4), (8, 8, 2)):
        found = norm_plan.walk(loops, size, itemsize, True, computed=computed)
        assert (found.width, found.team * found.width) == (width, 64)
        assert found.chunk % (8 * 256 // found.team) == 0  # all batches of a thread are whole, but for the last chunk's


def test_tiles_that_are_read_twice_wait_in_the_second_level_cache() -> None:
    last = (64 * 56 * 56, 1, 64 * 56, 64)
    instances = plan((128, 64, 56, 56), (2, 3), 1, (1,), last)
    groups = plan((128, 64, 56, 56), (2, 3), 8, (1, 2), last)
    for nest, itemsize, arrays in product((instances, groups), (2, 4), (1, 2, 3)):
        loops = norm_plan.of_statistics(nest).side_by_side(itemsize)
        found = relay_plan.relay(loops, 128 * 64 * 56 * 56, itemsize, True, 4, arrays)
        assert found is not None
        lanes = found.walk.team * found.walk.width
        assert (found.tiles * lanes, found.columns) == (128 * 64, 1 if nest is instances else 8)
        assert found.walk.chunk * (found.walk.chunks - 1) < 56 * 56 <= found.walk.chunk * found.walk.chunks
        assert found.lag * found.walk.chunks >= 256  # so many blocks take sums before a block needs the first of them
        assert found.lag * lanes * 56 * 56 * itemsize * arrays <= 24 << 20
        assert found.grid == (2 * found.tiles * found.walk.chunks,)
    for nest in (LAST, BATCH, LAYER):  # a channel in all images; rows
        assert relay_plan.relay(norm_plan.of_statistics(nest), 1 << 24, 4, True, 4, 1) is None
    odd = norm_plan.of_statistics(plan((64, 96, 56, 56), (2, 3), 32, (1, 2), (96 * 56 * 56, 1, 96 * 56, 96)))
    assert relay_plan.relay(odd.side_by_side(4), 1 << 24, 4, True, 4, 1) is None  # groups of three channels


def test_short_rows_that_begin_anywhere_are_read_many_at_a_time() -> None:
    images = plan((512, 512, 7, 7), (2, 3), 1, (1,))
    found = short_plan.short(images, 2, True)
    assert found is not None
    assert (found.lanes, found.grid, found.block, found.runs) == (1, (2048,), (128,), 512 * 512)
    wide = short_plan.short(images, 4, True)
    assert wide is not None
    assert (wide.lanes, wide.grid) == (2, (4096,))
    groups = short_plan.short(plan((8, 64, 7, 7), (2, 3), 8, (1, 2)), 2, True)
    assert groups is not None
    assert (groups.lanes, groups.grid, groups.runs) == (8, (4,), 512)
    for itemsize in (2, 4, 8):  # each block's rows begin at a multiple of 16 bytes
        for side in (3, 5, 7, 9, 15):
            each = short_plan.short(plan((40, 3, side, side), (2, 3), 1, (1,)), itemsize, True)
            assert each is None or each.block[0] // each.lanes * itemsize % 16 == 0
            assert each is None or each.block[0] // each.lanes * side * side * itemsize <= short_plan.ROOM
    assert short_plan.short(images, 2, False) is None
    channels_last = plan((8, 8, 7, 7), (2, 3), 1, (1,), (8 * 49, 1, 7 * 8, 8))
    for nest in (BATCH, LAST, GROUPS, channels_last, plan((5, 97), (1,), 1, (1,)), plan((4, 4, 99, 99), (2, 3))):
        assert short_plan.short(nest, 2, True) is None


def test_indices_are_as_wide_as_they_must_be() -> None:
    assert launch.index_type(2**31 - 2**24 - 1) == dtypes.int32
    assert launch.index_type(2**31 - 2**24) == dtypes.int64
    large = plan((3, 2**30), (1,), 1, (1,))
    found = walk(large)
    assert found.index == dtypes.int64
    assert found.loops["terms"] == 2**30
    assert found.chunk.dtype == np.int64


def test_accesses_are_wide_only_where_every_step_allows_it() -> None:
    for last, itemsize, width in ((8, 4, 4), (8, 2, 8), (4, 2, 4), (6, 2, 2), (6, 8, 2), (7, 8, 1), (1, 4, 1)):
        nest = plan((3, 5, last), (2,), 1, (2,))
        assert norm_plan.of_statistics(nest).width(itemsize) == width
    # A pack must not reach over into the next channel of a channels-last tensor's lanes.
    assert norm_plan.of_statistics(plan((4, 6, 3, 3), (0, 2, 3), 1, (1,), (54, 1, 18, 6))).width(4) == 2


def test_accesses_are_as_wide_as_steps_allow() -> None:
    found = {n: (launch.width(2, n), launch.width(4, n)) for n in (1, 2, 12, 49, 196, 784, 3136)}
    assert found == {1: (1, 1), 2: (2, 2), 12: (4, 4), 49: (1, 1), 196: (4, 4), 784: (8, 4), 3136: (8, 4)}
    assert launch.width(2, 8, 6) == 2


@st.composite
def nests(draw: st.DrawFn) -> Nest:
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 8, 12]), min_size=1, max_size=4)))
    axes = tuple(draw(st.sets(st.integers(0, len(shape) - 1))))
    groups = 2 if len(shape) > 1 and 1 not in axes and shape[1] % 2 == 0 and draw(st.booleans()) else 1
    param = tuple(draw(st.sets(st.integers(0, len(shape) - (groups == 1)))))
    return plan(shape, axes, groups, param)


def places(loops: norm_plan.Loops) -> list[tuple[int, int, int]]:
    """(data, param, row) of all turns of both groups."""
    both = [*loops.kept, *loops.reduced]
    turns = product(*[range(loop.count) for loop in both])
    return [tuple(sum(t * loop[i] for t, loop in zip(turn, both, strict=True)) for i in (1, 2, 3)) for turn in turns]  # type: ignore[misc]


@given(nests(), st.sampled_from([2, 4, 8]))
def test_every_grouping_visits_every_element_once(nest: Nest, itemsize: int) -> None:
    if len(nest.keep) > 2 or len(nest.reduce) > 2:
        return
    statistics, parameters = norm_plan.of_statistics(nest), norm_plan.of_parameters(nest)
    assert statistics.results == nest.rows
    assert statistics.terms == nest.columns
    assert parameters.results == nest.param_size
    apart = statistics.side_by_side(itemsize)
    assert apart.results == nest.rows * apart.columns
    for loops in (statistics, parameters, apart):
        assert sorted(data for data, _, _ in places(loops)) == list(range(prod(nest.shape)))
        assert sorted(places(loops)) == sorted(places(statistics))
    assert [place.param for place in parameters.kept] == sorted((p.param for p in parameters.kept), reverse=True)
    if norm_plan.has_runs(nest):
        runs = norm_plan.runs(nest)
        assert runs.runs.results * runs.runs.terms == prod(nest.shape)
        assert runs.to_rows.results * runs.to_rows.terms == runs.runs.results
        assert runs.to_parameters.results == nest.param_size
        for loops in (runs.to_rows, runs.to_parameters):
            assert sorted(data for data, _, _ in places(loops)) == list(range(runs.runs.results))


@given(nests(), st.sampled_from([2, 4, 8]), st.booleans())
def test_chunks_cover_all_terms_and_begin_at_packs(nest: Nest, itemsize: int, elementwise: bool) -> None:
    if len(nest.keep) > 2 or len(nest.reduce) > 2:
        return
    found = norm_plan.walk(norm_plan.of_statistics(nest), prod(nest.shape), itemsize, True, elementwise)
    assert (found.chunks - 1) * found.chunk < nest.columns <= found.chunks * found.chunk
    if found.form == "rows":
        assert found.chunk % found.width == 0


@pytest.mark.parametrize("name", ["int", "long long"])
def test_the_struct_is_as_the_kernel_reads_it(name: str) -> None:
    index = dtypes.int32 if name == "int" else dtypes.int64
    struct = norm_plan.of_statistics(BATCH).packed(index)
    assert struct.nbytes == -(-35 * index.itemsize // 8) * 8 + 8
    assert struct["kept"].tolist() == [[1, 0, 0, 0]] * 3 + [[64, 3136, 1, 1]]
    assert struct["reduced"].tolist() == [[1, 0, 0, 0]] * 2 + [[32, 200704, 0, 0], [3136, 1, 0, 0]]
    assert struct["results"] == 64
    assert struct["terms"] == 32 * 3136
    assert struct["statistics"] == 64
    assert struct["part"] == 1 / (32 * 3136)
