"""A profile on a GPU: the double's events say when; what is checked is where times and bytes go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import minorm as mn
from minorm import nn
from minorm.profiler import ProfilerActivity, profile

pytestmark = pytest.mark.usefixtures("cuda")


def profiled(**options: Any) -> profile:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to("cuda")
    optimizer = mn.optim.SGD(model.parameters(), lr=0.1)
    x = mn.ones(3, 4, device="cuda")
    with profile(**options) as prof:
        model(x).sum().backward()
        optimizer.step()
    return prof


def test_operations_have_times_on_the_device(tmp_path: Path) -> None:
    prof = profiled(profile_memory=True)
    on_device = [event for event in prof.events() if event.device is not None]
    assert {"Linear", "LinearBackward", "GeluBackward", "Optimizer.step#SGD.step"} <= {e.name for e in on_device}
    for event in on_device:
        assert event.device is not None
        assert event.device[0] == 0
        assert event.device[2] >= event.device_nested >= 0
    rows = prof.key_averages()
    by_name = {row.key: row for row in rows}
    assert by_name["Linear"].self_device_time_total == by_name["Linear"].self_cuda_time_total > 0
    assert by_name["Linear"].self_cpu_memory_usage == 4 * (3 * 8 + 3 * 2)
    assert "Self CUDA" in rows.table(sort_by="self_cuda_time_total").splitlines()[0]
    assert " % of the time on the GPU is spent in " in prof.summary()
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (row,) = [event["tid"] for event in events if event["ph"] == "M" and event["args"]["name"] == "cuda:0"]
    assert len([event for event in events if event["ph"] == "X" and event["tid"] == row]) == len(on_device)


def test_layers_below_add_to_the_times_of_those_around_them() -> None:
    rows = {row.key: row for row in profiled().key_averages(group_by_layer=True)}
    parts = [rows[f"{name}, forward)"] for name in ("0 (Linear", "1 (GELU", "2 (Linear")]
    assert rows["Sequential (forward)"].device_time_total == pytest.approx(sum(p.device_time_total for p in parts))
    assert rows["Sequential (forward)"].self_device_time_total == 0


def test_without_the_activity_there_are_no_times_on_the_device() -> None:
    prof = profiled(activities=[ProfilerActivity.CPU])
    assert all(event.device is None for event in prof.events())
    assert "CUDA" not in prof.key_averages().table()
