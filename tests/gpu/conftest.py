"""Tests of the GPU backend on machines without a GPU: the fixture `cuda` puts a strict double in CuPy's place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside this file: shim, cupy_functions ...


@pytest.fixture
def cuda() -> Iterator[Any]:
    """The module cupy, as minorm sees it: arrays in NumPy's memory, two devices, and `cupy.transfers`."""
    import cupy_functions

    with cupy_functions.installed() as cupy:
        yield cupy
