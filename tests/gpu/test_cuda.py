"""minorm.cuda where there are GPUs: what there is, and their memory. Without one: tests/test_cuda.py."""

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
