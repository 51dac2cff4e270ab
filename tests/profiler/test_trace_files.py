"""Traces as an independent reader sees them: every event is closed, and lies inside the one around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import minorm as mn
from minorm import nn
from minorm.profiler import profile, record_function


@pytest.fixture
def prof() -> profile:
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.GELU(), nn.Linear(8, 2)))
    with profile(profile_memory=True, record_shapes=True) as found:
        for name in ("first", "second"):
            with record_function(name):
                model(mn.ones(3, 4)).sum().backward()
    return found


def intervals(events: list[dict[str, Any]]) -> int:
    """How deep complete events of one row lie inside each other; AssertionError where two overlap in part."""
    pending: list[tuple[float, float]] = []
    depth = 0
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        start, end = event["ts"], event["ts"] + event["dur"]
        while pending and pending[-1][1] <= start:
            pending.pop()
        assert not pending or end <= pending[-1][1] + 1e-6, event
        pending.append((start, end))
        depth = max(depth, len(pending))
    return depth


def test_chrome_trace_has_nested_complete_events(prof: profile, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    for event in complete:
        assert event.keys() >= {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"}
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    assert len(complete) == len(prof.events())
    assert intervals(complete) >= 5  # range, three modules, operation
    assert {event["tid"] for event in complete} == {e["tid"] for e in events if e["name"] == "thread_name"}
    by_name = {event["name"]: event for event in complete}
    assert by_name["1.1 (Linear)"]["args"] == {"pass": "forward", "layer": "1.1"}
    gradient = next(e for e in complete if e["name"] == "LinearBackward")
    assert (gradient["args"]["pass"], gradient["args"]["layer"]) == ("backward", "1.1")
    linear = next(e for e in complete if e["name"] == "Linear")
    assert linear["args"]["Input Dims"][0] == [3, 4]
    assert linear["args"]["bytes allocated"] == 3 * 8 * 4
    memory = [event["args"]["bytes"] for event in events if event["ph"] == "C"]
    assert max(memory) <= prof.peak_memory


def test_speedscope_opens_and_closes_every_frame_in_order(prof: profile, tmp_path: Path) -> None:
    path = tmp_path / "profile.speedscope.json"
    prof.export_speedscope(str(path))
    found = json.loads(path.read_text())
    assert found["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    (one,) = found["profiles"]
    assert (one["type"], one["unit"], one["startValue"]) == ("evented", "nanoseconds", 0)
    frames = [frame["name"] for frame in found["shared"]["frames"]]
    assert len(frames) == len(set(frames))
    pending: list[int] = []
    last, seen = 0, dict.fromkeys(frames, 0)
    for event in one["events"]:
        assert last <= event["at"] <= one["endValue"]
        last = event["at"]
        if event["type"] == "O":
            pending.append(event["frame"])
            seen[frames[event["frame"]]] += 1
        else:
            assert event["type"] == "C"
            assert pending.pop() == event["frame"]
    assert pending == []
    assert seen["first"] == seen["second"] == 1
    assert seen["LinearBackward"] == 4
    assert sum(seen.values()) == len(prof.events())


def test_a_trace_that_cannot_be_written_leaves_the_old_file(prof: profile, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="profile: "):
        prof.export_chrome_trace(str(tmp_path / "none" / "trace.json"))
    assert list(tmp_path.iterdir()) == []
