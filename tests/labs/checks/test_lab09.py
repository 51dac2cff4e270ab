"""Lab 9: typical wrong ways to share a batch lose their points and no others."""

from __future__ import annotations

from typing import Any

import pytest

EQUAL, ANY, EMPTY, FAR = "parts of one size", "parts of any size", "an empty part", "far from 0"
ONE, MANY = "the moments of all ranks, in one message", "one rank, many ranks, ranks without rows"
WHOLE, MORE = "two ranks with equal rows", "ranks with different numbers of rows"
SHARE, SUMS, ODD = "the share of a rank's loss", "all gradients in one message", "gradients of odd shapes"
Y, DX, UNEQUAL = (
    "y equals that of the whole batch",
    "dx equals that of the whole batch",
    "ranks with different numbers of images",
)
TREE, ODD_TREE, BITS, ONE_VECTOR = (
    "the order of the tree",
    "any number of vectors",
    "the same bits on 1, 2, 4 and 8 processes",
    "each process sends one vector in one message",
)
SINGLE, MESSAGES, TRAINING = (
    "float32, far from 0",
    "one message forward and one backward",
    "ranks train as one computer",
)
MERGED = "(weight * (var + (mean - middle) ** 2)).sum(0)"
FORWARD = {Y, DX, UNEQUAL, SINGLE, MESSAGES, TRAINING}  # what moments decide
HALVES = (
    "    n = len(vectors)\n    if n == 1: return vectors[0]\n"
    "    return tree_sum(vectors[: n // 2]) + tree_sum(vectors[n // 2 :])\n"
)
REDUCED = "    sum_g, sum_gx, m = rank.all_reduce(sums)\n"
SHARED = "sent = rank.all_gather(np.stack([np.full(mean.shape, m, np.float64), mean, var]))"
BACK = "return sum_g * (here / m), sum_gx * (here / m)"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # the mean of the variances, weighted
        ([(MERGED, "(weight * var).sum(0)")], {EQUAL, ANY, EMPTY, FAR, ONE, MANY} | FORWARD),
        # right only for parts of equal size
        (
            [("weight = m[there][:, None] / m.sum()", "weight = 1 / there.sum()")],
            {ANY, EMPTY, FAR, ONE, MANY, UNEQUAL, SINGLE, TRAINING},
        ),
        # moments about 0
        ([(MERGED, "(weight * (var + mean**2)).sum(0) - middle**2")], {FAR}),
        # an empty part is multiplied by 0, and NaN stays
        ([("there = m > 0", "there = m >= 0")], {EMPTY, MANY}),
        # three messages
        (
            [
                (
                    SHARED,
                    "sent = np.stack([rank.all_gather(v) for v in (np.full(mean.shape, m, np.float64), mean, var)], 1)",
                )
            ],
            {ONE, MANY, MESSAGES},
        ),
        # the sums of this rank only
        ([(REDUCED, "    rank.all_reduce(sums)\n    sum_g, sum_gx, m = sums\n")], {WHOLE, MORE}),
        # sums of all, divided by this rank's m
        ([(REDUCED, REDUCED + "    m = len(g)\n")], {WHOLE, MORE}),
        # R times this rank's m
        ([(REDUCED, REDUCED + "    m = len(g) * rank.size\n")], {MORE}),
        # every rank has the same share
        ([("return images / float(rank.all_reduce(images))", "return 1 / rank.size")], {SHARE, TRAINING}),
        # a message for each gradient
        (
            [
                (
                    "    flat = rank.all_reduce(",
                    "    return [rank.all_reduce(g) for g in gradients]\n    flat = rank.all_reduce(",
                )
            ],
            {SUMS, ODD},
        ),
        # the mean of the gradients, though the losses are shares
        ([("    flat = rank.all_reduce(", "    flat = 1 / rank.size * rank.all_reduce(")], {SUMS, ODD, TRAINING}),
        # no grad_sums
        (
            [("PartialBackend(moments=moments, grad_sums=grad_sums)", "PartialBackend(moments=moments)")],
            {DX, UNEQUAL, MESSAGES, TRAINING},
        ),
        # the sums of all, divided by this rank's m
        ([(BACK, "return sum_g, sum_gx")], {DX, UNEQUAL, MESSAGES, TRAINING}),
        # right only for ranks with equal numbers of images
        ([(BACK, "return sum_g / rank.size, sum_gx / rank.size")], {UNEQUAL, TRAINING}),
        # the mean as a single float32 number
        ([("return k, mean - k, var", "return k, 0 * k, var")], {SINGLE}),
        # added in order
        ([("    level = list(vectors)\n", "    return sum(vectors)\n")], {TREE, ODD_TREE, BITS}),
        # the first of an odd level moves up, not the last
        (
            [
                (
                    "zip(level[::2], level[1::2], strict=False)",
                    "zip(level[len(level) % 2 :: 2], level[1 + len(level) % 2 :: 2])",
                ),
                ("pairs + level[2 * len(pairs) :]", "level[: len(level) % 2] + pairs"),
            ],
            {ODD_TREE},
        ),
        # halves: the right bits only for powers of two
        (
            [
                (
                    "    level = list(vectors)\n",
                    HALVES,
                )
            ],
            {ODD_TREE},
        ),
        # all vectors are sent: the right bits, but eight times as many numbers
        (
            [
                (
                    "tree_sum(process.all_gather(tree_sum(vectors)))",
                    "tree_sum(np.concatenate(process.all_gather(vectors)))",
                )
            ],
            {ONE_VECTOR},
        ),
        # a tree in each process, but the partial sums in order
        ([("tree_sum(process.all_gather(", "sum(process.all_gather(")], {BITS}),
        # a rank that does not call all_gather: an error, and no hanging
        (
            [
                (
                    "    _, mean, var = all_moments(",
                    "    if rank.number: return k, d, var\n        _, mean, var = all_moments(",
                )
            ],
            FORWARD,
        ),
    ],
)
def test_wrong_ways_to_share(lost: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    assert lost(9, *changes) == expected


def test_what_would_hang_says_who_waits_for_whom(judge_changed: Any) -> None:
    idle = (
        "    sent = rank.all_gather(",
        "    if rank.number == 1:\n        return m, mean, var\n    sent = rank.all_gather(",
    )
    rows = {row.title: row for row in judge_changed(9, idle).outcomes}
    assert rows[ONE].status == "error"
    assert "rank 0 waits in all_gather for rank 1, which has ended" in rows[ONE].got
    assert rows[SUMS].status == "passed"
