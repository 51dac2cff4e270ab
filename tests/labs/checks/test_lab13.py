"""Lab 13: typically wrong answers lose the points they should, and no others; weak tests miss wrong planners."""

from __future__ import annotations

from typing import Any

import pytest

STEPS = {"steps in elements, in the order of memory", "a refusal of gaps, steps of 0 and negative steps"}
REFUSED = "a refusal of gaps, steps of 0 and negative steps"
PLANS, PLANS_ODD = "five norms", "lengths of 1, other orders, any axes"
RUNS, RUNS_ODD = "five norms over their loops", "large means, other orders"
INNER, INNER_ODD = "the kernel and the lines of five norms", "other norms, rows that share lines"
BATCH, OTHERS = "your forward in BatchNorm", "in Layer-, Group- and InstanceNorm"
TRAINS = "the digits network trains as with the library"
LAYERS = {BATCH, OTHERS, TRAINS}
RIGHT = "your tests pass on the right implementation"
BUGS = {
    "bug: merged where scale is broadcast",
    "bug: steps in bytes",
    "bug: kept and reduced swapped",
    "bug: axes of length 1 kept",
    "bug: nothing merged",
    "bug: negative steps taken as positive ones",
}
LIBRARY = """
    from minorm.kernels.reference import norm
    return norm.forward(nest, x, s, b, equation)
    split ="""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # any gap is taken for a loop
        ([("        if step != expected:\n", "        if step < 0:\n")], {REFUSED}),
        # a step of 0 goes unnoticed
        ([("        if step != expected:\n", "        if step and step != expected:\n")], {REFUSED}),
        # the order of the shape
        ([("    found.sort(key=lambda axis: -axis[2])\n", "")], {*STEPS, PLANS, PLANS_ODD, BATCH, OTHERS} - {REFUSED}),
        # merged across a broadcast scale
        ([("loops[-1][1:] == (count * data, count * param[axis])", "loops[-1][1] == count * data")],
         {PLANS_ODD, PLANS, OTHERS}),
        # the buffer of scale in the order of the shape
        ([("in reversed(axes):\n        param", "in sorted(axes, reverse=True):\n        param")], {PLANS_ODD}),
        ([("loops = reduce if axis in reduced else keep", "loops = keep if axis in reduced else reduce")],
         {PLANS, PLANS_ODD, *LAYERS}),
        # E[x^2] - E[x]^2, whose digits are gone far from 0
        ([("np.square(x - mean).mean(axis=1, keepdims=True)",
           "np.square(x).mean(axis=1, keepdims=True) - mean**2")], {RUNS_ODD}),
        ([("    if scale is not None:\n        y = y * scale[param]\n", "    y = y * scale[param]\n")],
         {RUNS, RUNS_ODD, OTHERS}),
        ([("np.sqrt(var + eps)", "(np.sqrt(var) + eps)")], {RUNS, RUNS_ODD, *LAYERS}),
        ([("    result[data] = y\n", "    result[...] = y.ravel()\n")], {RUNS, RUNS_ODD, *LAYERS}),
        # the last loop, whatever its step
        ([("    if any(data == 1 for _, data, _ in keep):\n", "    if not reduce or reduce[-1][1] > 1:\n")],
         {INNER_ODD}),
        ([("* itemsize // 64", "// 64")], {INNER, INNER_ODD}),
        # the reference in place of a plan: the loops are not there
        ([("\n    split =", LIBRARY)], LAYERS),
        # axes before the group split
        ([("split = x.reshape(nest.shape)", "split = x")], {OTHERS}),
        ([("Statistics.of(mean, 0 * mean, var,", "Statistics.of(0 * mean, 0 * mean, var,")], {TRAINS}),
    ],
)  # fmt: skip
def test_wrong_answers(lost: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    assert lost(13, *changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # no axis of length 1
        ([("(2, 3, 1, 5), (60, 20, 20, 4), 4, (0, 3)", "(2, 3, 5), (60, 20, 4), 4, (0, 2)")],
         {"bug: axes of length 1 kept"}),
        # only gaps
        ([("((-12, 4), (0, 4), (24, 4))", "((24, 4),)")], {"bug: negative steps taken as positive ones"}),
        # a planner that must refuse everything is a wrong test
        ([("((-12, 4), (0, 4), (24, 4))", "((12, 4),)")], {RIGHT, *BUGS}),
    ],
)  # fmt: skip
def test_weak_tests_miss_bugs(lost: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    assert lost(13, *changes) == expected
