"""The layout of a graph: lines go down, boxes of a row do not touch, chains are straight; also of large graphs."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest

from minorm.cli.views.layered import GAP, layout

Edges = list[tuple[int, int]]


def random_graph(count: int, seed: int) -> Edges:
    rng = np.random.default_rng(seed)
    pairs = {(int(rng.integers(max(0, j - 8), j)), j) for j in range(1, count) for _ in range(2)}
    return sorted(pairs)


@pytest.mark.parametrize("edges", [[], [(0, 1), (1, 2)], [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)], random_graph(60, 1)])
def test_lines_go_down_and_boxes_do_not_touch(edges: Edges) -> None:
    count = max((j for _, j in edges), default=2) + 1
    widths = [30.0 + 7 * (i % 5) for i in range(count)]
    found = layout(widths, edges)
    for (i, j), bends in zip(edges, found.bends, strict=True):
        rows = [found.row[i], *(row for _, row in bends), found.row[j]]
        assert rows == list(range(found.row[i], found.row[j] + 1))
    for row in range(found.rows):
        spans = sorted(
            (found.x[i] - widths[i] / 2, found.x[i] + widths[i] / 2) for i in range(count) if found.row[i] == row
        )
        assert all(right + GAP <= left + 1e-9 for (_, right), (left, _) in pairwise(spans))
        assert spans == [] or (spans[0][0] >= -1e-9 and spans[-1][1] <= found.width + 1e-9)


def test_a_chain_is_straight_and_a_long_line_runs_beside_it() -> None:
    found = layout([50.0] * 6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 4)])
    assert found.row == [0, 1, 2, 3, 4, 5]
    assert found.x[2] == pytest.approx(found.x[3])
    [first, second] = found.bends[5]
    assert first[0] == pytest.approx(second[0])
    assert abs(first[0] - found.x[2]) >= 25 + GAP


def test_what_reads_nothing_stands_above_its_first_reader() -> None:
    assert layout([50.0] * 4, [(0, 1), (1, 3), (2, 3)]).row == [0, 1, 1, 2]


def test_a_graph_of_very_many_lines_takes_no_time() -> None:
    edges = [(i, j) for j in range(400) for i in range(j)]
    start = time.process_time()
    found = layout([50.0] * 400, edges)
    assert time.process_time() - start < 20
    assert found.rows == 400
    assert not any(found.bends)  # too many: they run straight
