"""Lab 18: typically wrong answers lose the points they should, and no others; no work, no points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.labs.checks import lab18_fold_quantize as checks

LINEAR, CONVOLUTIONS, ODD = "a linear layer", "convolutions", "no bias, small variances, negative scales, float32"
FOLDS = {LINEAR, CONVOLUTIONS, ODD}
BOUND, MANY = "the bound, in float32", "many terms, large offsets, another u"
LINE, SMALL = "a line for each channel", "small batches, far from 0"
RANGES, INTEGERS = "scale and zero point", "integers and back"
ODD_RANGES, ZEROS = "odd ranges, and the half step", "scales of filters, of rows of zeros"
TIGHT, STEPS = "the bound holds and is not ten times too wide", "many terms, steps of all sizes"
GAINS = "the gain of one scale per channel"
JUMPS = {"one scale for all, and one for each channel", "filters, frozen statistics, changing signs"}

WIDE = "    of_weights = np.abs(x).sum(axis=1, keepdims=True) * W_scale / 2\n"
OF_X = "x_scale / 2 * (np.abs(W) + W_scale[:, None] / 2).sum(axis=1)"
A_ALONG = "W * a.reshape(-1, *[1] * (W.ndim - 1))\n    return folded"
FOLD = "    a = s / np.sqrt(var + eps)\n    before ="
LIBRARY = """    import minorm as mn
    from minorm import quantization
    parts = W, np.zeros(len(W), W.dtype) if c is None else c, mean, var, eps, s, b
    parts = [v if np.ndim(v) == 0 else mn.tensor(v) for v in parts]
    return tuple(v.numpy() for v in quantization.fuse_conv_bn_weights(*parts))
"""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # square weights hide a wrong axis; convolutions do not
        ((A_ALONG, "W * a[:, None]\n    return folded"), {CONVOLUTIONS}),
        (("before = 0 if c is None else c", "before = c"), {ODD}),
        (("return folded.astype(W.dtype), ((before", "return folded.astype(np.float64), ((before"), {ODD}),
        # a factor that is not needed is no bound of this task; one that is too small does not hold
        (("return 2 * gamma", "return 200 * gamma"), {BOUND, MANY}),
        (("return 2 * gamma", "return 0.02 * gamma"), {BOUND, MANY}),
        (("u=2.0**-24):", "u=2.0**-24):\n    u = 2.0**-24"), {MANY}),
        # no slope where the batch is like the running statistics
        (("np.sqrt((z.var(axis=0) + eps) / (var + eps))", "np.ones(len(W))"), {LINE, SMALL}),
        (("z.var(axis=0) + eps", "(z**2).mean(axis=0) - z.mean(axis=0) ** 2 + eps"), set()),
        # a range of 0 alone
        (("(high - low) / 255 or 1.0", "(high - low) / 255"), {RANGES}),
        (("scale, int(np.clip(-128 - np.rint(low / scale), -128, 127))", "scale, 0"), {RANGES, ODD_RANGES}),
        (("np.where(largest == 0, 1.0, largest / 127)", "np.maximum(largest, 1e-8) / 127"), {ZEROS}),
        (("if i != axis % W.ndim)", "if i != axis)"), {ZEROS}),
        (("zero, least, 127).astype(np.int8)", "zero, least, 127).astype(np.int64)"), {INTEGERS}),
        # ten times too wide; too tight
        ((WIDE, WIDE.replace("/ 2", "* 20")), {TIGHT, STEPS}),
        ((OF_X, "x_scale / 2 * np.abs(W).sum(axis=1)"), {TIGHT, STEPS}),
        ((OF_X, OF_X.replace("np.abs(W)", "W")), {TIGHT, STEPS}),
        # measured, not predicted: within 15 %, but not what the scales say
        (("return weight_scales(W, None) ** 2 /", "return 1.05 * weight_scales(W, None) ** 2 /"), {GAINS}),
        # a sum over batches
        (("    return (q[1:] != q[:-1]).sum(axis=1)\n", "    return (q != q[0]).sum(axis=1)[1:]\n"), JUMPS),
        # the library, right as it is
        ((FOLD, LIBRARY + FOLD), FOLDS),
    ],
)  # fmt: skip
def test_wrong_answers(lost: Any, change: tuple[str, str], expected: set[str]) -> None:
    assert lost(18, change) == expected


def test_a_wrong_fold_and_wrong_scales_cost_their_own_tasks(judge_changed: Any) -> None:
    """folded_linear and jumps, gain are asked again with right functions."""
    report = judge_changed(18, ("a = s / np.sqrt(var + eps)\n    before", "a = s / np.sqrt(var)\n    before"))
    assert {row.task for row in report.outcomes if row.earned < row.points} == {"18.1"}
    report = judge_changed(18, ("largest / 127", "largest / 128"))
    assert {row.task for row in report.outcomes if row.earned < row.points} == {"18.4"}


def test_errors_that_point_one_way_come_near_the_bound() -> None:
    """So that "ten times too wide" is measured against the worst there is."""
    x, W, x_scale, W_scale = checks._aligned(np.random.default_rng(0), 5, 4, 30)
    near_x, near_W = np.rint(x / x_scale) * x_scale, np.rint(W / W_scale[:, None]) * W_scale[:, None]
    off = np.abs(near_x @ near_W.T - x @ W.T)
    bound = np.abs(x).sum(1, keepdims=True) * W_scale / 2 + x_scale / 2 * (np.abs(W) + W_scale[:, None] / 2).sum(1)
    assert (off < bound).all()
    assert (off > 0.95 * bound).all()


def test_the_convolution_is_one() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    x, W = rng.standard_normal((2, 6, 5, 4)), rng.standard_normal((4, 3, 2, 3))
    right = torch.conv2d(torch.tensor(x), torch.tensor(W), groups=2).numpy()
    np.testing.assert_allclose(checks._convolved(x, W, 2), right, rtol=1e-10, atol=1e-12)
