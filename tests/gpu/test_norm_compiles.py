"""All normalization kernels, in all types, for three generations of devices: NVRTC takes them, and nothing spills."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import instances
import nvrtc
import pytest

from minorm import dtypes
from minorm.kernels.gpu.norm_plan import LANES
from minorm.kernels.gpu.source import expression, source

TYPES = [  # stored, computed, parameters
    (dtypes.float32, dtypes.float32, dtypes.float32),
    (dtypes.float64, dtypes.float64, dtypes.float64),
    (dtypes.float16, dtypes.float32, dtypes.float16),
    (dtypes.bfloat16, dtypes.float32, dtypes.bfloat16),
    (dtypes.float16, dtypes.float32, dtypes.float32),
    (dtypes.bfloat16, dtypes.float32, dtypes.float32),
    (dtypes.float32, dtypes.float64, dtypes.float32),
    (dtypes.bfloat16, dtypes.float64, dtypes.bfloat16),
]
PACKS = {"row_forward": 8, "row_backward": 4}  # the most that norm.py asks for: the most registers
COLUMN_SUMS = 64
FILES = ["norm_rows.cu", "norm_moments.cu", "norm_apply.cu", "norm_grads.cu"]


def kernels(file: str, types: Any, index: Any, width: int, warp: bool) -> list[str]:
    """One instance of each kernel of the file."""
    stored, computed, parameters = types
    three, two = (stored, computed, parameters, index, width), (stored, computed, index, width)
    packs = min(PACKS["row_backward"], max(1, COLUMN_SUMS // computed.itemsize // width))
    calls: dict[str, list[Any]] = {
        "norm_rows.cu": [
            ("row_forward", *three, PACKS["row_forward"], warp, dtypes.float32),
            *[("row_backward", *three, PACKS["row_backward"], warp, sums) for sums in (0, 1)],
            ("row_backward", *three, packs, warp, 2),
        ],
        "norm_moments.cu": [
            ("moments_rows", *two, warp), ("moments_lanes", *two, LANES),
            ("merge_moments", computed, index, parameters),
        ],
        "norm_apply.cu": [
            ("apply_rows", *three, warp), ("apply_lanes", *three, LANES),
            ("grad_input_rows", *three, warp), ("grad_input_lanes", *three, LANES),
        ],
        "norm_grads.cu": [
            ("grads_rows", *three, warp), ("grads_lanes", *three, LANES), ("merge_runs", parameters, index, computed),
            ("merge_chunks", index, computed), ("merge_chunks", index, dtypes.float64),
            ("merge_columns", computed, index),
        ],
    }  # fmt: skip
    return [expression(*call) for call in calls[file]]


def all_of(file: str, architecture: str) -> Iterator[str]:
    """Every kernel in every type; for the newest devices also in what else shapes ask for."""
    for types in TYPES:
        yield from kernels(file, types, dtypes.int32, 16 // types[0].itemsize, False)
    if architecture == nvrtc.ARCHITECTURES[-1]:
        for index, width, warp in product((dtypes.int32, dtypes.int64), (1, 4), (False, True)):
            yield from kernels(file, TYPES[0], index, width, warp)


@pytest.mark.skipif(not nvrtc.available, reason="no NVRTC, or no headers for it")
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_no_kernel_spills(architecture: str, file: str) -> None:
    names = list(dict.fromkeys(all_of(file, architecture)))
    assert instances.left_out(file, names) == set()
    found = nvrtc.resources(source(file), names, architecture)
    assert {kernel.name for kernel in found} >= set(names)
    assert [kernel for kernel in found if kernel.spilled or kernel.stack] == []
    assert max(kernel.shared for kernel in found) <= 48 << 10  # what every device has without asking
