"""Lab 9: compares the student's functions on simulated ranks with one computer that has the whole batch.

The judge passes the messages between the ranks and counts them. Each rank computes in its own process.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.kernels.partial import PartialBackend
from minorm.labs import digits_network
from minorm.labs.checks.variants.lab09_sync_batch_norm import V, level_above, scale, second, variance
from minorm.labs.comparing import at_most, close, equal, numbers, parts, true
from minorm.labs.lab import Lab
from minorm.labs.ranks import Rank, simulate
from minorm.tensor.creation import tensor

LAB = Lab(
    9,
    "lab09_sync_batch_norm",
    "SyncBatchNorm",
    "What must computers that share a batch send each other, so that they train like one computer?",
    minutes=90,
    needs=(1, 3),
    deadline=120,
    packages=("sklearn",),
    variants=V,
)
SECONDS = 60.0


def _rows(rng: np.random.Generator, counts: tuple[int, ...], channels: int, offset: float = 0.0) -> list[Any]:
    """Draw rows for each rank. Each rank has other means; channel c has a mean near `offset` * (c + 1)."""
    means = rng.standard_normal((len(counts), channels)) + offset * np.arange(1, channels + 1)
    return [rng.standard_normal((count, channels)) + mean for count, mean in zip(counts, means, strict=True)]


def _moments(rows: list[Any]) -> tuple[Any, Any, Any]:
    """Return counts, means, and variances in the variant's form; NaN for a rank without rows."""
    counts = np.array([len(part) for part in rows], np.float64)
    nothing = np.full(rows[0].shape[1], np.nan)
    mean = np.array([part.mean(0) if len(part) else nothing for part in rows])
    var = np.array([part.var(0) if len(part) else nothing for part in rows])
    return counts, mean, second(var, counts[:, None])


def _compare_moments(found: Any, rows: list[Any], what: str, rtol: float = 1e-9) -> None:
    """Check that the moments are those of all rows together."""
    whole = np.concatenate(rows)
    m, mean, told = parts(found, 3, what)
    close(m, float(len(whole)), f"m, {what}")
    close(mean, whole.mean(0), f"mean, {what}")
    close(told, second(whole.var(0), len(whole)), f"{V.second}, {what}", rtol=rtol)


def _merge(
    student: Any, rng: np.random.Generator, counts: tuple[int, ...], offset: float = 0.0, rtol: float = 1e-9
) -> None:
    rows = _rows(rng, counts, 3, offset)
    what = f"merge of parts with {', '.join(map(str, counts))} numbers"
    _compare_moments(student.merge(*_moments(rows)), rows, what if not offset else f"{what}, around {offset:g}", rtol)


@LAB.check("9.1", "parts of one size", visible=True)
def merge_equal(student: Any, rng: np.random.Generator) -> None:
    _merge(student, rng, (8, 8, 8))
    _merge(student, rng, (5,))


@LAB.check("9.1", "parts of any size", points=2, visible=True)
def merge_unequal(student: Any, rng: np.random.Generator) -> None:
    _merge(student, rng, (2, 50, 7))
    _merge(student, rng, (1, 1, 100, 3, 9))


@LAB.check("9.1", "an empty part")
def merge_empty(student: Any, rng: np.random.Generator) -> None:
    _merge(student, rng, (4, 0, 6))
    _merge(student, rng, (0, 1))


@LAB.check("9.1", "far from 0")
def merge_far(student: Any, rng: np.random.Generator) -> None:
    _merge(student, rng, (20, 30, 1), 1e6, rtol=1e-7)


def _same_on_all_ranks(found: list[Any]) -> Any:
    """Raise Wrong unless all ranks have the same result; return this result."""
    first = np.concatenate([np.ravel(np.asarray(value, np.float64)) for value in found[0]])
    for number, other in enumerate(found[1:], 1):
        flat = np.concatenate([np.ravel(np.asarray(value, np.float64)) for value in other])
        equal(flat, first, f"the result of rank {number}, compared with rank 0")
    return found[0]


def gathered(student: Any, counts: list[int], mean: Any, told: Any) -> list[Any]:
    """Run all_moments on each rank. Return one pair per rank: the result and the number of messages."""

    def program(rank: Rank) -> list[Any]:
        found = student.at(rank).all_moments(counts[rank.number], mean[rank.number], told[rank.number])
        return [found, rank.messages]

    return simulate(len(counts), program)


def _all_moments(student: Any, rng: np.random.Generator, counts: tuple[int, ...], channels: int) -> None:
    rows = _rows(rng, counts, channels)
    what = f"all_moments of {len(counts)} ranks with {', '.join(map(str, counts))} rows"
    m, mean, told = _moments(rows)
    found = gathered(student, [int(count) for count in m], mean, told)
    _compare_moments(_same_on_all_ranks([parts(result, 3, what) for result, _ in found]), rows, what)
    at_most(max(messages for _, messages in found), 1, f"messages of each rank, {what}")


