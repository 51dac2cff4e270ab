"""A curve in characters: a star at the height of each value."""

from __future__ import annotations

from minorm.cli.terminal.curve import HEIGHT, WIDTH, curve


def heights(lines: list[str], columns: int) -> list[int]:
    """The row of each column's star, counted from below."""
    rows = [line.partition("|")[2].ljust(columns) for line in lines[:HEIGHT]]
    return [HEIGHT - 1 - next(i for i, row in enumerate(rows) if row[column] == "*") for column in range(columns)]


def test_a_line_rises_by_a_row_a_column() -> None:
    lines = curve([float(i) for i in range(10)], ("a", "z"), "name")
    assert heights(lines, 10) == list(range(10))
    assert lines[0].startswith("9 |")
    assert lines[9].startswith("0 |")
    assert lines[11].split() == ["a", "name", "z"]


def test_many_values_are_means_and_what_is_above_the_top_is_drawn_there() -> None:
    lines = curve([0.0] * 300 + [1.0] * 299 + [1e9], ("0", "1"), "x", top=2.0)
    found = heights(lines, WIDTH)
    assert found[:30] == [0] * 30
    assert found[-1] == 9
    assert found[31] in (4, 5)


def test_equal_values_are_a_flat_line() -> None:
    assert heights(curve([2.0] * 5, ("a", "b"), "x"), 5) == [0] * 5
