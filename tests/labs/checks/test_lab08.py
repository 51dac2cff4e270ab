"""Lab 8: typically wrong kernels lose the points they should, and no others; a missing barrier is always found."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from minorm.labs import wrong_kernels
from minorm.labs.calling import submission
from tests.labs.conftest import changed

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

SOLUTION = Path(__file__).resolve().parents[3] / "examples/labs/solutions/lab08_cuda.py"
WITHOUT_TESTS = ("def test_", "def no_test_")  # they take long, and other tests look at them
ROWS, ODD = "a block for each row", "rows that are no multiple of the block"
TREE, AGAIN, SIZES = (
    "every thread has the sum",
    "twice in a row, the same bits in any order",
    "blocks of 1 to 1024 threads",
)
NEEDED, EXACT = "no barrier too many", "few roundings"
SPREAD = "a tree, its work spread over the threads"
CARRIED, SHARED = "shuffles carry the numbers", "a row shared among the threads"
SHUFFLES, BEHIND = "every thread has the sum, by shuffles", "twice in a row, with warps that fall behind"
TWO, WARPS = "two barriers and no more", "any number of warps"
CLOSE, FAR, BITS = "k, d and var", "any offset, any shape", "the same bits in any order"
LAYER, OTHERS = "LayerNorm with your kernel", "BatchNorm and RMSNorm"
USERS = {CLOSE, FAR, BITS, SHARED, LAYER, OTHERS}  # of block_sum by shuffles

TURN = "i < m; i += blockDim.x)\n        y"
STEP = """        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
"""
LOOP = f"""    for (int half = blockDim.x / 2; half > 0; half /= 2) {{
{STEP}    }}
    float sum = part[0];
"""
CENTERED = "return (k, d, var) if centered else (0 * k, 0 * d, var + (k + d) ** 2)"
REST = ("d[blockIdx.x] = rest", "d[blockIdx.x] = 0")

one_element = [(TURN, "i < m; i += m)\n        y")]
no_bounds = [(TURN, "i < (m + 31) / 32 * 32; i += blockDim.x)\n        y")]
thread_0_alone = [("float sum = part[0];", "float sum = part[threadIdx.x];")]
one_by_one = [(LOOP, "    float sum = 0;\n    for (int i = 0; i < blockDim.x; i++) sum += part[i];\n")]
IN_IF = """        if (threadIdx.x < half) {
            part[threadIdx.x] += part[threadIdx.x + half];
            __syncthreads();
        }