@LAB.check("9.2", "the moments of all ranks, in one message", points=2, visible=True)
def moments_of_all(student: Any, rng: np.random.Generator) -> None:
    _all_moments(student, rng, (6, 2, 11), 4)


@LAB.check("9.2", "one rank, many ranks, ranks without rows")
def moments_of_many(student: Any, rng: np.random.Generator) -> None:
    _all_moments(student, rng, (7,), 3)
    _all_moments(student, rng, (1, 9, 0, 4, 4, 2, 16, 3), 1)


def gradients(student: Any, g: list[Any], xhat: list[Any], rstd: Any) -> list[Any]:
    """Run input_gradient on each rank. Return one pair per rank: the result and the number of messages."""

    def program(rank: Rank) -> list[Any]:
        dx = student.at(rank).input_gradient(g[rank.number], xhat[rank.number], rstd)
        return [dx, rank.messages]

    return simulate(len(g), program)


def _gradient(student: Any, rng: np.random.Generator, counts: tuple[int, ...]) -> None:
    rows = _rows(rng, counts, 3, 2.0)
    whole, cuts = np.concatenate(rows), np.cumsum(counts)[:-1]
    g = rng.standard_normal(whole.shape)
    rstd = 1 / np.sqrt(whole.var(0) + 1e-5)
    xhat = (whole - whole.mean(0)) * rstd
    expected = rstd * (g - g.mean(0) - xhat * (g * xhat).mean(0))
    split = [np.split(array, cuts) for array in (g, xhat, expected)]
    found = gradients(student, split[0], split[1], scale(rstd))
    for number, (dx, messages) in enumerate(found):
        what = f"dx of rank {number}, of ranks with {', '.join(map(str, counts))} rows"
        close(dx, split[2][number], what, rtol=1e-9, atol=1e-12)
        at_most(messages, 1, f"messages for {what}")


@LAB.check("9.3", "two ranks with equal rows", points=2, visible=True)
def gradient_equal(student: Any, rng: np.random.Generator) -> None:
    _gradient(student, rng, (5, 5))


@LAB.check("9.3", "ranks with different numbers of rows", points=2)
def gradient_unequal(student: Any, rng: np.random.Generator) -> None:
    _gradient(student, rng, (2, 9, 4))
    _gradient(student, rng, (6,))


def summed(student: Any, lists: list[list[Any]]) -> list[Any]:
    """Run sum_gradients on each rank. Return one pair per rank: the result and the number of messages."""

    def program(rank: Rank) -> list[Any]:
        return [student.at(rank).sum_gradients(lists[rank.number]), rank.messages]

    return simulate(len(lists), program)


def _share(student: Any, counts: list[int], rank: Rank) -> Any:
    """Run the student's `share` on a rank."""
    return student.at(rank).share(counts[rank.number])


@LAB.check("9.4", "the share of a rank's loss", visible=True)
def share_of_loss(student: Any, rng: np.random.Generator) -> None:
    for counts in ([4, 4], [int(count) for count in rng.integers(1, 50, 5)]):
        shares = simulate(len(counts), functools.partial(_share, student, counts))
        found = np.array([numbers(share, "share", "a number") for share in shares], np.float64)
        close(found, np.array(counts) / sum(counts), f"share of ranks with {counts} images")


def _sums(student: Any, rng: np.random.Generator, ranks: int, shapes: tuple[tuple[int, ...], ...]) -> None:
    lists = [[rng.standard_normal(shape) for shape in shapes] for _ in range(ranks)]
    found = summed(student, lists)
    for number, (arrays, messages) in enumerate(found):
        what = f"sum_gradients of {ranks} ranks, shapes {shapes}, on rank {number}"
        for place, array in enumerate(parts(arrays, len(shapes), what)):
            close(array, np.sum([mine[place] for mine in lists], 0), f"{what}: gradient {place}", rtol=1e-9, atol=1e-12)
        at_most(messages, 1, f"messages of {what}")


@LAB.check("9.4", "all gradients in one message", points=2, visible=True)
def sums_of_gradients(student: Any, rng: np.random.Generator) -> None:
    _sums(student, rng, 3, ((2, 3), (4,)))


@LAB.check("9.4", "gradients of odd shapes")
def sums_of_odd(student: Any, rng: np.random.Generator) -> None:
    _sums(student, rng, 2, ((3, 1, 2, 2), (), (1,), (5, 5)))


