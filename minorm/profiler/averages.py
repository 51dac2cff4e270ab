"""Sums events by operation or by layer, with PyTorch's names, and shows the sums in a table."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from minorm.profiler.events import DATA, LAYER, OPERATION, OPTIMIZER, USER, WALK, Event, Layer
from minorm.support.documented import documented

SORTS = (
    "count", "cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total",
    "cuda_time_total", "self_cuda_time_total", "cpu_memory_usage", "self_cpu_memory_usage", "kept_memory_usage",
)  # fmt: skip
OUTSIDE = "(outside of operations)"  # the user's Python, and all that is not recorded
BACKWARD_WALK = "(backward walk)"  # the way through the graph from one operation to the next
IN_PASSING = (LAYER, WALK)  # kinds of events that surround operations and take little time themselves


@dataclass
class FunctionEventAvg:
    """Sums over the events of one operation, range or layer.

    Times are in microseconds, as in PyTorch; memory is in bytes.

    A number with `self_` does not include events that ran inside the event. Memory means the memory of new arrays.
    `kept_memory_usage` is memory that is kept for the backward pass; it counts for the operation that kept it first.
    """

    key: str
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    kept_memory_usage: int = 0
    input_shapes: tuple[Any, ...] = ()

    @property
    def cpu_time(self) -> float:
        """The mean CPU time of a call."""
        return self.cpu_time_total / max(1, self.count)

    @property
    def cuda_time_total(self) -> float:
        """An older name of `device_time_total`."""
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        """An older name of `self_device_time_total`."""
        return self.self_device_time_total


class EventList(list[FunctionEventAvg]):
    """The result of `key_averages`: a list of sums, which `table` shows.

    total    the time of the whole profile in microseconds, which is 100 % in the table
    """

    def __init__(self, found: Sequence[FunctionEventAvg], total: float, gpu: bool, memory: bool) -> None:
        super().__init__(found)
        self.total, self.gpu, self.memory = total, gpu, memory

    @documented(
        {},
        sort_by="the column to sort by, largest first, such as self_cpu_time_total, cpu_time_total, "
        "self_cuda_time_total or kept_memory_usage; None is the self time, on the GPU if there is one",
        row_limit="the largest number of rows; -1 for all rows",
    )
    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        """Return a text with the sums as a table."""
        usual = "self_device_time_total" if self.gpu else "self_cpu_time_total"
        name = usual if sort_by is None else sort_by
        if name not in SORTS:
            raise ValueError(f"table: sort_by is {name!r}; expected one of {', '.join(SORTS)}")
        if not isinstance(row_limit, SupportsIndex):
            raise TypeError(f"table: row_limit is {row_limit!r}; expected an int, -1 for all rows")
        rows = sorted(self, key=lambda row: float(getattr(row, name)), reverse=True)
        shown = rows if operator.index(row_limit) < 0 else rows[:row_limit]
        lines = _aligned([self._head(), *map(self._row, shown)])
        lines.insert(1, "-" * len(lines[0]))
        if len(shown) < len(rows):
            lines.append(f"({len(rows) - len(shown)} more)")
        return "\n".join([*lines, f"CPU time total: {duration(self.total)}"])

    def _head(self) -> list[str]:
        head = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
        head += ["Self CUDA", "CUDA total"] if self.gpu else []
        head += ["CPU Mem", "Self CPU Mem", "Kept"] if self.memory else []
        return [*head, "# of Calls"]

    def _row(self, row: FunctionEventAvg) -> list[str]:
        cells = [row.key + (f" {list(row.input_shapes)}" if row.input_shapes else "")]
        for time in (row.self_cpu_time_total, row.cpu_time_total):
            cells += [f"{time / (self.total or 1):.2%}", duration(time)]
        cells.append(duration(row.cpu_time))
        cells += [duration(row.self_device_time_total), duration(row.device_time_total)] if self.gpu else []
        if self.memory:
            cells += map(size, (row.cpu_memory_usage, row.self_cpu_memory_usage, row.kept_memory_usage))
        return [*cells, f"{row.count:,}"]


def _aligned(rows: list[list[str]]) -> list[str]:
    """Return lines in which the first column is aligned to the left and all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def duration(microseconds: float) -> str:
    """Return a time as PyTorch writes it, such as `1.234ms`."""
    for unit, length in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= length:
            return f"{microseconds / length:.3f}{unit}"
    return f"{microseconds:.3f}us"


def size(count: int) -> str:
    """Return a number of bytes with a unit, such as `1.50 MB`."""
    for unit, length in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= length:
            return f"{count / length:.2f} {unit}"
    return f"{count} B"


# Sums


