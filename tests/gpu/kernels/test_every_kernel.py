"""Every kernel runs on the CPU in every type, beside the CPU's own kernels, at sizes that are odd, or one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import every_kernel
import instances
import pytest
import shim

from minorm.devices import dtypes
from minorm.kernels.gpu.source import C_NAMES, PATHS

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")


@pytest.fixture
def norm(cuda: Any) -> Iterator[Any]:
    from minorm.kernels.gpu import norm

    yield norm
    every_kernel.forget(norm)


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
def test_every_kernel_runs_in_every_type(dtype: Any, norm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shim.State.ran.clear()
    for way in ("in registers", "in clusters", "by chunks"):
        if way == "in clusters":
            every_kernel.in_clusters(norm, monkeypatch)
        if way == "by chunks":
            every_kernel.by_chunks(norm, monkeypatch)
        calls = every_kernel.calls(dtype, "cuda:0")
        instances.compiled_for(lambda c=calls: [call() for _, call in c], lambda: every_kernel.forget(norm))
        every_kernel.compare(dtype, way)
    assert [name for name, threads in shim.State.ran.items() if threads > instances.most_threads(name)] == []
    for file in [name for name in PATHS if name.endswith(".cu")]:
        lacking = instances.left_out(file, shim.State.ran)
        merging = {name for name, parameters in instances.declared(file).items() if not {"T", "S"} & set(parameters)}
        assert {kernel for kernel, kind in lacking if kind == C_NAMES[dtype]} == set()
        assert {kernel for kernel, kind in lacking if kind == C_NAMES[dtypes.compute_type(dtype)]} & merging == set()
