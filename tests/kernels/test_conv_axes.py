"""The sum along one axis, against the definition: which source meets which result with which tap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minorm.kernels.cpu.conv_axes import Axis, forward

small = st.integers(0, 3)


def meetings(axis: Axis) -> set[tuple[int, int, int]]:
    """Return every (result, tap, source) that the axis describes."""
    found = set()
    for phase in axis.phases:
        for m in range(phase.count):
            for tap, shift in phase.taps:
                source = m * axis.step + shift - axis.low
                if 0 <= source < axis.source:
                    found.add((phase.start + m * phase.step, tap, source))
    return found


@given(x=st.integers(1, 12), kernel=st.integers(1, 4), stride=st.integers(1, 4), low=small, high=small, gap=small)
def test_both_directions_are_the_definition(x: int, kernel: int, stride: int, low: int, high: int, gap: int) -> None:
    dilation = gap + 1
    if dilation * (kernel - 1) + 1 > x + low + high:
        return
    axis = Axis.forward(x, kernel, stride, (low, high), dilation)
    expected = {
        (o, t, o * stride + t * dilation - low)
        for o in range(axis.result)
        for t in range(kernel)
        if 0 <= o * stride + t * dilation - low < x
    }
    assert meetings(axis) == expected
    back = Axis.gradient(x, kernel, stride, (low, high), dilation, axis.result)
    assert {(o, t, i) for i, t, o in meetings(back)} == expected
    results = [phase.start + m * phase.step for phase in back.phases for m in range(phase.count)]
    assert sorted(results) == list(range(x))
    assert all(shift >= 0 for phase in back.phases for _, shift in phase.taps)


@given(x=st.integers(1, 12), kernel=st.integers(1, 4), stride=st.integers(1, 4), low=small, high=small)
def test_a_packed_row_never_reads_a_neighbour(x: int, kernel: int, stride: int, low: int, high: int) -> None:
    """Rows share their zeros: a read beyond the pitch meets the beginning of the next row, which must be zeros."""
    if kernel > x + low + high:
        return
    forwards = Axis.forward(x, kernel, stride, (low, high), 1)
    for axis in (forwards, Axis.gradient(x, kernel, stride, (low, high), 1, forwards.result)):
        pitch, packed = axis.pitch(), axis.packed()
        for residue in axis.residues():
            begin, end = axis.span(residue)
            assert end <= pitch
            assert packed - pitch <= begin
        assert all(phase.count <= pitch for phase in axis.phases)


def test_where_nothing_happens_a_plane_is_one_line() -> None:
    axes = forward((2, 3, 4, 5), (6, 3, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1))
    assert [axis.source for axis in axes] == [1, 1, 20]
    axes = forward((2, 3, 4, 5), (6, 3, 1, 1), (1, 2), ((0, 0), (0, 0)), (1, 1))
    assert [axis.source for axis in axes] == [1, 4, 5]