def by_name(events: Sequence[Event], total: int, shapes: bool) -> list[FunctionEventAvg]:
    """Return a row for each operation, range, optimizer and loader, and a row for the time outside all events."""

    def keys(event: Event) -> list[Hashable]:
        return [] if event.kind in IN_PASSING else [(event.name, event.shapes if shapes else ())]

    found = _summed(events, keys, lambda key: FunctionEventAvg(key[0], input_shapes=key[1]))
    return [*found.values(), _outside(found.values(), total)]


def by_layer(events: Sequence[Event], total: int) -> list[FunctionEventAvg]:
    """Return two rows for each layer, forward and backward, and rows for the events outside all layers.

    The total of a layer includes the layers inside it.
    """
    names = labels(events)

    def keys(event: Event) -> list[Hashable]:
        """Return the key to which the event's own time belongs, then the keys of the layers around the event."""
        if event.layers:
            return [(names[layer], event.backward) for layer in dict.fromkeys(reversed(event.layers))]
        return [(event.name, None)] if event.kind in (OPERATION, USER, OPTIMIZER, DATA) else [(BACKWARD_WALK, None)]

    def make(key: Any) -> FunctionEventAvg:
        name, backward = key
        if backward is None:
            return FunctionEventAvg(name)
        label, kind = name
        said = [*([kind] if label != kind else []), "backward" if backward else "forward"]
        return FunctionEventAvg(f"{label} ({', '.join(said)})")

    found = _summed(events, keys, make, inside=True)
    return [*found.values(), _outside(found.values(), total)]


def _summed(
    events: Sequence[Event],
    keys: Callable[[Event], list[Any]],
    make: Callable[[Any], FunctionEventAvg],
    inside: bool = False,
) -> dict[Any, FunctionEventAvg]:
    """Return the sums by key.

    inside  True: a total is a sum of self times, and the self time of an event counts in the totals of all its keys.
            False: the total of an event is its whole time, including the events inside it
    """
    found: dict[Any, FunctionEventAvg] = {}
    within = {} if inside else _within(events)
    for event in events:
        for i, key in enumerate(keys(event)):
            row = found.setdefault(key, make(key))
            if i == 0:
                row.self_cpu_time_total += event.self_time / 1000
                row.self_device_time_total += event.self_device_time / 1000
                row.self_cpu_memory_usage += event.allocated
                row.kept_memory_usage += event.kept
                row.count += not inside or _begins(event)
            if inside:
                row.cpu_time_total += event.self_time / 1000
                row.device_time_total += event.self_device_time / 1000
                row.cpu_memory_usage += event.allocated
        if not inside and keys(event) and not _is_nested(event, keys):
            allocated, device_time = within[id(event)]
            row = found[keys(event)[0]]
            row.cpu_time_total += event.time / 1000
            row.device_time_total += device_time / 1000
            row.cpu_memory_usage += allocated
    return found


def _begins(event: Event) -> bool:
    """Return whether an event counts as a call of its layer: a call, a part of backward, or the layer's first event."""
    return event.kind == LAYER or event.backward or event.parent is None or event.parent.layers != event.layers


def _within(events: Sequence[Event]) -> dict[int, tuple[int, int]]:
    """Return a dict with a pair (bytes, time on the GPU) for each event; the keys are the events' ids.

    The two numbers of an event include the events that ran inside this event.
    """
    found = {id(event): (event.allocated, event.self_device_time) for event in events}
    for event in reversed(events):  # events inside began later
        if event.parent is not None:
            before, own = found[id(event.parent)], found[id(event)]
            found[id(event.parent)] = before[0] + own[0], before[1] + own[1]
    return found


def _is_nested(event: Event, keys: Callable[[Event], list[Any]]) -> bool:
    """Return True if the event ran inside another event with the same key.

    The total of the outer event already includes the time of the inner event.
    """
    own, around = keys(event), event.parent
    while around is not None:
        if keys(around) == own:
            return True
        around = around.parent
    return False


def _outside(found: Any, total: int) -> FunctionEventAvg:
    """Return a row for the rest of the time: `total` minus the time of all rows in `found`."""
    rest = total / 1000 - sum(row.self_cpu_time_total for row in found)
    return FunctionEventAvg(OUTSIDE, 1, rest, rest)


def labels(events: Sequence[Event]) -> dict[Layer, tuple[str, str]]:
    """Return (name, type) of each layer; an outermost module is named by its type, and equal names get numbers."""
    layers = dict.fromkeys(layer for event in events for layer in event.layers)
    names = {layer: layer.path or layer.kind for layer in layers}
    alike = Counter(name for name, _ in {(name, layer.root) for layer, name in names.items()})
    return {
        layer: (name if alike[name] == 1 else f"{name} of model {layer.root + 1}", layer.kind)
        for layer, name in names.items()
    }
