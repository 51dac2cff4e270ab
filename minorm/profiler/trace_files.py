"""Writes profiles as files that viewers show as flame graphs: Chrome's trace events, and speedscope's format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from minorm.profiler.averages import labels
from minorm.profiler.event_recorder import Recorder
from minorm.profiler.events import LAYER, Event
from minorm.serialization import atomic

HOST, GPU = 1, 100  # numbers of the rows: this thread, and GPU 0; GPU 1 is the next
SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write_chrome(path: str, recorder: Recorder) -> None:
    """Write Chrome's Trace Event Format: complete events (X) in microseconds, memory counters (C), row names (M)."""
    found = [*_names(recorder), *_complete(recorder), *_counters(recorder)]
    _write(path, {"traceEvents": found, "displayTimeUnit": "ms"})


def write_speedscope(path: str, recorder: Recorder) -> None:
    """Write speedscope's evented profile: each event opens (O) and closes (C) at a time in nanoseconds."""
    frames: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    pending: list[Event] = []

    def close(event: Event) -> None:
        events.append({"type": "C", "frame": frames[_title(event)], "at": event.end})

    for event in recorder.events:
        while pending and pending[-1] is not event.parent:
            close(pending.pop())
        frame = frames.setdefault(_title(event), len(frames))
        events.append({"type": "O", "frame": frame, "at": event.start})
        pending.append(event)
    while pending:
        close(pending.pop())
    profile = {
        "type": "evented", "name": "minorm", "unit": "nanoseconds", "startValue": 0, "endValue": recorder.ended,
        "events": events,
    }  # fmt: skip
    _write(path, {
        "$schema": SCHEMA, "shared": {"frames": [{"name": name} for name in frames]}, "profiles": [profile],
        "name": "minorm", "exporter": "minorm", "activeProfileIndex": 0,
    })  # fmt: skip


def _title(event: Event) -> str:
    """Return the label of an event in the flame graph; a layer's label includes its type."""
    if event.kind == LAYER and event.layers[-1].path:
        return f"{event.name} ({event.layers[-1].kind})"
    return event.name


def _names(recorder: Recorder) -> Iterator[dict[str, Any]]:
    gpus = sorted({event.device[0] for event in recorder.events if event.device is not None})
    rows = [(HOST, "CPU"), *((GPU + index, f"cuda:{index}") for index in gpus)]
    yield {"ph": "M", "name": "process_name", "pid": 1, "tid": HOST, "args": {"name": "minorm"}}
    for row, name in rows:
        yield {"ph": "M", "name": "thread_name", "pid": 1, "tid": row, "args": {"name": name}}


def _complete(recorder: Recorder) -> Iterator[dict[str, Any]]:
    names = labels(recorder.events)
    for event in recorder.events:
        args: dict[str, Any] = {"pass": "backward" if event.backward else "forward"}
        if event.layers:
            args["layer"] = names[event.layers[-1]][0]
        if event.shapes:
            args["Input Dims"] = event.shapes
        if event.allocated or event.kept:
            args |= {"bytes allocated": event.allocated, "bytes kept": event.kept}
        block = {"ph": "X", "name": _title(event), "cat": event.kind, "pid": 1, "args": args}
        yield {**block, "tid": HOST, "ts": event.start / 1000, "dur": event.time / 1000}
        if event.device is not None:
            index, start, time = event.device
            yield {**block, "tid": GPU + index, "ts": start / 1000, "dur": time / 1000}


def _counters(recorder: Recorder) -> Iterator[dict[str, Any]]:
    for when, held in recorder.timeline:
        yield {"ph": "C", "name": "memory", "pid": 1, "tid": HOST, "ts": when / 1000, "args": {"bytes": held}}


def _write(path: str, contents: Any) -> None:
    with atomic.replacing(path, "profile") as file:
        file.write(json.dumps(contents, allow_nan=False).encode())