"""
barrier_in_if = [(STEP, IN_IF)]
no_last_barrier = [("    float sum = part[0];\n    __syncthreads();", "    float sum = part[0];")]
no_barrier_in_loop = [("half];\n        __syncthreads();", "half];")]
one_too_many = [(STEP, STEP + "        __syncthreads();\n")]
atomics = [
    ("    part[threadIdx.x] = v;\n", "    if (threadIdx.x == 0) part[0] = 0;\n"),
    (LOOP, "    atomicAdd(&part[0], v);\n    __syncthreads();\n    float sum = part[0];\n"),
]
shuffled_down = [("__shfl_xor_sync", "__shfl_down_sync")]
all_warps = [("lane < warps ? part[lane] : 0", "part[lane]")]
no_barrier_behind = [("part[lane] : 0);\n    __syncthreads();", "part[lane] : 0);")]
tree_again = [("def shuffle_cu():", "def other():"), ('# %% tags=["check"]\ncheck("8.4")', "shuffle_cu = tree_cu\n")]
naive = [("away = row[i] - shift;", "away = row[i];"), ("squares - rest * rest", "squares - shift * shift"), REST]
not_centered = [(CENTERED, "return k, d, var")]
no_cuda = [("away = row[i] - shift;", "away = row[i] - shift")]


@pytest.mark.parametrize(  # up to three mistakes at once, in functions that know nothing of each other
    ("changes", "expected", "maybe"),  # what a race spoils beside what it must is a matter of luck
    [
        (
            one_element + thread_0_alone + naive,
            {ROWS, ODD, TREE, AGAIN, SIZES, SPREAD, EXACT, FAR, LAYER, OTHERS},
            {NEEDED},
        ),
        (no_bounds + one_by_one + [REST], {ODD, AGAIN, SPREAD, EXACT, FAR, LAYER}, {OTHERS}),
        (barrier_in_if + not_centered, {TREE, AGAIN, SIZES, NEEDED, SPREAD, EXACT, OTHERS}, set()),
        (no_last_barrier + no_cuda, {AGAIN} | USERS, {NEEDED}),
        (
            no_barrier_in_loop + shuffled_down,
            {TREE, AGAIN, SIZES, SPREAD, EXACT, SHUFFLES, BEHIND, CARRIED, WARPS},
            USERS | {NEEDED, TWO},
        ),
        (one_too_many + all_warps, {NEEDED, SHUFFLES, BEHIND, CARRIED}, USERS | {WARPS, TWO}),
        (atomics + no_barrier_behind, {AGAIN, SPREAD, EXACT, BEHIND}, USERS | {NEEDED, CARRIED, WARPS, TWO}),
        (tree_again, {BEHIND, TWO, CARRIED, WARPS, FAR, BITS, SHARED}, set()),
    ],
)
def test_wrong_kernels(lost: Any, changes: list[tuple[str, str]], expected: set[str], maybe: set[str]) -> None:
    found = {title for title in lost(8, WITHOUT_TESTS, *changes) if not title.startswith(("bug", "your tests"))}
    assert expected <= found <= expected | maybe


def own_tests(*changes: tuple[str, str]) -> str:
    """The solution's tests, with each first text replaced by its second."""
    text = changed(8, *changes)
    return text[text.index("def test_results") : text.index('# %% tags=["check"]\ncheck("8.3")')]


one_seed = [("range(1, 4)", "range(0)")]
small_blocks = [("(300, 512, 3)", "(300, 256, 3)")]
rows_that_fit = [
    ("(100, 64, 3), (300, 512, 3), (20, 32, 0), (257, 128, 300)", "(512, 512, 3), (128, 64, 300)"),
    ("standard_normal((2, 700))", "standard_normal((2, 512))"),
]
around_0 = [("(257, 128, 300)", "(257, 128, 1)")]


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        (one_seed, "atomicAdd of floats"),
        (small_blocks, "blocks of 512 lose a half"),
        (rows_that_fit, "the end of a row is left out"),
        (around_0, "the mean of the squares less the mean squared"),
    ],
)
def test_weak_tests_miss_bugs(rows_of_tests: Any, changes: list[tuple[str, str]], missed: str) -> None:
    rows = rows_of_tests(8, own_tests(*changes))
    assert {row.title for row in rows if row.status != "passed"} == {f"bug: {missed}"}


def test_tests_that_ask_too_much_earn_nothing(rows_of_tests: Any) -> None:
    rows = rows_of_tests(8, own_tests(("rtol=1e-4)", "rtol=1e-12)")))
    assert [row.title for row in rows if row.status == "passed"] == []
    assert len(rows) == 9


def test_nvidias_compiler_takes_the_solution() -> None:
    nvrtc = pytest.importorskip("nvrtc")
    if not nvrtc.available:
        pytest.skip("no CUDA compiler")
    module, _ = submission.load(SOLUTION.read_text(), "solution.py")
    programs = [(module.normalize_cu(), "normalize"), (wrong_kernels.TREE + wrong_kernels.MOMENTS, "moments")]
    programs += [(piece() + module.moments_cu(), "moments") for piece in (module.tree_cu, module.shuffle_cu)]
    for code, name in programs:
        for architecture in nvrtc.ARCHITECTURES:
            assert [found.spilled for found in nvrtc.resources(code, [name], architecture)] == [0]