def backend(student: Any, rank: Rank) -> PartialBackend:
    """Return the student's sync_backend of a rank, for a layer in the judge's process."""
    call = student.at(rank).hold("sync_backend")
    return PartialBackend(forward=functools.partial(call, "forward"), backward=functools.partial(call, "backward"))


def layers(student: Any, xs: list[Any], dys: list[Any], s: Any, b: Any) -> list[Any]:
    """Run a BatchNorm with sync_backend on each rank; return y, dx, ds, db and the numbers of messages."""

    def program(rank: Rank) -> list[Any]:
        found, sent = _batch_norm(xs[rank.number], dys[rank.number], s, b, backend(student, rank), rank)
        return [*found, sent]

    return simulate(len(xs), program)


def _batch_norm(x: Any, dy: Any, s: Any, b: Any, backend: Any = None, rank: Any = None) -> tuple[list[Any], list[int]]:
    """Return y, dx, ds and db, and how many messages a rank sends forward and backward."""
    inputs: list[Any] = [tensor(value, requires_grad=True) for value in (x, s, b)]
    y = F.batch_norm(inputs[0], None, None, inputs[1], inputs[2], training=True, backend=backend)
    there = rank.messages if rank else 0
    y.backward(tensor(dy))
    return [y.array, *[value.grad.array for value in inputs]], [there, rank.messages - there if rank else 0]


def _layer(student: Any, rng: np.random.Generator, shapes: tuple[tuple[int, ...], ...], dtype: Any = np.float64) -> Any:
    """Run the student's layer on ranks, and minorm's layer on the whole batch.

    Return both results, and the rows at which the batch is cut.
    """
    offset = 3.0 if dtype == np.float64 else 1e4
    xs = [(rng.standard_normal(shape) * 2 + rng.standard_normal() + offset).astype(dtype) for shape in shapes]
    dys = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    s, b = rng.standard_normal((2, shapes[0][1])).astype(dtype)
    found = layers(student, xs, dys, s, b)
    whole = [np.concatenate(arrays).astype(np.float64) for arrays in (xs, dys)]
    expected, _ = _batch_norm(whole[0], whole[1], s.astype(np.float64), b.astype(np.float64))
    return found, expected, np.cumsum([shape[0] for shape in shapes])[:-1]


@LAB.check("9.5", "y equals that of the whole batch", points=2, visible=True)
def layer_y(student: Any, rng: np.random.Generator) -> None:
    found, expected, cuts = _layer(student, rng, ((3, 4, 2, 5), (3, 4, 2, 5)))
    for number, y in enumerate(np.split(expected[0], cuts)):
        close(found[number][0], y, f"y of rank {number}", rtol=1e-9, atol=1e-9)


@LAB.check("9.5", "dx equals that of the whole batch", points=2, visible=True)
def layer_dx(student: Any, rng: np.random.Generator) -> None:
    found, expected, cuts = _layer(student, rng, ((3, 4, 2, 5), (3, 4, 2, 5)))
    for number, dx in enumerate(np.split(expected[1], cuts)):
        close(found[number][1], dx, f"dx of rank {number}", rtol=1e-9, atol=1e-9)


@LAB.check("9.5", "ranks with different numbers of images", points=2)
def layer_unequal(student: Any, rng: np.random.Generator) -> None:
    found, expected, cuts = _layer(student, rng, ((1, 3, 4, 4), (7, 3, 4, 4), (2, 3, 4, 4)))
    for place, name in ((0, "y"), (1, "dx")):
        for number, array in enumerate(np.split(expected[place], cuts)):
            close(found[number][place], array, f"{name} of rank {number}", rtol=1e-9, atol=1e-9)
    for place, name in ((2, "ds"), (3, "db")):
        total = np.sum([rank[place] for rank in found], 0)
        close(total, expected[place], f"{name}, summed over the ranks", rtol=1e-9, atol=1e-9)


@LAB.check("9.5", "float32, far from 0", points=1)
def layer_single(student: Any, rng: np.random.Generator) -> None:
    found, expected, cuts = _layer(student, rng, ((2, 3, 4, 4), (5, 3, 4, 4)), np.float32)
    for number, y in enumerate(np.split(expected[0], cuts)):
        close(found[number][0], y, f"y of rank {number}, float32 around 10,000", 1e-4, 1e-4, dtype=np.float32)


@LAB.check("9.5", "one message forward and one backward")
def layer_messages(student: Any, rng: np.random.Generator) -> None:
    found, expected, cuts = _layer(student, rng, ((2, 3), (2, 3)))
    for number, (y, dx) in enumerate(zip(*(np.split(whole, cuts) for whole in expected[:2]), strict=True)):
        close(found[number][0], y, f"y of rank {number}", rtol=1e-9, atol=1e-9)
        close(found[number][1], dx, f"dx of rank {number}", rtol=1e-9, atol=1e-9)
        there, back = found[number][4]
        true(there == back == 1, "messages of a layer, forward and backward", "1 and 1", f"{there} and {back}")


