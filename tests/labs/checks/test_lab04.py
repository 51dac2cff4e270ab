"""Lab 4: typically wrong answers lose the points they should, and no others; weak tests find fewer bugs."""

from __future__ import annotations

from typing import Any

import pytest

FOUR = {"ONNX", "PyTorch", "Keras", "the paper"}
STATISTICS = "mean, var and m of a batch"
RIGHT = "your tests pass on the right implementation"
FEWER = "bug: the running variance divides by m - 1"
INVERTED = "bug: momentum is the share of the new value"
FROM_BATCH = "bug: evaluation normalizes with the statistics of the batch"
BUGS = {
    FEWER,
    INVERTED,
    "bug: eps outside the root",
    "bug: the mean is not subtracted",
    "bug: variance over the batch axis only",
    "bug: sums in float16",
    "bug: training normalizes with the new running statistics",
    FROM_BATCH,
}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # positions forgotten
        ("axes = (0, *range(2, x.ndim))\n", "axes = 0\n", {STATISTICS, "one step", *FOUR}),
        # N - 1 where the population's was asked for
        ("x.var(axis=axes), x", "x.var(axis=axes, ddof=1), x", {STATISTICS, "one step", *FOUR}),
        # m is the batch size
        ("x.size // x.shape[1]", "len(x)", {STATISTICS, "PyTorch", "the paper"}),
        # momentum inverted
        (
            "return new_mean, new_var",
            "return mean + batch_mean - new_mean, var + batch_var - new_var",
            {"one step"},
        ),
        # in place
        (
            "    return new_mean, new_var",
            "    x -= batch_mean[0]\n    return new_mean, new_var",
            {"old values are not changed"},
        ),
        ("return var * m / (m - 1)\n", "return var * (m - 1) / m\n", {"m - 1", "PyTorch", "the paper"}),
        # one batch behind
        ("return seen / (seen + 1)\n", "return (seen + 1) / (seen + 2)\n", {"the average of all batches", "the paper"}),
        # PyTorch's momentum taken for ONNX's
        ('momentum if convention == "pytorch" else 1 - momentum', "1 - momentum", {"PyTorch"}),
        # and the other way round
        ('momentum if convention == "pytorch" else 1 - momentum', "momentum", {"ONNX", "Keras"}),
        ('"keras": 0.01', '"keras": 0.1', {"Keras"}),
        ('convention in ("pytorch", "paper")', 'convention in ("paper",)', {"PyTorch"}),
        ('convention in ("pytorch", "paper")', 'convention == "pytorch"', {"the paper"}),
        # the running variance begins at 0
        ("np.ones(channels), []", "np.zeros(channels), []", FOUR - {"the paper"}),
        ("return 1 - torch_momentum\n", "return torch_momentum\n", {"momentum"}),
        # the initial 1 forgotten
        (
            "(torch_running_var - initial) * (m - 1) / m + initial",
            "torch_running_var * (m - 1) / m",
            {"running variance"},
        ),
    ],
)
def test_wrong_answers(lost: Any, old: str, new: str, expected: set[str]) -> None:
    assert lost(4, (old, new)) == expected


Y = "np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-12)"
VAR = "np.testing.assert_allclose(new_var, 0.8 * var + 0.2 * of_var, rtol=1e-9)"
MEAN = "np.testing.assert_allclose(new_mean, 0.8 * mean + 0.2 * of_mean, rtol=1e-9)"
EVALUATE = "np.testing.assert_allclose(y, expected, rtol=1e-9)"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([(EVALUATE, "pass")], {FROM_BATCH}),
        ([(Y, "pass")], {"bug: training normalizes with the new running statistics"}),
        ([(VAR, "pass")], {FEWER}),
        ([(VAR, "pass"), (MEAN, "pass")], {FEWER, INVERTED}),
        # batches without positions
        (
            [("((3, 2), (3, 2, 4))", "((3, 2),)"), (EVALUATE, "pass")],
            {"bug: variance over the batch axis only", FROM_BATCH},
        ),
        # so loose that float16 is good enough
        ([("rtol=1e-9, atol=1e-12", "rtol=0.2, atol=0.2"), ("rtol=1e-9", "rtol=0.1")], None),
        # PyTorch's meaning of momentum: a wrong test
        ([("0.8 * mean + 0.2 * of_mean", "0.2 * mean + 0.8 * of_mean")], {RIGHT, *BUGS}),
    ],
)
def test_weak_and_wrong_tests(lost: Any, changes: list[tuple[str, str]], expected: set[str] | None) -> None:
    found = lost(4, *changes)
    assert "bug: sums in float16" in found if expected is None else found == expected
