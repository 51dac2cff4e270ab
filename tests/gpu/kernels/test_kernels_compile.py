"""Every kernel of every family and type, for each generation of devices: it compiles, nothing spills, blocks fit."""

from __future__ import annotations

import re
from typing import Any

import instances
import nvrtc
import pytest

from minorm.devices import dtypes
from minorm.kernels.gpu.plans import copy_plan, pool_plan, softmax_plan, update_plan, window_struct
from minorm.kernels.gpu.source import PATHS, expression, options, source

INT, LONG = dtypes.int32, dtypes.int64
ACTIVATIONS = ["relu", "relu6", "leaky_relu", "hardswish", "sigmoid", "tanh", "silu", "elu", "gelu", "gelu_tanh", "erf"]
FILES = ["elementwise.cu", "softmax.cu", "sums.cu", "pool.cu", "conv.cu", "update.cu", "random.cu", "copying.cu",
         "clipping.cu"]  # fmt: skip
# Of pooling, for averages and for the largest; eight places, int32, are two accesses.
READS = {"forward": (9, 9), "forward_columns": (9, 9), "backward_groups": (4, 12), "backward_columns": (4, 8)}
PARAMETERS = 4096  # bytes of arguments that every device takes


def kernels(file: str, dtype: Any, index: Any, width: int) -> list[tuple[Any, ...]]:
    """Each kernel of a file, with the options that take most registers."""
    compute = dtypes.compute_type(dtype)
    two, wide = (dtype, compute), (dtype, compute, width, index)
    if file == "elementwise.cu":
        one = [("map_one", f"op::{name}", *wide) for name in [*ACTIVATIONS, "scale", "over", "neg"]]
        two_of = [f"op::{name}" for name in [*ACTIVATIONS, "add", "sub", "mul", "div"]]
        along = ["op::add", "op::div", "op::swapped<op::sub>", "op::swapped<op::gelu>"]  # which takes most registers
        ways = True, False
        one += [("map_broadcast", name, *(dtype,) * 3, *wide[1:3], flat, index) for name in along for flat in ways]
        other = dtypes.float32 if dtype != dtypes.float32 else dtypes.float64
        result = max(dtype, other, key=lambda kind: kind.itemsize)
        of_both = result, dtypes.compute_type(result), min(width, 16 // result.itemsize), True, index
        one += [("map_broadcast", "op::add", *types, *of_both) for types in ((dtype, other), (other, dtype))]
        return one + [("map_two", name, *wide) for name in two_of]
    if file == "softmax.cu":
        found: list[tuple[Any, ...]] = [
            ("cross_entropy", dtype, compute, width, 8, 16, index, True),  # eight packs of a thread, sixteen lanes
            ("cross_entropy", dtype, compute, width, 0, 0, index, True),
            *[("cross_entropy_grad", *two, compute, width, 8, 32, index) for two in dict.fromkeys([(dtype,) * 2, two])],
            ("sum_losses", dtype, compute),
            ("sum_parts", dtype),
        ]
        for name, inputs in {"softmax": 1, "log_softmax": 1, "softmax_grad": 2, "log_softmax_grad": 2}.items():
            for types in dict.fromkeys([(dtype, dtype, compute), (dtype, compute, compute), (compute, dtype, compute)]):
                most = min(8, max(1, softmax_plan.REGISTERS // (types[0].itemsize * width * inputs)))
                teams = [(most, 32), (most, 0) if name == "softmax" else (0, 0)]
                found += [("rows", f"op::{name}", *types, width, packs, lanes, index) for packs, lanes in teams]
                found += [("columns", f"op::{name}", *types, index)]
        return found
    if file == "sums.cu":
        results = dict.fromkeys((dtype, dtypes.float64))
        found = [("sum_rows", dtype, result, width, False, index) for result in results]
        return found + [("sum_columns", dtype, result, width, 32, index) for result in results]
    if file == "random.cu":
        found = [("dropout", dtype, compute, width, decides, index) for decides in (True, False)]
        return found + ([("uniform", dtype, width, index)] if dtype == compute else [])
    if file == "copying.cu":
        bits, widths = copy_plan.BITS[dtype.itemsize], (width, width)
        found = [("turn", bits, bits, *widths, lines, False, index) for lines in (16, 64, 256)]
        found += [("move", bits, bits, width, False, index), ("fill", *wide)]
        found += [("move", dtype, dtype, width, True, index), ("turn", dtype, dtype, *widths, 64, True, index)]
        for other in instances.FLOATS:
            access = 1 if width == 1 else 16 // max(dtype.itemsize, other.itemsize)
            second = 1 if width == 1 else 16 // other.itemsize
            found += [("move", dtype, other, access, False, index)]
            found += [("turn", dtype, other, width, second, 64, False, index)]
        return found
    if file == "clipping.cu":
        kinds = "squares", "absolutes", "largest", "powers"
        powers = [(name, *two, width, kind) for name in ("add_powers", "clip_norm") for kind in kinds]
        return [*powers, ("clip_value", *two, width)]
    if file == "pool.cu":
        return pooling(dtype, compute, width, index)
    if file == "conv.cu":
        forms: list[tuple[Any, ...]] = [("col2im", *two, index), ("im2col", *two, index)]
        return forms + [("swap", of, dtype, compute, 16 // max(t.itemsize for t in two), index) for of in two]
    found = [(f"sgd{kept}", *two, width, True, True) for kept in ("", "_kept")]
    found += [(f"adam{kept}", *two, width, True) for kept in ("", "_kept")]
    return [*found, ("scale", *two, width)]


def pooling(dtype: Any, compute: Any, width: int, index: Any) -> list[tuple[Any, ...]]:
    """Every kernel, with windows of every size that it knows."""
    found: list[tuple[Any, ...]] = [("spread", dtype, compute, width, index)]
    for name in ("op::largest", "op::mean", "op::uneven_mean"):
        form = name, dtype, compute, width
        found += [("forward", *form, *pool_plan.ANY, index), ("backward", *form, index)]
        for known in sorted(pool_plan.KNOWN):
            found += [(kernel, *form, *known, index) for kernel in ("forward", "backward_groups")]
            if width > 1:
                found += [(f"{way}_columns", *form, *known, index) for way in ("forward", "backward")]
    return found


@pytest.mark.skipif(not nvrtc.available, reason="no NVRTC, or no headers for it")
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_no_kernel_spills(architecture: str, file: str) -> None:
    calls = [call for dtype in instances.FLOATS for call in kernels(file, dtype, INT, 16 // dtype.itemsize)]
    if architecture == nvrtc.WIDEST and file != "elementwise.cu":
        calls += kernels(file, dtypes.float32, LONG, 1)
    names = list(dict.fromkeys(expression(*call) for call in calls))
    assert instances.left_out(file, names) == set()
    found = nvrtc.resources(source(file), names, architecture, options(file))
    assert {kernel.name for kernel in found} >= set(names)
    assert [kernel for kernel in found if kernel.spilled or kernel.stack] == []
    assert max(kernel.shared for kernel in found) <= 48 << 10  # what every device has without asking
    assert [kernel for kernel in found if not kernel.fits(instances.most_threads(kernel.name))] == []


@pytest.mark.skipif(not nvrtc.available, reason="no NVRTC, or no headers for it")
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("elementwise.cu", "map_two<op::relu, __half, float, 8, int>"),
        ("elementwise.cu", "map_broadcast<op::add, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 8, true, int>"),
        ("softmax.cu", "rows<op::softmax_grad, float, float, float, 4, 4, 32, int>"),
        ("sums.cu", "sum_rows<double, double, 2, false, int>"),
        ("update.cu", "adam<__nv_bfloat16, float, 8, true>"),
        ("random.cu", "dropout<__nv_bfloat16, float, 8, true, int>"),
        ("clipping.cu", "add_powers<__nv_bfloat16, float, 8, squares>"),
        ("clipping.cu", "clip_norm<__nv_bfloat16, float, 8, squares>"),
        ("copying.cu", "move<unsigned short, unsigned short, 8, false, int>"),
        ("copying.cu", "turn<unsigned short, unsigned short, 8, 8, 64, false, int>"),
        ("copying.cu", "turn<float, __half, 4, 8, 16, false, int>"),
        ("pool.cu", "forward<op::largest, __half, float, 8, 3, 2, 1, int>"),
        ("pool.cu", "forward_columns<op::mean, float, float, 4, 3, 2, 1, int>"),
        ("pool.cu", "backward_columns<op::largest, __nv_bfloat16, float, 8, 3, 1, 1, int>"),
        ("norm_rows.cu", "row_forward<__nv_bfloat16, float, __nv_bfloat16, int, 8, 4, 0, 1, false, float, RELU>"),
        ("norm_rows.cu", "row_backward<__half, float, float, int, 8, 2, 0, 1, false, OF_ELEMENTS, false>"),
    ],
)
def test_accesses_take_sixteen_bytes_and_arrays_stay_in_registers(file: str, name: str) -> None:
    program = nvrtc.nvrtc.createProgram(source(file), file, (), ())
    nvrtc.nvrtc.addNameExpression(program, name)
    nvrtc.nvrtc.compileProgram(
        program, ("--gpu-architecture=compute_75", "-std=c++17", "-default-device", *nvrtc._includes())
    )
    assembly = str(nvrtc.nvrtc.getPTX(program))
    assert re.search(r"ld\.global\.(?:nc\.)?(v4\.[uf]32|v2\.f64)", assembly)
    few = file == "sums.cu" or name.startswith("add_powers")  # results
    assert re.search(r"st\.global\.(v4\.[uf]32|v2\.f64)", assembly) or few
    assert ".local" not in assembly


@pytest.mark.skipif(nvrtc.disassembler is None, reason="no NVRTC, or no nvdisasm")
@pytest.mark.parametrize(
    ("file", "name", "loads"),
    [
        ("softmax.cu", "rows<op::softmax, __nv_bfloat16, __nv_bfloat16, float, 8, 4, 32, int>", 4),
        ("softmax.cu", "rows<op::softmax_grad, __nv_bfloat16, __nv_bfloat16, float, 8, 4, 32, int>", 8),
        ("softmax.cu", "cross_entropy<__nv_bfloat16, float, 8, 8, 16, int, true>", 8),
        ("softmax.cu", "cross_entropy<float, float, 4, 8, 32, int, false>", 8),
        ("softmax.cu", "cross_entropy_grad<__nv_bfloat16, float, float, 8, 4, 32, int>", 4),
        ("sums.cu", "sum_rows<__nv_bfloat16, double, 8, false, int>", 8),
        ("sums.cu", "sum_columns<float, double, 4, 32, int>", 8),
    ],
)
def test_all_loads_are_issued_before_the_first_is_used(file: str, name: str, loads: int) -> None:
    """A row that fits into registers, or a batch, is on its way before the arithmetic begins."""
    assert nvrtc.loads_in_flight(source(file), name) >= loads


@pytest.mark.skipif(not nvrtc.available, reason="no NVRTC, or no headers for it")
@pytest.mark.parametrize("what", ["largest", "mean"])
@pytest.mark.parametrize("kernel", ["forward", "forward_columns", "backward_groups", "backward_columns"])
def test_pooling_reads_all_before_it_compares(kernel: str, what: str) -> None:
    """No branch comes between the first access and the last one of a kernel that knows its windows."""
    name = f"{kernel}<op::{what}, __nv_bfloat16, float, 8, 3, 2, 1, int>"
    program = nvrtc.nvrtc.createProgram(source("pool.cu"), "pool.cu", (), ())
    nvrtc.nvrtc.addNameExpression(program, name)
    nvrtc.nvrtc.compileProgram(
        program, ("--gpu-architecture=compute_90", "-std=c++17", "-default-device", *nvrtc._includes())
    )
    assembly = nvrtc.nvrtc.getPTX(program)
    text = assembly.decode() if isinstance(assembly, bytes) else assembly
    steps = re.findall(r"\b(ld\.global|st\.global|bra)\b", text)
    accesses = steps[steps.index("ld.global") : len(steps) - steps[::-1].index("ld.global")]
    assert accesses == ["ld.global"] * READS[kernel][what == "largest"]


def test_no_file_is_left_out() -> None:
    files = {name for name in PATHS if name.endswith(".cu")}
    assert files == {
        *FILES,
        "norm_rows.cu",
        "norm_moments.cu",
        "norm_apply.cu",
        "norm_grads.cu",
        "norm_short.cu",
        "norm_cluster.cu",
        "norm_ahead.cu",
    }  # test_norm_compiles.py
    for file in files:
        assert instances.left_out(file, []) == instances.left_out(file, ["another<float>"]) != set()


def test_structs_fit_into_the_arguments() -> None:
    assert update_plan.STRUCT.itemsize + 8 * 8 <= PARAMETERS
    assert window_struct.STRUCT.itemsize < pool_plan.STRUCT.itemsize <= PARAMETERS