def trained(student: Any, cuts: list[int], steps: int) -> Any:
    """Return the losses of ranks that train the digits' network with the student's functions."""
    return digits_network.losses_over_ranks(
        cuts,
        functools.partial(backend, student),
        lambda rank, count: float(numbers(student.at(rank).share(count), "share", "a number")),
        lambda rank, gradients: student.at(rank).sum_gradients(gradients),
        steps,
    )


@functools.cache
def _one_computer(steps: int) -> Any:
    """Train the digits' network on one computer, and return the losses."""
    return digits_network.losses(None, steps)


@LAB.check("9.5", "ranks train as one computer", points=3, seconds=SECONDS)
def training(student: Any, rng: np.random.Generator) -> None:
    cuts = [int(rng.integers(6, 30)), int(rng.integers(34, 58))]
    found = trained(student, cuts, 6)
    what = f"losses of three ranks, batches of 64 cut at {cuts[0]} and {cuts[1]}"
    close(found, _one_computer(6), what, rtol=1e-8)


def carried(student: Any, vectors: Any, sizes: list[int]) -> list[Any]:
    """Run sum_over with each number of ranks.

    Return for each rank the result, the number of messages, and the number of numbers sent.
    """

    def program(rank: Rank) -> list[Any]:
        found = student.at(rank).sum_over(np.split(vectors, rank.size)[rank.number])
        return [found, rank.messages, rank.numbers_sent]

    return [simulate(size, program) for size in sizes]


def _vectors(rng: np.random.Generator, count: int, length: int = 40) -> Any:
    """Draw float32 vectors whose sum depends on the order."""
    return (rng.standard_normal((count, length)) * 10.0 ** rng.integers(-3, 4, (count, 1))).astype(np.float32)


def _tree(vectors: Any) -> Any:
    """Return the sum of the vectors, added up as a tree."""
    level = list(vectors)
    while len(level) > 1:
        level = level_above(level)
    return level[0]


def _as_a_tree(student: Any, rng: np.random.Generator, count: int) -> None:
    vectors = _vectors(rng, count)
    what = f"tree_sum of {count} vectors"
    found = student.tree_sum(vectors)
    close(found, vectors.sum(0, dtype=np.float64), what, rtol=1e-3, atol=1e-2)
    equal(found, _tree(vectors), f"{what}, every bit")


@LAB.check("9.6", "the order of the tree", visible=True)
def brackets(student: Any, rng: np.random.Generator) -> None:
    _as_a_tree(student, rng, 2)
    _as_a_tree(student, rng, 8)


@LAB.check("9.6", "any number of vectors")
def brackets_of_any(student: Any, rng: np.random.Generator) -> None:
    for count in (1, 3, 5, 6, 7, 11):
        _as_a_tree(student, rng, count)


@LAB.check("9.6", "the same bits on 1, 2, 4 and 8 processes", points=2, visible=True)
def same_bits(student: Any, rng: np.random.Generator) -> None:
    vectors = _vectors(rng, 8)
    found = carried(student, vectors, [1, 2, 4, 8])
    sums = [np.asarray(result[0]) for results in found for result in results]
    close(sums[0], vectors.sum(0, dtype=np.float64), "sum_over on one process", rtol=1e-3, atol=1e-2)
    for size, results in zip((1, 2, 4, 8), found, strict=True):
        for number, result in enumerate(results):
            equal(result[0], sums[0], f"sum_over on {size} processes, process {number}, compared with one process")


@LAB.check("9.6", "each process sends one vector in one message")
def one_vector(student: Any, rng: np.random.Generator) -> None:
    vectors = _vectors(rng, 8, 10)
    for results in carried(student, vectors, [1, 2, 4]):
        for number, (found, messages, sent) in enumerate(results):
            what = f"of process {number} of {len(results)}"
            close(found, vectors.sum(0, dtype=np.float64), f"sum_over {what}", rtol=1e-3, atol=1e-2)
            at_most(messages, 1, f"messages {what}")
            at_most(sent, 10, f"numbers sent {what}")


def _merged(m: Any, mean: Any, told: Any) -> tuple[Any, Any, Any]:
    """Return count, mean and variance of all ranks together. A rank without rows counts as 0, not as NaN."""
    mean, var = (np.where(m[:, None] > 0, v, 0) for v in (mean, variance(told, m[:, None])))
    whole = m.sum()
    middle = np.einsum("r,rc->c", m, mean) / whole
    var = np.einsum("r,rc->c", m, var + np.square(mean - middle)) / whole
    return whole, middle, second(var, whole)


LAB.provide("9.1", merge=_merged)
