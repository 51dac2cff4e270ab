"""Lab 0: typically wrong answers lose the points they should, and no others."""

from __future__ import annotations

from typing import Any

import pytest

MEANS = {"your loops, your means"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # LayerNorm over the last axis alone, as for text
        ('"layer": 1,', '"layer": ndim - 1,', {"axes of images", "axes of other ranks"}),
        # the axes of four-dimensional data, whatever the data
        ("range(ndim) if i != 1", "range(4) if i != 1", {"axes of other ranks"}),
        # group's answer about x before the split
        ('last = ndim + 1 if kind == "group" else ndim', "last = ndim", {"axes of images", "axes of other ranks"}),
        # the highest bit for axis 0
        ("sum(1 << axis for axis in set(axes))", "sum(8 >> a for a in axes)", {"a mask of axes"}),
        ("mask.bit_length()", "4", {"the axes of a mask"}),
        # channel in the group before the group
        (
            "x.reshape(n, num_groups, c // num_groups, *x.shape[2:])",
            "x.reshape(n, c // num_groups, num_groups, *x.shape[2:])",
            {"groups of neighbours"},
        ),
        ("if num_groups < 1 or c % num_groups:", "if False:", {"a wrong number of groups is refused"}),
        # kept for reduced
        ("slice(None) if axis in axes", "slice(None) if axis not in axes", {"the row of an element"}),
        # never merging
        (
            "if found and found[-1][1] == count * step:",
            "if False:",
            {"the loops of the four norms", "lengths of 1, no axes, all axes", "every set of axes of rank 5"},
        ),
        # merging axes that are neighbours in the list but not in memory
        (
            "if found and found[-1][1] == count * step:",
            "if found:",
            {"the loops of the four norms", "every set of axes of rank 5", *MEANS},
        ),
        (
            "if count == 1:\n            continue",
            "pass",
            {"lengths of 1, no axes, all axes", "every set of axes of rank 5"},
        ),
        # in the order of memory, not of the loops
        (
            "found = [p + i * step for p in found for i in range(count)]\n",
            "found = sorted(p + i * step for p in found for i in range(count))\n",
            {"positions of loops"},
        ),
        # inner loop slowest
        (
            "[p + i * step for p in found for i in range(count)]",
            "[p + i * step for i in range(count) for p in found]",
            {"positions of loops", "means by loops, every mask", *MEANS},
        ),
    ],
)
def test_wrong_answers(lost: Any, old: str, new: str, expected: set[str]) -> None:
    assert lost(0, (old, new)) == expected
