"""minorm.cuda on a machine with GPUs: the devices, and their memory. Without a GPU: tests/cuda/test_cuda.py."""

from __future__ import annotations

from typing import Any

import pytest

import minorm as mn

pytestmark = pytest.mark.usefixtures("cuda")


def test_memory_statistics(cuda: Any) -> None:
    before = mn.cuda.memory_allocated()
    x = mn.zeros(1000, 1000, device="cuda")
    assert mn.cuda.memory_allocated() - before == 4_000_000
    stats = mn.cuda.memory_stats()
    assert stats["reserved_bytes.all.current"] >= stats["allocated_bytes.all.current"] == mn.cuda.memory_allocated(0)
    del x
    mn.cuda.empty_cache()
    assert mn.cuda.memory_reserved() == mn.cuda.memory_allocated("cuda:0")
    free, total = mn.cuda.mem_get_info()
    assert 0 < free < total
    mn.cuda.synchronize()
    with pytest.raises(ValueError, match="'cpu' is no GPU"):
        mn.cuda.memory_stats("cpu")


def test_what_is_there_is_told() -> None:
    assert mn.cuda.is_available()
    assert mn.cuda.get_device_name() == "NVIDIA Double"
    facts = mn.show_config("dicts")
    assert facts is not None
    assert facts["cuda"] == "NVIDIA Double, NVIDIA Double; CuPy 14.2.0 for CUDA 12.9, driver for 12.8"


def test_the_peak_of_memory_since_it_was_reset(cuda: Any) -> None:
    mn.cuda.reset_peak_memory_stats()
    start = mn.cuda.max_memory_allocated()
    assert start == mn.cuda.memory_allocated()
    x = mn.zeros(1000, 1000, device="cuda")
    y = mn.zeros(500, 1000, device="cuda")
    del x
    assert mn.cuda.max_memory_allocated() - start == 6_000_000
    assert mn.cuda.memory_allocated(0) - start == y.numel() * 4
    mn.cuda.reset_peak_memory_stats("cuda:0")
    assert mn.cuda.max_memory_allocated(0) - start == y.numel() * 4
    allocator = cuda.cuda.get_allocator()
    mn.cuda.reset_peak_memory_stats()
    assert cuda.cuda.get_allocator() is allocator


def test_a_capture_does_not_start_the_count_of_the_peak(cuda: Any) -> None:
    ours = cuda.cuda.get_allocator()
    with mn.cuda.graph(mn.cuda.CUDAGraph()):
        mn.cuda.max_memory_allocated()
        mn.cuda.reset_peak_memory_stats()
    assert cuda.cuda.get_allocator() == ours
    mn.cuda.reset_peak_memory_stats()
    start = mn.cuda.max_memory_allocated()
    mn.zeros(1000, 1000, device="cuda")
    assert mn.cuda.max_memory_allocated() - start == 4_000_000


def test_work_goes_to_the_stream_that_is_asked_for_and_waits_where_it_is_told_to(cuda: Any) -> None:
    default, side = mn.cuda.default_stream(), mn.cuda.Stream(priority=-1)
    assert mn.cuda.current_stream() == default
    assert (default.cuda_stream, default != side, len({default, side})) == (0, True, 2)
    with mn.cuda.stream(side):
        assert mn.cuda.current_stream() == side
        with mn.cuda.stream(None):
            assert mn.cuda.current_stream() == side
    with side:
        start = mn.cuda.Event(enable_timing=True)
        start.record()
    assert mn.cuda.current_stream() == default
    cuda.transfers.clear()
    default.wait_stream(side)
    start.wait(default)
    default.wait_event(side.record_event())
    assert cuda.transfers.waits == [(0, side.cuda_stream)] * 3
    assert cuda.transfers.to_host == 0
    end = side.record_event(mn.cuda.Event(enable_timing=True))
    end.synchronize()
    assert start.elapsed_time(end) > 0
    assert side.query()
    assert end.query()
    side.synchronize()
    with pytest.raises(ValueError, match="expected both events to be created with enable_timing=True"):
        start.elapsed_time(mn.cuda.Event())


def test_streams_and_events_of_another_device(cuda: Any) -> None:
    side, event = mn.cuda.Stream("cuda:1"), mn.cuda.Event(enable_timing=True)
    assert event.query()
    event.wait(side)
    event.synchronize()
    with pytest.raises(ValueError, match="expected both events to be recorded first"):
        event.elapsed_time(event)
    assert mn.cuda.default_stream("cuda:1") != mn.cuda.default_stream()
    with side:
        assert (mn.cuda.current_device(), mn.cuda.current_stream()) == (1, side)
        with mn.cuda.stream(mn.cuda.Stream("cuda:0")) as _, side:
            assert (mn.cuda.current_device(), mn.cuda.current_stream()) == (1, side)
        assert (mn.cuda.current_device(), mn.cuda.current_stream()) == (1, side)
    assert (mn.cuda.current_device(), mn.cuda.current_stream()) == (0, mn.cuda.default_stream())
    assert mn.cuda.current_stream("cuda:1") == mn.cuda.default_stream("cuda:1")
    cuda.transfers.clear()
    side.record_event(event)
    mn.cuda.default_stream("cuda:1").wait_event(event)
    mn.cuda.default_stream().wait_event(event)
    side.wait_stream(mn.cuda.default_stream("cuda:1"))
    mn.cuda.default_stream().wait_stream(mn.cuda.default_stream("cuda:1"))
    assert cuda.transfers.places == [(1, 1), (0, 1), (1, 1), (0, 1)]
    with pytest.raises(RuntimeError, match=r"stream is on cuda:0; expected a stream on cuda:1, where"):
        event.record()


def test_the_double_refuses_streams_and_events_of_another_device(cuda: Any) -> None:
    here, event = cuda.cuda.Stream(), cuda.cuda.Event()
    with cuda.cuda.Device(1):
        with pytest.raises(RuntimeError, match=r"created on \(0\) does not match with the current device \(1\)"):
            here.__enter__()
        with pytest.raises(RuntimeError, match="cudaErrorInvalidResourceHandle"):
            event.record()
    event.record(here)


def test_a_graph_is_captured_on_a_stream_of_ours(cuda: Any) -> None:
    x = mn.ones(3, device="cuda")
    graph = mn.cuda.CUDAGraph()
    with mn.cuda.graph(graph, stream=mn.cuda.Stream()):
        y = x + 1
    graph.replay()
    assert y.cpu().tolist() == [2, 2, 2]
