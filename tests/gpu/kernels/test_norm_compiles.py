"""All normalization kernels in all types, for each generation of devices: they compile, nothing spills, blocks fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import instances
import nvrtc
import pytest

from minorm.devices import dtypes
from minorm.kernels.gpu.plans import ahead_plan
from minorm.kernels.gpu.plans.norm_plan import LANE_BYTES, LANES, SPLITS
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
FILES = [f"norm_{name}.cu" for name in ("rows", "moments", "apply", "grads", "short", "cluster", "ahead")]
NEWER = dict.fromkeys(
    ("norm_cluster.cu", "norm_ahead.cu"), ("sm_90", "sm_100")
)  # files that older generations never compile
PACKS = {"row_forward": 8, "row_backward": 4}  # the most that norm_forward.py and norm_backward.py ask for
KEPT = 128  # bytes, widened


def kernels(file: str, types: Any, index: Any, width: int, warp: bool, loops: int = 2) -> list[str]:
    """Each kernel of the file, with all that may follow or precede it. loops: the reduced ones that a cursor counts."""
    stored, computed, parameters = types
    three, two = (stored, computed, parameters, index, width), (stored, computed, index, width)

    def packs(kernel: str, share: int) -> int:
        if kernel == "row_backward" or computed.itemsize == 8:
            share *= index.itemsize // 4
        return min(PACKS[kernel], max(1, KEPT // share // (computed.itemsize * width)))

    lanes, side = 32 if warp else 0, min(width, LANE_BYTES // computed.itemsize)
    beside = (*three[:-1], side)
    calls: dict[str, list[Any]] = {
        "norm_rows.cu": [
            *[("row_forward", *three, packs("row_forward", 1 + (ending == 2)), lanes, loops, warp, dtypes.float32,
               ending) for ending in (0, 2)],
            *[("row_backward", *three, packs("row_backward", (1 + relu) * shared), lanes, loops, sums == 1, sums,
               bool(relu)) for sums, shared in ((0, 1), (1, 1), (2, 2)) for relu in (0, 1)],
        ],
        "norm_moments.cu": [
            ("moments_rows", *two, warp, loops), ("moments_lanes", *two[:-1], side, LANES, loops),
            *[("relay_forward", *beside, LANES, loops, not warp, ending) for ending in (0, 2)],
            *[("merge_moments", computed, index, splits) for splits in (1, SPLITS[-1])],
            ("given_moments", computed, index, parameters),
        ],
        "norm_apply.cu": [
            *[("apply_rows", *three, warp, loops, warp, parameters, ending) for ending in (0, 2)],
            *[("apply_lanes", *beside, LANES, loops, not warp, parameters, ending) for ending in (0, 2)],
            *[("grad_input_rows", *three, warp, loops, warp, relu) for relu in (False, True)],
            *[("grad_input_lanes", *beside, LANES, loops, not warp, relu) for relu in (False, True)],
            ("grad_input_columns", *three),
        ],
        "norm_short.cu": [
            *[("short_forward", *three[:-1], lanes, dtypes.float32, ending) for lanes in (1, 16) for ending in (0, 2)],
            *[("short_backward", *three[:-1], lanes, relu) for lanes in (1, 16) for relu in (False, True)],
        ],
        "norm_grads.cu": [
            *[("grads_rows", *three, warp, loops, not warp, relu) for relu in (False, True)],
            *[("grads_lanes", *beside, LANES, loops, not warp, warp, relu) for relu in (False, True)],
            *[("relay_backward", *beside, LANES, min(loops, 2), not warp, relu) for relu in (False, True)],
            *[("merge_runs", computed, index, parameters, of_rows, warp) for of_rows in (False, True)],
            *[("merge_parts", dtypes.float64, index, splits, computed) for splits in (1, SPLITS[-1])],
            ("merge_parts", computed, index, SPLITS[-1], computed),
            ("merge_parts", dtypes.float64, index, 1, dtypes.float64),
        ],
        "norm_cluster.cu": [
            ("cluster_forward", *three, 2, loops, False, parameters, 0),
            ("cluster_forward", *three, 8, loops, True, parameters, 2),
            ("cluster_backward", *three, 8, loops, True, True),
            ("cluster_backward", *three, 1, loops, False, False),
        ],
        "norm_ahead.cu": [
            ("row_backward_ahead", *three, times * packs("row_backward", 2 * (1 + relu)), loops, bool(relu))
            for relu in (0, 1) for times in (1, 2)
        ],
    }  # fmt: skip
    return [expression(*call) for call in calls[file]]


def all_of(file: str, architecture: str) -> Iterator[str]:
    """Every kernel in every type, and with wide indices; for one device also in what else shapes ask for."""
    for types in TYPES if architecture == nvrtc.WIDEST else TYPES[:4]:
        yield from kernels(file, types, dtypes.int32, 16 // types[0].itemsize, False)
    for types in (TYPES[0], TYPES[3]):
        yield from kernels(file, types, dtypes.int64, 16 // types[0].itemsize, False)
    if architecture == nvrtc.WIDEST:
        for index, width, warp in product((dtypes.int32, dtypes.int64), (1, 4), (False, True)):
            yield from kernels(file, TYPES[0], index, width, warp)
        for types, loops in product((TYPES[0], TYPES[3]), (1, 4) if file == "norm_grads.cu" else (1,)):
            yield from kernels(file, types, dtypes.int32, 16 // types[0].itemsize, False, loops)


@pytest.mark.skipif(not nvrtc.available, reason="no NVRTC, or no headers for it")
@pytest.mark.parametrize(
    ("architecture", "file"),
    [(name, file) for name in nvrtc.ARCHITECTURES for file in FILES if name in NEWER.get(file, nvrtc.ARCHITECTURES)],
)
def test_no_kernel_spills(architecture: str, file: str) -> None:
    names = list(dict.fromkeys(all_of(file, architecture)))
    assert instances.left_out(file, names) == set()
    found = nvrtc.resources(source(file), names, architecture)
    assert {kernel.name for kernel in found} >= set(names)
    assert [kernel for kernel in found if kernel.spilled or kernel.stack] == []
    assert [kernel for kernel in found if not kernel.fits(instances.most_threads(kernel.name))] == []
    assert max(kernel.shared for kernel in found) <= 48 << 10  # what every device has without asking


@pytest.mark.skipif(nvrtc.disassembler is None, reason="no NVRTC, or no nvdisasm")
@pytest.mark.parametrize(
    ("file", "kernel", "loads"),
    [  # loads on their way before the first is used: a batch of 8 packs, or 4 of each array
        ("norm_moments.cu", "moments_rows<float, float, int, 4, false, 2>", 8),
        ("norm_moments.cu", "moments_rows<__nv_bfloat16, float, int, 8, true, 2>", 8),
        ("norm_moments.cu", "moments_lanes<float, float, int, 4, 32, 1>", 8),
        ("norm_apply.cu", "apply_rows<float, float, float, int, 4, false, 2, true, float, PLAIN>", 4),
        ("norm_apply.cu", "apply_lanes<float, float, float, int, 4, 32, 1, true, float, RESIDUAL_RELU>", 8),
        ("norm_apply.cu", "grad_input_rows<float, float, float, int, 4, false, 2, true, false>", 8),
        ("norm_apply.cu", "grad_input_rows<float, float, float, int, 4, false, 2, true, true>", 12),
        ("norm_apply.cu", "grad_input_columns<float, float, float, int, 4>", 8),
        ("norm_grads.cu", "grads_rows<float, float, float, int, 4, false, 2, true, false>", 8),
        ("norm_grads.cu", "grads_lanes<float, float, float, int, 4, 32, 1, true, false, true>", 12),
        ("norm_grads.cu", "merge_runs<float, int, float, false, false>", 8),
        ("norm_grads.cu", "merge_parts<double, int, 32, float>", 8),
        ("norm_short.cu", "short_forward<__nv_bfloat16, float, float, int, 1, float, PLAIN>", 4),
        ("norm_short.cu", "short_backward<__nv_bfloat16, float, float, int, 1, false>", 8),
        ("norm_moments.cu", "moments_lanes<__nv_bfloat16, float, int, 8, 32, 1>", 8),
        ("norm_grads.cu", "grads_lanes<__nv_bfloat16, float, float, int, 8, 32, 1, true, false, false>", 8),
        ("norm_apply.cu", "apply_lanes<__nv_bfloat16, float, float, int, 8, 32, 1, true, float, PLAIN>", 4),
        ("norm_apply.cu", "grad_input_lanes<__nv_bfloat16, float, float, int, 8, 32, 1, true, false>", 8),
        ("norm_rows.cu", "row_forward<float, float, float, int, 4, 8, 0, 1, false, float, PLAIN>", 8),
        ("norm_rows.cu", "row_backward<float, float, float, int, 4, 4, 0, 1, true, OF_ROW, false>", 8),
        ("norm_rows.cu", "row_backward<__nv_bfloat16, float, float, int, 8, 2, 32, 1, true, OF_ROW, true>", 6),
    ],
)
def test_loads_are_on_their_way_together(file: str, kernel: str, loads: int) -> None:
    assert nvrtc.loads_in_flight(source(file), kernel) >= loads


@pytest.mark.skipif(not nvrtc.available, reason="no NVRTC, or no headers for it")
@pytest.mark.parametrize("packs", [1, 2])
@pytest.mark.parametrize("kind", ["float", "__nv_bfloat16"])
def test_registers_leave_room_for_a_third_of_a_device(kind: str, packs: int) -> None:
    """LayerNorm's backward pass keeps a few packs a thread, so that the warps of other rows fit beside them."""
    width = 4 if kind == "float" else 8
    packs = packs if kind == "float" else 1
    names = [
        f"row_backward<{kind}, float, float, int, {width}, {packs}, {lanes}, 1, false, 2, false>" for lanes in (32, 0)
    ]
    for found in nvrtc.resources(source("norm_rows.cu"), names, "sm_90"):
        assert (1 << 16) // (32 * found.registers) / 64 >= 0.3


