"""Tests of the GPU backend on machines without a GPU: the fixture `cuda` puts a strict double in CuPy's place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cupy_functions
import instances
import pytest
import shim


@pytest.fixture
def cuda() -> Iterator[Any]:
    """The module cupy, as minorm sees it: arrays in NumPy's memory, two devices, and `cupy.transfers`."""
    if not shim.available:
        pytest.skip("kernels run on the CPU by g++, which is not there")
    with cupy_functions.installed() as cupy:
        instances.forget_launches()
        yield cupy
