"""Lab 8: runs the student's CUDA on the CPU, with the threads in many orders, and checks for missing barriers.

The checks count what each thread reads, writes and shuffles (see cuda_work.h), because a single thread could also
compute the right sum, but without a tree.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from minorm.labs import wrong_kernels
from minorm.labs.checks.right import lab08_cuda as ours
from minorm.labs.comparing import at_most, close, equal, parts, true
from minorm.labs.cuda import COMPILERS, without_barrier
from minorm.labs.lab import Lab
from minorm.labs.plugged import check_moments, check_moments_follow

LAB = Lab(
    8,
    "lab08_cuda",
    "CUDA block reduction",
    "How do threads of a block add up what each has, why must they wait, and how does every run give the same bits?",
    minutes=180,
    needs=(1, 2),
    writes=True,
    deadline=180,
    programs=COMPILERS,
)
SECONDS = 30.0  # a check may have to compile first
BOUND = 2e-5  # of a layer with the student's moments
LARGER_VARIANCES = """
__global__ void moments(const float* x, float* k, float* d, float* var, int m) {
    original_moments(x, k, d, var, m);
    __syncthreads();
    if (threadIdx.x == 0) var[blockIdx.x] = 4 * var[blockIdx.x] + 1;
}
"""
SEEDS = 6
BARRIER = "__syncthreads();"
FOREIGN = (
    "shim",
    "asm",
    "##",
    "include",
    "extern",
    "sanitize",
    "std::",
    "namespace",
    "__builtin",
    "__atomic",
    "__sync_",
)
DOUBLE = re.compile(r"//[^\n]*|/\*.*?\*/|(\bdouble\b|\b_+[Ff]loat\d+\w*)", re.DOTALL)  # outside of comments


def _text(student: Any, piece: str) -> str:
    """Return the CUDA text of the student's function `piece`. Raise Wrong if it uses C++ or a type wider than float.

    C++ code could change the counters of what each thread does.
    """
    text = getattr(student, piece)()
    true(isinstance(text, str), piece, "text", type(text).__name__)
    text = str(text)
    for word in FOREIGN:
        true(word not in text.replace("\\\n", ""), piece, "CUDA alone", f"text with {word!r}")
    wide = [match[1] for match in DOUBLE.finditer(text) if match[1]]
    true(not wide, piece, "only float, as the task asks", f"text with {wide[0]!r}" if wide else "")
    return text


def _require_at_most(counts: Any, bound: int, what: str, of: str, why: str) -> None:
    """Raise Wrong if a number in `counts`, an array (blocks, threads), is larger than `bound`."""
    counts = np.asarray(counts)
    block, thread = (int(place) for place in np.unravel_index(np.argmax(counts), counts.shape))
    most, total = int(counts[block, thread]), int(counts[block].sum())
    got = f"{most} by thread {thread} of block {block}, of the {total} {of} in this block"
    true(most <= bound, what, f"at most {bound} {of} by each thread{why}", got)


def _no_race(race: Any, what: str) -> None:
    true(race == "", what, "a barrier between a write and what others do with the number", str(race))


def _no_atomics(work: Any, what: str) -> None:
    count = int(np.asarray(work["atomics"]).sum())
    true(count == 0, what, "a sum without atomics", f"{count} atomic additions")


def _normalize(student: Any, rng: np.random.Generator, cases: tuple[tuple[int, int, int], ...]) -> None:
    pieces = (_text(student, "normalize_cu"),)
    for rows, m, threads in cases:
        x = rng.standard_normal((rows, m)).astype(np.float32)
        mean, rstd = rng.standard_normal((2, rows)).astype(np.float32)
        found = student.native("cuda", pieces, "normalized", x=x, mean=mean, rstd=rstd, threads=threads)
        y, work = parts(found, 2, "normalize")
        what, turns = f"y of {rows} rows of {m}, {threads} threads", -(-m // threads)
        close(y, (x - mean[:, None]) * rstd[:, None], what, 1e-5, 1e-6)
        _require_at_most(work["writes"], turns, what, "writes", f", for its part of a row of {m}")
        _require_at_most(work["reads"], 3 * turns + 3, what, "reads", f", for its part of a row of {m}")


@LAB.check("8.1", "a block for each row", points=2, visible=True, seconds=SECONDS)
def normalize_rows(student: Any, rng: np.random.Generator) -> None:
    _normalize(student, rng, ((1, 64, 64), (5, 128, 32)))


@LAB.check("8.1", "rows that are no multiple of the block", points=2, seconds=SECONDS)
def normalize_odd(student: Any, rng: np.random.Generator) -> None:
    _normalize(student, rng, ((3, 100, 64), (4, 7, 32), (1, 1, 96), (2, 1500, 512)))


HARNESS = """
__global__ void each(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = block_sum(x[i]);
}
__global__ void twice(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    float first = block_sum(v);
    float second = block_sum(v * v);
    y[2 * i] = first;
    y[2 * i + 1] = second;
}
"""


def _block_sums(student: Any, piece: str, kernel: str, x: Any, seeds: int = 1, left_out: int = -1) -> list[Any]:
    """Return [each thread's sums, barriers, race] for each seed, with one block per row of x.

    left_out: the number of a barrier to remove; -1 for no barrier
    """
    text = _text(student, piece)
    pieces = (without_barrier(text, left_out) if left_out >= 0 else text, HARNESS)
    options = {"kernel": kernel, "x": x, "seeds": seeds, "may_fail": left_out >= 0}
    found = student.native("cuda", pieces, "block_sums", **options)
    what = f"block_sum of {x.shape[1]} threads"
    return [parts(each, 3, what) for each in parts(found, seeds, what)]


def _numbers(rng: np.random.Generator, blocks: int, threads: int) -> Any:
    return rng.uniform(0.5, 1.5, (blocks, threads)).astype(np.float32)


def _sums(student: Any, rng: np.random.Generator, piece: str, sizes: tuple[int, ...]) -> None:
    for threads in sizes:
        x = _numbers(rng, 2, threads)
        ((y, _, _),) = _block_sums(student, piece, "each", x)
        expected = np.broadcast_to(x.sum(1, dtype=np.float64)[:, None, None], (*x.shape, 1))
        close(y, expected, f"block_sum that each of {threads} threads gets", rtol=1e-6)


def _sums_twice(student: Any, rng: np.random.Generator, piece: str, sizes: tuple[int, ...]) -> None:
    """Check a kernel that computes two sums, one after the other, with its threads in many orders."""
    for threads in sizes:
        x = _numbers(rng, 1, threads)
        found = _block_sums(student, piece, "twice", x, SEEDS)
        sums = np.stack([x.sum(1, dtype=np.float64), np.square(x, dtype=np.float64).sum(1)], 1)
        for seed, (y, _, _) in enumerate(found):
            what = f"two block_sums in a row, {threads} threads, seed {seed}"
            close(y, np.broadcast_to(sums[:, None, :], (*x.shape, 2)), what, rtol=1e-6)
            equal(y, np.asarray(found[0][0]), f"{what}, against seed 0")


def _every_barrier_needed(student: Any, rng: np.random.Generator, piece: str, threads: int) -> None:
    """Check that the sum needs each of its barriers.

    If one barrier is removed, a block of `threads` or 4 * `threads` threads must have a race or a wrong sum.
    """
    count = _text(student, piece).count(BARRIER)
    true(0 < count <= 12, f"number of `{BARRIER}` in block_sum", "from 1 to 12", str(count))
    for which in range(count):
        changed = any(_barrier_shows(student, _numbers(rng, 1, size), piece, which) for size in (threads, 4 * threads))
        what = f"block_sum without its barrier number {which + 1}"
        true(
            changed, what, "a wrong result in some order of threads", "the right result, so this barrier is not needed"
        )


def _barrier_shows(student: Any, x: Any, piece: str, which: int) -> bool:
    """Return whether the kernel without this barrier fails, has a race, or gives other sums."""
    right = _block_sums(student, piece, "twice", x)[0][0]
    found = _block_sums(student, piece, "twice", x, 2 * SEEDS, which)
    return any(isinstance(y, str) or race or not np.array_equal(y, right) for y, _, race in found)


def _few_barriers(student: Any, rng: np.random.Generator, piece: str, threads: int, most: int) -> None:
    x = _numbers(rng, 1, threads)
    ((_, barriers, _),) = _block_sums(student, piece, "each", x)
    at_most(barriers, most, f"barriers of one block_sum of {threads} threads")


def _counted_sum(student: Any, piece: str, x: Any, **options: Any) -> tuple[Any, ...]:
    """Run the student's block_sum once and check the sums.

    Return the sums, each thread's work, and the number of barriers per block.
    """
    what = f"block_sum of {x.shape[1]} threads"
    found = student.native("cuda", (_text(student, piece), HARNESS), "worked", x=x, **options)
    y, work, barriers, race = parts(found, 4, what)
    if not options:
        close(y, np.broadcast_to(x.sum(1, dtype=np.float64)[:, None], x.shape), what, rtol=1e-5)
        _no_atomics(work, what)
        _no_race(race, what)
    return y, work, barriers / len(x)


def _adds_in_tree(student: Any, rng: np.random.Generator) -> None:
    """Check that each thread reads few numbers. The additions are then spread over the threads, as in a tree."""
    threads = int(rng.choice((512, 1024)))
    steps, what = threads.bit_length() - 1, f"block_sum of {threads} threads"
    _, work, barriers = _counted_sum(student, "tree_cu", _numbers(rng, 2, threads))
    _require_at_most(
        work["shared_reads"], 3 * steps + 2, what, "reads of shared memory", f", in a tree of {steps} steps"
    )
    expected = f"about {steps + 2} barriers, for {steps} steps"
    true(barriers >= steps // 3 + 2, what, expected, f"{barriers:g} barriers")


def _by_shuffles(student: Any, rng: np.random.Generator, threads: int) -> None:
    """Check that shuffles carry the numbers within warps, and that shared memory gets only one sum for each warp."""
    warps, what, x = threads // 32, f"block_sum of {threads} threads", _numbers(rng, 2, threads)
    _, work, _ = _counted_sum(student, "shuffle_cu", x)
    shuffles, levels = np.asarray(work["shuffles"]), 5 + (warps - 1).bit_length()
    _require_at_most(work["shared_reads"], 4, what, "reads of shared memory", ", because shuffles carry the rest")
    writes = int(np.asarray(work["shared_writes"])[0].sum())
    expected = f"{warps} writes into shared memory in a block, one for each warp"
    true(writes <= 2 * warps + 2, what, expected, f"{writes} writes")
    least = int(shuffles.min())
    true(least >= 5, what, "5 shuffles by each thread, for the 32 threads of its warp", f"{least} by one thread")
    most = int(shuffles.max())
    true(levels <= most <= 14, what, f"{levels} shuffles for {threads} threads, in two levels", f"{most}")


@LAB.check("8.2", "every thread has the sum", points=2, visible=True, seconds=SECONDS)
def tree_sums(student: Any, rng: np.random.Generator) -> None:
    _sums(student, rng, "tree_cu", (64, 256))


@LAB.check("8.2", "twice in a row, the same bits in any order", points=2, visible=True, seconds=SECONDS)
def tree_again(student: Any, rng: np.random.Generator) -> None:
    _sums_twice(student, rng, "tree_cu", (64, 128))
    _adds_in_tree(student, rng)


@LAB.check("8.2", "blocks of 1 to 1024 threads", seconds=SECONDS)
def tree_sizes(student: Any, rng: np.random.Generator) -> None:
    _sums(student, rng, "tree_cu", (1, 2, 8, 32, 512, 1024))


@LAB.check("8.2", "no barrier too many", visible=True, seconds=SECONDS)
def tree_barriers(student: Any, rng: np.random.Generator) -> None:
    _every_barrier_needed(student, rng, "tree_cu", 64)
    _few_barriers(student, rng, "tree_cu", 256, 11)


@LAB.check("8.2", "a tree, its work spread over the threads", points=2, visible=True, seconds=SECONDS)
def tree_work(student: Any, rng: np.random.Generator) -> None:
    _adds_in_tree(student, rng)


@LAB.check("8.2", "few roundings", seconds=SECONDS)
def tree_exact(student: Any, rng: np.random.Generator) -> None:
    """Check that block_sum adds 1023 ones to 2^24 almost exactly, in float32.

    Added one by one, all ones are lost. A tree loses a single one, or a few if a step adds more than two numbers.
    """
    x = np.ones((1, 1024), np.float32)
    x[0, 0] = 1 << 24
    ((y, _, _),) = _block_sums(student, "tree_cu", "each", x)
    close(y, np.full((1, 1024, 1), (1 << 24) + 1023.0), "block_sum of 2^24 and 1023 ones", rtol=0, atol=8.0)


LAB.mutants("8.3", wrong_kernels.RIGHT, wrong_kernels.WRONG, visible=True, seconds=SECONDS)


@LAB.check("8.4", "every thread has the sum, by shuffles", points=2, visible=True, seconds=SECONDS)
def shuffle_sums(student: Any, rng: np.random.Generator) -> None:
    _sums(student, rng, "shuffle_cu", (256, 64, 32))  # a larger block leaves old numbers in shared memory


@LAB.check("8.4", "twice in a row, with warps that fall behind", points=2, visible=True, seconds=SECONDS)
def shuffle_again(student: Any, rng: np.random.Generator) -> None:
    _sums_twice(student, rng, "shuffle_cu", (64, 128))
    _by_shuffles(student, rng, 128)


@LAB.check("8.4", "two barriers and no more", visible=True, seconds=SECONDS)
def shuffle_barriers(student: Any, rng: np.random.Generator) -> None:
    _few_barriers(student, rng, "shuffle_cu", 256, 2)
    _every_barrier_needed(student, rng, "shuffle_cu", 64)


@LAB.check("8.4", "shuffles carry the numbers", points=2, visible=True, seconds=SECONDS)
def shuffle_work(student: Any, rng: np.random.Generator) -> None:
    _by_shuffles(student, rng, 1024)
    x = _numbers(rng, 1, 96)
    right, work, _ = _counted_sum(student, "shuffle_cu", x)
    for which in range(int(np.asarray(work["shuffles"]).max())):
        y, _, _ = _counted_sum(student, "shuffle_cu", x, changed_shuffle=which)
        changed = not np.array_equal(np.asarray(y), np.asarray(right))
        what = f"block_sum of 96 threads, where shuffle number {which + 1} gives 1 too much"
        true(changed, what, "another sum", "the same result, so the value of this shuffle is not used")


@LAB.check("8.4", "any number of warps", points=2, seconds=SECONDS)
def shuffle_sizes(student: Any, rng: np.random.Generator) -> None:
    _sums(student, rng, "shuffle_cu", (1024, 96, 160))
    _sums_twice(student, rng, "shuffle_cu", (96,))


def _row_moments(student: Any, x: Any, threads: int, seeds: int) -> tuple[list[Any], Any, Any]:
    """Run the student's kernel once for each seed.

    Return k, d and var of each row, each thread's work, and a race if there was one.
    """
    pieces = (_text(student, "shuffle_cu"), _text(student, "moments_cu"))
    found, work, race = parts(
        student.native("cuda", pieces, "row_moments", x=x, threads=threads, seeds=seeds), 3, "moments"
    )
    return [parts(tuple(each), 3, "moments") for each in parts(found, seeds, "moments")], work, race


def _moments(student: Any, rng: np.random.Generator, shape: tuple[int, int], threads: int, offset: float) -> None:
    x = (rng.standard_normal(shape) + offset).astype(np.float32)
    wide = x.astype(np.float64)
    ((k, d, var),), _, _ = _row_moments(student, x=x, threads=threads, seeds=1)
    what = f"of {shape[0]} rows of {shape[1]}, mean {offset:g}, {threads} threads"
    close(np.asarray(k, np.float64) + d, wide.mean(1), f"k + d {what}", rtol=1e-10, atol=2e-6)
    close(var, wide.var(1), f"var {what}", rtol=2e-5)


@LAB.check("8.5", "k, d and var", points=2, visible=True, seconds=SECONDS)
def moments_close(student: Any, rng: np.random.Generator) -> None:
    _moments(student, rng, (3, 256), 64, 0.0)
    _moments(student, rng, (2, 1000), 128, 2.0)


@LAB.check("8.5", "any offset, any shape", points=2, seconds=SECONDS)
def moments_far(student: Any, rng: np.random.Generator) -> None:
    for shape, threads, offset in (
        ((3, 50), 64, 100.0),
        ((2, 777), 96, 1e4),
        ((2, 3000), 256, -1e6),
        ((1, 2), 32, 1.0),
    ):
        _moments(student, rng, shape, threads, offset)


@LAB.check("8.5", "the same bits in any order", seconds=SECONDS)
def moments_bits(student: Any, rng: np.random.Generator) -> None:
    x = (rng.standard_normal((2, 500)) * 3 + 1).astype(np.float32)
    (first, *others), work, race = _row_moments(student, x=x, threads=64, seeds=SEEDS)
    _rows_shared(work, race, x.shape[1], 64)
    close(np.asarray(first[2]), x.astype(np.float64).var(1), "var with seed 0", rtol=1e-4)
    for seed, found in enumerate(others, 1):
        equal(np.asarray(found), np.asarray(first), f"k, d and var with seed {seed}, against seed 0")


def _rows_shared(work: Any, race: Any, m: int, threads: int) -> None:
    """Raise Wrong unless each thread reads about the same share of its block's row and adds with block_sum."""
    what, turns = f"moments of rows of {m}, {threads} threads", -(-m // threads)
    _require_at_most(work["reads"], 3 * turns + 3, what, "reads", f", for its part of a row of {m}")
    _require_at_most(work["shared_reads"], 24, what, "reads of shared memory", ", for block_sum")
    least = int(np.asarray(work["shuffles"]).min())
    true(least >= 5, what, "shuffles by each thread, in block_sum", f"{least} by one thread")
    _no_atomics(work, what)
    _no_race(race, what)


@LAB.check("8.5", "a row shared among the threads", points=2, visible=True, seconds=SECONDS)
def moments_work(student: Any, rng: np.random.Generator) -> None:
    _moments(student, rng, (3, 1000), 128, 1.0)
    x = rng.standard_normal((3, 1000)).astype(np.float32)
    _, work, race = _row_moments(student, x=x, threads=128, seeds=1)
    _rows_shared(work, race, 1000, 128)


def _with_larger_variances(text: str) -> str:
    """Change the kernel `moments` in the text of a program, so that it returns 4 var + 1 in place of var."""
    first, last = '#line 1 "kernel.cu"', '#line 1 "launcher"'
    if not re.search(r"__global__\s+void\s+moments\b", text):
        return text
    text = text.replace(first, f"#define moments original_moments\n{first}", 1)
    return text.replace(last, f"#undef moments\n{LARGER_VARIANCES}{last}", 1)


@LAB.check("8.6", "LayerNorm with your kernel", points=2, visible=True, seconds=SECONDS)
def in_layer_norm(student: Any, rng: np.random.Generator) -> None:
    check_moments(student, rng, "layer_norm", (3, 5, 7), 1.0, BOUND)
    check_moments(student, rng, "layer_norm", (2, 999), 1e5, BOUND)
    check_moments_follow(student, rng, ("layer_norm",), "the kernel moments", _with_larger_variances, BOUND)


@LAB.check("8.6", "BatchNorm and RMSNorm", points=2, seconds=SECONDS)
def in_others(student: Any, rng: np.random.Generator) -> None:
    check_moments(student, rng, "batch_norm", (3, 4, 5, 6), 1e4, BOUND)
    check_moments(student, rng, "channels-last batch_norm", (3, 4, 5, 6), 1e4, BOUND)
    check_moments(student, rng, "rms_norm", (4, 60), 2.0, BOUND)
    check_moments_follow(student, rng, ("batch_norm", "rms_norm"), "the kernel moments", _with_larger_variances, BOUND)


LAB.provide("8.4", shuffle_cu=ours.shuffle_cu)
LAB.provide("8.5", moments_cu=ours.moments_cu)