@pytest.mark.skipif(not nvrtc.available, reason="no NVRTC, or no headers for it")
@pytest.mark.parametrize("kind", ["float", "__nv_bfloat16"])
def test_rows_that_wait_in_shared_memory_leave_registers_to_others(kind: str) -> None:
    width, packs = (4, 4) if kind == "float" else (8, 2)
    name = f"row_backward_ahead<{kind}, float, float, int, {width}, {packs}, 1, false>"
    found = nvrtc.resources(source("norm_ahead.cu"), [name], "sm_90")[0]
    assert (1 << 16) // found.registers >= ahead_plan.TEAM_THREADS // 132  # threads on each multiprocessor of an H100
    shared = ahead_plan.STAGES * 2 * packs * 16 * 768 + 12 * (found.shared + 1024)  # of 12 blocks of 64 threads
    assert shared <= 228 << 10


@pytest.mark.skipif(nvrtc.disassembler is None, reason="no NVRTC, or no nvdisasm")
@pytest.mark.parametrize(
    ("file", "kernel"),
    [
        ("norm_cluster.cu", "cluster_forward<__nv_bfloat16, float, float, int, 8, 2, 2, false, float, 0>"),
        ("norm_cluster.cu", "cluster_backward<float, float, float, int, 4, 4, 1, true, false>"),
        ("norm_ahead.cu", "row_backward_ahead<__nv_bfloat16, float, float, int, 8, 2, 1, false>"),
    ],
)
def test_data_goes_to_shared_memory_without_registers(file: str, kernel: str) -> None:
    assembly = nvrtc.disassembled(source(file), kernel)
    assert assembly.count("LDGSTS.E.BYPASS.128") >= 1
    assert "STL" not in assembly


