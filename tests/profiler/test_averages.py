"""The table: its columns, its order, its units."""

from __future__ import annotations

import pytest

from minorm.profiler.averages import EventList, FunctionEventAvg, by_layer, by_name, duration, size
from minorm.profiler.events import LAYER, OPERATION, WALK, Event, Layer


@pytest.fixture
def events() -> list[Event]:
    """A layer of 100 us with an operation of 60 and one of 10 inside; a walk of 50 us with a backward pass of 40."""
    root, inner = Layer(0, "", "Net"), Layer(0, "conv", "Conv2d")
    net = Event("Net", LAYER, 0, None, (root,), end=110_000, nested=100_000)
    conv = Event("conv", LAYER, 5_000, net, (root, inner), end=105_000, nested=70_000)
    walk = Event("backward", WALK, 150_000, None, (), backward=True, end=200_000, nested=40_000)
    return [
        net, conv,
        Event("Convolution", OPERATION, 10_000, conv, (root, inner), end=70_000, allocated=100, kept=30),
        Event("Add", OPERATION, 80_000, conv, (root, inner), end=90_000, allocated=50),
        walk,
        Event("ConvolutionBackward", OPERATION, 155_000, walk, (root, inner), backward=True, end=195_000),
    ]  # fmt: skip


def test_sums_by_operation(events: list[Event]) -> None:
    found = {row.key: row for row in by_name(events, 250_000, False)}
    assert {key: (row.count, row.self_cpu_time_total, row.cpu_time_total) for key, row in found.items()} == {
        "Convolution": (1, 60, 60),
        "Add": (1, 10, 10),
        "ConvolutionBackward": (1, 40, 40),
        "(outside of operations)": (1, 140, 140),
    }


def test_sums_by_layer(events: list[Event]) -> None:
    found = {row.key: row for row in by_layer(events, 250_000)}
    assert {key: (row.count, row.self_cpu_time_total, row.cpu_time_total) for key, row in found.items()} == {
        "Net (forward)": (1, 10, 110),
        "conv (Conv2d, forward)": (1, 100, 100),
        "conv (Conv2d, backward)": (1, 40, 40),
        "Net (backward)": (0, 0, 40),
        "(backward walk)": (1, 10, 10),
        "(outside of operations)": (1, 90, 90),
    }
    assert found["Net (forward)"].cpu_memory_usage == 150
    assert found["conv (Conv2d, forward)"].kept_memory_usage == 30


ROWS = [
    FunctionEventAvg("small", 3, 30.0, 10.0, cpu_memory_usage=10),
    FunctionEventAvg("large", 1, 2000.0, 1500.0, kept_memory_usage=2048),
    FunctionEventAvg("often", 90, 500.0, 400.0),
]


@pytest.mark.parametrize(
    ("sort_by", "order"),
    [
        (None, ["large", "often", "small"]),
        ("count", ["often", "small", "large"]),
        ("cpu_memory_usage", ["small", "large", "often"]),
        ("kept_memory_usage", ["large", "small", "often"]),
    ],
)
def test_a_table_is_sorted_and_cut(sort_by: str | None, order: list[str]) -> None:
    table = EventList(ROWS, 4000.0, gpu=False, memory=True).table(sort_by=sort_by)
    head, line, *rows, end = table.splitlines()
    assert [row.split()[0] for row in rows] == order
    assert head.split("  ")[0] == "Name"
    assert set(line) == {"-"}
    assert len({len(row) for row in (head, line, *rows)}) == 1
    assert end == "CPU time total: 4.000ms"
    cut = EventList(ROWS, 4000.0, gpu=False, memory=False).table(sort_by=sort_by, row_limit=1).splitlines()
    assert cut[2].split()[0] == order[0]
    assert cut[3] == "(2 more)"


def test_a_row_has_its_numbers() -> None:
    table = EventList(ROWS[1:2], 4000.0, gpu=False, memory=True).table()
    assert table.splitlines()[2].split() == [
        "large", "37.50%", "1.500ms", "50.00%", "2.000ms", "2.000ms", "0", "B", "0", "B", "2.00", "KB", "1",
    ]  # fmt: skip


def test_units() -> None:
    assert [duration(t) for t in (0.5, 999.0, 1000.0, 2.5e6)] == ["0.500us", "999.000us", "1.000ms", "2.500s"]
    assert [size(n) for n in (0, 1023, 1024, 3 << 20, 5 << 30)] == ["0 B", "1023 B", "1.00 KB", "3.00 MB", "5.00 GB"]
