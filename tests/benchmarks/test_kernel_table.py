"""`python -m benchmarks.gpu --kernels`: what kernels take and the time that this allows, against counts by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nvrtc
import pytest

from benchmarks.gpu import __main__, kernel_table
from benchmarks.gpu.kernel_launches import Launch, parameters
from benchmarks.gpu.kernel_table import LIMITS, on_one, resident, times

ROOT = Path(__file__).parents[2]
HOPPER = LIMITS["sm_90"]
compiles = pytest.mark.skipif(not nvrtc.available or nvrtc.disassembler is None, reason="no NVRTC or nvdisasm")


EVERY_LAUNCH = """
from benchmarks.gpu.kernel_table import launches

found = launches(["bfloat16"], [], "sm_90")["bfloat16"]
assert len({name for name, _, _ in found}) > 40, found
assert all(launch.read > 0 for _, _, launch in found), found
kernels = {launch.kernel.partition("<")[0] for _, _, launch in found if launch.room > 0}
assert kernels >= {"cluster_forward", "cluster_backward", "row_backward_ahead"}, kernels
"""


def test_the_launches_of_every_operation_are_understood() -> None:
    found = subprocess.run([sys.executable, "-c", EVERY_LAUNCH], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


@compiles
def test_two_operations_have_the_rows_that_a_count_gives() -> None:
    """Of 2^26 bfloat16 a product reads 2 + 2 bytes and writes 2; a mean of 1024 reads 2 and writes 2 / 1024."""
    words = ["--kernels", "a * b", "mean of rows", "--types", "bfloat16", "--rate", "1000"]
    command = [sys.executable, "-m", "benchmarks.gpu", *words]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in found.stdout.splitlines() if "`" in line]
    (product,) = [row for row in rows if row[:2] == ["a * b", "forward"]]
    assert product[2:5] == ["`map_two<op::mul, __nv_bfloat16, float, 8, int>`", "4", "2"]
    assert product[6] == "0", "no register is spilled"
    assert product[8] == "2048", "few registers: a full multiprocessor"
    loads, size = (int(word.strip("(B) ")) for word in product[9].split("(", 1))
    assert (loads, size) == (2, 32), "16 bytes of each factor"
    assert float(product[10]) == pytest.approx(6 * 2**26 / 1000e9 * 1e6, abs=0.06)
    assert float(product[12]) == max(float(product[10]), float(product[11]))
    (mean,) = [row for row in rows if row[:2] == ["mean of rows", "forward"]]
    assert mean[2].startswith("`sum_rows<__nv_bfloat16, __nv_bfloat16, 8,")
    assert [float(cell) for cell in mean[3:5]] == pytest.approx([2, 2 / 1024], rel=0.01)


def test_options_name_what_the_table_knows() -> None:
    assert LIMITS.keys() == set(__main__.ARCHITECTURES)
    assert set(nvrtc.ARCHITECTURES) <= LIMITS.keys()


def test_threads_on_a_multiprocessor() -> None:
    """65,536 registers: 32 a thread fill it, 64 half of it; 33 to 40 count as 40."""
    assert resident(HOPPER, 256, 32, 0) == 2048
    assert resident(HOPPER, 256, 64, 0) == 1024
    assert resident(HOPPER, 256, 33, 0) == resident(HOPPER, 256, 40, 0) == 1536
    assert resident(HOPPER, 256, 32, 100 << 10) == 512, "two blocks find their shared memory"
    assert resident(HOPPER, 32, 32, 0) == 1024, "32 blocks at most"
    assert resident(LIMITS["sm_75"], 256, 32, 0) == 1024
    small = Launch("forward", "sums.cu", "sum_rows<float>", 132, 256, 0, 0)
    assert on_one(small, 2048) == 256, "one block each"


def test_times_by_the_rate_and_by_little() -> None:
    launch = Launch("forward", "elementwise.cu", "map_one<float>", 10**6, 256, 4_235_000_000, 0)
    by_rate, by_loads = times(launch, 1024, 16, 4235)
    assert by_rate == pytest.approx(1000)
    assert by_loads == pytest.approx(1e6 * 4_235_000_000 * 600e-9 / (132 * 1024 * 16))
    assert times(launch, 1024, 0, 4235)[1] == 0


def test_the_parameters_of_a_kernel() -> None:
    found = parameters("elementwise.cu", "map_one<op::relu, float>")
    assert found == ["const T* x", "T* y", "I n", "C option"]
    assert parameters("copying.cu", "turn<unsigned>")[0] == "Axes outer", "a struct of several template arguments"
    assert "Cut cut" in parameters("norm_cluster.cu", "cluster_forward<float>"), "behind the size of a cluster"


def test_shared_memory_of_the_launch_counts() -> None:
    """100 KiB a block: two blocks of 256 threads fit, and each thread has 400 bytes of copies on their way."""
    launch = Launch("forward", "norm_cluster.cu", "cluster_forward<float>", 10**6, 256, 0, 0, 100 << 10)
    resources, flight = SimpleNamespace(registers=32, spilled=0, shared=512), SimpleNamespace(loads=16, bytes=0)
    cells = kernel_table.Row("group_norm", 1, launch, resources, flight).cells(HOPPER, 4235)
    assert cells[7:10] == ["102,912", "512", "16 (400 B)"]


def test_words_choose_operations() -> None:
    every = kernel_table.operations("float32", [])
    assert set(kernel_table.operations("float32", ["pool"])) == {name for name in every if "pool" in name}
    images = [name for name in every if name.startswith("batch 128")]
    assert images == ["batch 128x64x56x56", "batch 128x64x56x56, channels last"]
    assert {"AdamW", "sum of images, channels last", "max_pool2d, channels last"} <= every.keys()
    assert not {"linear", "conv2d"} & every.keys()