@pytest.mark.skipif(not nvrtc.available, reason="no NVRTC, or no headers for it")
def test_a_plain_launch_starts_clusters() -> None:
    """CuPy's launches name no clusters: their size is part of the compiled kernel."""
    name = "cluster_backward<float, float, float, int, 4, 8, 1, true, false>"
    program = nvrtc._compiled(source("norm_cluster.cu"), [name], "compute_90")
    found = nvrtc.nvrtc.getPTX(program)
    text = found.decode() if isinstance(found, bytes) else found
    assert re.search(r"\.explicitcluster", text)
    assert re.search(r"\.reqnctapercluster 8", text)
    assert text.count("barrier.cluster.arrive.release;") == 2
    assert text.count("barrier.cluster.wait.acquire;") == 2


def test_what_counts_as_a_use() -> None:
    loads = "/*0010*/ LDG.E.128 R4, desc[UR8][R2.64] ;\n/*0020*/ @P0 LDG.E.128 R8, desc[UR8][R12.64] ;\n"
    assert nvrtc.most_in_flight(loads + "/*0030*/ FADD R20, R4, R8 ;") == 2
    assert nvrtc.most_in_flight(loads.replace("\n/*0020", "\n/*0018*/ FADD R20, R7, 1 ;\n/*0020")) == 1
    assert nvrtc.most_in_flight("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];\nld.global.f32 %f5, [%rd2];") == 2
    assert (
        nvrtc.most_in_flight("ld.global.f32 %f1, [%rd1];\nadd.ftz.f32 %f2, %f1, %f1;\nld.global.f32 %f5, [%rd2];") == 1
    )
