"""Lab 17: typically wrong answers lose the points they should, and no others; weak tests find fewer bugs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.labs import catalogue
from minorm.labs.checks import lab17_accumulation as checks
from minorm.labs.judge import judging
from tests.labs.conftest import changed

GRADIENTS, OTHER = "the gradients of equal and ragged micro-batches", "other sizes, and other names"
UPDATES, MOMENTA = "the momentum of k updates", "other momentums"
MERGED, FOLDED = "two micro-batches together", "one after the other, far from 0"
RUNNING = "one update of the running statistics"
PASSES, OTHERS = "two passes against the whole batch", "other sizes, and samples far from 0"
GHOSTS, RAGGED = "ghosts of one size", "a ragged last one, and one alone"
RIGHT = "your tests pass on the right implementation"
BUGS = {
    "bug: gradients averaged without weights",
    "bug: the last micro-batch counts as a full one",
    "bug: the variance of the means left out",
    "bug: variances averaged without weights",
    "bug: momentum applied k times",
    "bug: a biased running variance",
}
SQUARES = """new = mean_a + n_b / n * delta
    var = (n_a * (var_a + mean_a**2) + n_b * (var_b + mean_b**2)) / n - new**2"""
WHOLE = """    x, t = (np.concatenate([kept[i] for kept in KEPT]) for i in (0, 1))
    return batch_gradients(x, t, KEPT[0][2], s, KEPT[0][3], 0, eps)
"""
MEAN = "(1 - momentum) * running_mean + momentum * mean"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # names that are written down
        ("for name in gradients[0]:", 'for name in ("w", "s", "b"):', {OTHER}),
        # as if all but the last were equal
        (
            "weights = [n / sum(sizes) for n in sizes]",
            "weights = [sizes[0] / sum(sizes)] * len(sizes)",
            {GRADIENTS, OTHER},
        ),
        # a first-order guess
        (
            "return 1 - (1 - momentum) ** k\n",
            "return momentum * k - momentum**2 * k * (k - 1) / 2\n",
            {UPDATES, MOMENTA},
        ),
        ("return 1 - (1 - momentum) ** (1 / k)", "return momentum / k", {UPDATES, MOMENTA}),
        ("np.arange(k - 1, -1, -1)", "np.arange(k)", {UPDATES, MOMENTA}),
        # E[x^2] - E[x]^2, right near 0
        (
            "var = (n_a * var_a + n_b * var_b) / n + n_a * n_b / n**2 * delta**2",
            SQUARES,
            {FOLDED},
        ),
        # the mean of the means
        ("return n, mean_a + n_b / n * delta, var", "return n, (mean_a + mean_b) / 2, var", {MERGED, FOLDED}),
        # the unbiased variance with the number of channels
        ("unbiased = var * n / (n - 1)", "n = len(var)\n    unbiased = var * n / (n - 1)", {RUNNING}),
        (MEAN, "momentum * running_mean + (1 - momentum) * mean", {RUNNING}),
        # gradients of the sum
        ("dy = (xhat * s + b - t) / n", "dy = xhat * s + b - t", {PASSES, OTHERS}),
        # one pass: statistics of the micro-batch
        (
            "n, mean, var = total\n    xhat",
            "n = total[0]\n    _, mean, var = statistics(x @ w)\n    xhat",
            {PASSES, OTHERS},
        ),
        # rstd forgotten
        (
            '(sums["xdy"] - from_mean - from_var) * s / np.sqrt(var + eps)',
            '(sums["xdy"] - from_mean - from_var) * s',
            {PASSES, OTHERS},
        ),
        # the batch put together again, in the module's memory
        (
            "    n, _, var = total\n",
            "    x, t = (np.concatenate(v) for v in KEPT)\n    n, _, var = total\n",
            {PASSES, OTHERS},
        ),
        # ghosts that are views of x are normalized one by one, but the last is forgotten
        (
            "for i in range(0, len(x), size):\n        c =",
            "y[:] = 0\n    for i in range(0, len(x) - size + 1, size):\n        c =",
            {RAGGED},
        ),
        # the sizes of full ghosts
        ("within = within + len(ghost) / len(x) * ghost", "within = within + size / len(x) * ghost", {RAGGED}),
        # the variance of the means without weights
        ("between = between + len(ghost) / len(x) *", "between = between + 1 / -(-len(x) // size) *", {RAGGED}),
    ],
)
def test_wrong_answers(lost: Any, old: str, new: str, expected: set[str]) -> None:
    assert lost(17, (old, new)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # micro-batches of one size
        (
            [
                ("(8 * parts[0] + 8 * parts[1] + 3 * parts[2]) / 19", "sum(parts) / 3"),
                ("parts, [8, 8, 3])", "parts, [8, 8, 8])"),
            ],
            {"bug: gradients averaged without weights", "bug: the last micro-batch counts as a full one"},
        ),
        # one micro-batch alone
        (
            [("pieces = [h[:8], h[8:16], h[16:]]", "pieces = [h]"), ("variances, [8, 8, 3]", "variances, [19]")],
            {
                "bug: the variance of the means left out",
                "bug: variances averaged without weights",
                "bug: momentum applied k times",
            },
        ),
        # a loose bound of the running variance
        (
            [("1.4 + 0.3 * h.var(axis=0, ddof=1), rtol=1e-10", "1.4 + 0.3 * h.var(axis=0, ddof=1), rtol=0.1")],
            {"bug: a biased running variance"},
        ),
        # a test that is wrong: then no bug counts
        ([("h.var(axis=0), rtol", "h.var(axis=0, ddof=1), rtol")], {RIGHT, *BUGS}),
    ],
)
def test_weak_and_wrong_tests(lost: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    assert lost(17, *changes) == expected


def test_micro_batches_are_not_kept_for_later(lost: Any, tmp_path: Any) -> None:
    """The last step runs in a process that has seen no micro-batch, so it cannot put them together from memory."""
    kept = (
        ("    n, mean, var = total\n    xhat", "    KEPT.append((x, t, w, b))\n    n, mean, var = total\n    xhat"),
        ("    n, _, var = total\n", WHOLE),
        ("def second_pass(", "KEPT = []\n\n\ndef second_pass("),
    )
    assert PASSES not in lost(17, *kept)  # in the notebook, all in one process
    path = tmp_path / "mine.py"
    path.write_text(changed(17, *kept))
    assert judging.judge(catalogue.find(17).of_task("17.4"), path, patience=3).score == 0


@pytest.mark.parametrize("axis", [0, 1])
def test_the_expected_gradients_are_pytorchs(axis: int) -> None:
    torch = pytest.importorskip("torch")
    x, t, w, s, b = (torch.tensor(array) for array in checks._problem(np.random.default_rng(0), 6, 3, 4))
    for leaf in (w, s, b):
        leaf.requires_grad_()
    h = x @ w
    if axis == 0:
        y = torch.nn.functional.batch_norm(h, None, None, s, b, training=True, eps=0.1)
    else:
        y = torch.nn.functional.layer_norm(h, (4,), s, b, eps=0.1)
    (((y - t) ** 2).sum() / 12).backward()
    ours = checks._derivatives(x.numpy(), t.numpy(), [v.detach().numpy() for v in (w, s, b)], 0.1, axis)
    for name, leaf in zip("wsb", (w, s, b), strict=True):
        np.testing.assert_allclose(ours[name], leaf.grad.numpy(), rtol=1e-10, atol=1e-13)
