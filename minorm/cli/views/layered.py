"""Places the boxes of a graph in rows and routes the edges between them, so that every edge leads down.

A box is one row below the lowest box that it reads from. An edge that crosses a row gets a place in this row, so it
passes between the boxes. The boxes of each row are sorted by the mean position of their neighbours in other rows. This
is done for all rows downwards and upwards, a few times. Then all boxes move towards their neighbours as far as the
order in each row allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

SWEEPS = 6
GAP = 22.0  # between boxes
LINE = 14.0  # the width of a line in a row that it passes
MOST_PLACES = 20_000  # of lines in rows; if there were more, long lines are straight instead


@dataclass
class Layout:
    """The centres and rows of the boxes, and for each edge the points (x, row) between its ends."""

    x: list[float]
    row: list[int]
    bends: list[list[tuple[float, int]]]
    width: float = 0.0
    rows: int = 0


@dataclass
class _Place:
    """A box, or a point where an edge crosses a row.

    `above` and `below` are the indices of its neighbours in the rows above and below; `x` is its centre.
    """

    width: float
    row: int
    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)
    x: float = 0.0


def layout(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Layout:
    """Arrange boxes of these widths; each edge goes from a box to a later box."""
    row = _rows(len(widths), edges)
    places = [_Place(width, row[i]) for i, width in enumerate(widths)]
    between = sum(row[j] - row[i] - 1 for i, j in edges)
    chains = []
    for i, j in edges:
        last, chain = i, []
        for level in range(row[i] + 1, row[j]) if between <= MOST_PLACES else ():
            places.append(_Place(LINE, level))
            chain.append(len(places) - 1)
            _join(places, last, chain[-1])
            last = chain[-1]
        _join(places, last, j)
        chains.append(chain)
    levels: list[list[int]] = [[] for _ in range(max(row, default=-1) + 1)]
    for index, place in enumerate(places):
        levels[place.row].append(index)
    _order(places, levels)
    _move(places, levels)
    left = min((place.x - place.width / 2 for place in places), default=0.0)
    right = max((place.x + place.width / 2 for place in places), default=0.0)
    return Layout(
        [place.x - left for place in places[: len(widths)]],
        row,
        [[(places[k].x - left, places[k].row) for k in chain] for chain in chains],
        right - left,
        len(levels),
    )


def _rows(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    row = [0] * count
    for i, j in sorted(edges):  # edges into a box come before edges from it
        row[j] = max(row[j], row[i] + 1)
    readers: dict[int, list[int]] = {}
    for i, j in edges:
        readers.setdefault(i, []).append(j)
    for i in readers.keys() - {j for _, j in edges}:  # a box that reads nothing is just above its first reader
        row[i] = min(row[j] for j in readers[i]) - 1
    return row


def _join(places: list[_Place], upper: int, lower: int) -> None:
    places[upper].below.append(lower)
    places[lower].above.append(upper)


def _order(places: Sequence[_Place], levels: list[list[int]]) -> None:
    at = {index: float(k) for level in levels for k, index in enumerate(level)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for level in levels if down else levels[::-1]:
            mean = {}
            for index in level:
                near = places[index].above if down else places[index].below
                mean[index] = sum(at[k] for k in near) / len(near) if near else at[index]
            level.sort(key=mean.__getitem__)
            at.update((index, float(k)) for k, index in enumerate(level))


def _move(places: Sequence[_Place], levels: Sequence[Sequence[int]]) -> None:
    for level in levels:
        _move_towards_wished(places, level, [0.0] * len(level))
    for sweep in range(2 * SWEEPS + 1):
        down = sweep % 2 == 0
        for level in levels if down else levels[::-1]:
            wished = []
            for index in level:
                near = places[index].above if down else places[index].below
                wished.append(sum(places[k].x for k in near) / len(near) if near else places[index].x)
            _move_towards_wished(places, level, wished)


def _move_towards_wished(places: Sequence[_Place], level: Sequence[int], wished: Sequence[float]) -> None:
    """Move the boxes of a row towards the positions `wished`, as far as their order and widths allow.

    One pass goes to the right and another to the left; each box gets the mean of the two positions.
    """
    ahead, back = list(wished), list(wished)
    space = [(places[a].width + places[b].width) / 2 + GAP for a, b in pairwise(level)]
    for k, needed in enumerate(space):
        ahead[k + 1] = max(ahead[k + 1], ahead[k] + needed)
    for k in range(len(space) - 1, -1, -1):
        back[k] = min(back[k], back[k + 1] - space[k])
    for k, index in enumerate(level):
        places[index].x = (ahead[k] + back[k]) / 2
