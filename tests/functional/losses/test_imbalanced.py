"""Focal and Dice losses: against their formulas in PyTorch's float64, finite differences, and at extreme logits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.testing import gradcheck

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
LOGITS = RNG.standard_normal((4, 3, 5)) * 3
LABELS = RNG.integers(0, 3, (4, 5))
IGNORED = np.where(RNG.random((4, 5)) < 0.3, -100, LABELS)
WEIGHT = np.array([0.5, 2.0, 1.0])
PROBABILITIES = RNG.dirichlet(np.ones(3), (4, 5)).transpose(0, 2, 1).copy()


def compare(ours: Any, theirs: Any, inputs: np.ndarray) -> None:
    """Value and gradient; each function takes the inputs of its library."""
    x = mn.tensor(inputs, dtype=mn.float64, requires_grad=True)
    y = torch.tensor(inputs, dtype=torch.float64, requires_grad=True)
    found, expected = ours(x), theirs(y)
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-12)
    found.sum().backward()
    expected.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("gamma", [0, 0.5, 1, 2, 3.5])
@pytest.mark.parametrize("alpha", [-1, 0.25, 1])
@pytest.mark.parametrize("soft", [False, True])
def test_sigmoid_focal_loss(gamma: float, alpha: float, soft: bool) -> None:
    t = RNG.random(LOGITS.shape) if soft else (RNG.random(LOGITS.shape) < 0.4).astype(np.float64)

    def theirs(x: Any) -> Any:
        p, wanted = torch.sigmoid(x), torch.tensor(t)
        right = p * wanted + (1 - p) * (1 - wanted)
        entropy = torch.nn.functional.binary_cross_entropy_with_logits(x, wanted, reduction="none")
        balance = 1.0 if alpha < 0 else alpha * wanted + (1 - alpha) * (1 - wanted)
        return balance * (1 - right) ** gamma * entropy

    compare(lambda x: F.sigmoid_focal_loss(x, mn.tensor(t), alpha, gamma), theirs, LOGITS)
    compare(lambda x: F.sigmoid_focal_loss(x, mn.tensor(t), alpha, gamma, "mean"), lambda x: theirs(x).mean(), LOGITS)


@pytest.mark.parametrize("gamma", [0, 0.5, 1, 2, 3.5])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_focal_loss_of_labels(gamma: float, reduction: str, weighted: bool, smoothing: float) -> None:
    weight = WEIGHT if weighted else np.ones(3)

    def theirs(x: Any) -> Any:
        counted = torch.tensor(IGNORED) != -100
        labels = torch.tensor(np.where(IGNORED < 0, 0, IGNORED))
        factors = torch.tensor(weight)[None, :, None]
        wanted = torch.nn.functional.one_hot(labels, 3).movedim(-1, 1).to(x.dtype)
        q = (wanted * (1 - smoothing) + smoothing / 3) * factors * counted[:, None]
        log_p = torch.log_softmax(x, 1)
        loss = -(q * (1 - log_p.exp()) ** gamma * log_p).sum(1)
        divisor = (wanted * factors * counted[:, None]).sum()
        return {"mean": loss.sum() / divisor, "sum": loss.sum(), "none": loss}[reduction]

    options: dict[str, Any] = {"gamma": gamma, "reduction": reduction, "label_smoothing": smoothing}
    given = mn.tensor(weight, dtype=mn.float64) if weighted else None
    compare(lambda x: F.focal_loss(x, mn.tensor(IGNORED), given, **options), theirs, LOGITS)


@pytest.mark.parametrize("weighted", [False, True])
def test_focal_loss_of_probabilities(weighted: bool) -> None:
    def theirs(x: Any) -> Any:
        log_p = torch.log_softmax(x, 1)
        q = torch.tensor(PROBABILITIES) * (torch.tensor(WEIGHT)[None, :, None] if weighted else 1.0)
        return -(q * (1 - log_p.exp()) ** 2 * log_p).sum(1).mean()

    given = mn.tensor(WEIGHT, dtype=mn.float64) if weighted else None
    compare(lambda x: F.focal_loss(x, mn.tensor(PROBABILITIES), given), theirs, LOGITS)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_focal_loss_with_gamma_0_is_cross_entropy(reduction: str, smoothing: float) -> None:
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
    theirs = torch.nn.functional.cross_entropy
    ours = mn.tensor(IGNORED), mn.tensor(WEIGHT, dtype=mn.float64)
    other = torch.tensor(IGNORED), torch.tensor(WEIGHT)
    compare(lambda x: F.focal_loss(x, *ours, gamma=0, **options), lambda x: theirs(x, *other, **options), LOGITS)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smooth", [1.0, 1e-3])
@pytest.mark.parametrize("target", ["labels", "ignored", "probabilities"])
def test_dice_loss(reduction: str, smooth: float, target: str) -> None:
    counted = (IGNORED != -100)[:, None] if target == "ignored" else np.ones((4, 1, 5), bool)
    q = PROBABILITIES if target == "probabilities" else np.eye(3)[LABELS].transpose(0, 2, 1).copy()

    def theirs(x: Any) -> Any:
        kept = torch.tensor(counted).to(x.dtype)
        p, wanted = torch.softmax(x, 1) * kept, torch.tensor(q) * kept
        loss = 1 - (2 * (p * wanted).sum(2) + smooth) / (p.sum(2) + wanted.sum(2) + smooth)
        return {"mean": loss.mean(), "sum": loss.sum(), "none": loss}[reduction]

    given = mn.tensor({"labels": LABELS, "ignored": IGNORED, "probabilities": PROBABILITIES}[target])
    compare(lambda x: F.dice_loss(x, given, smooth=smooth, reduction=reduction), theirs, LOGITS)


def test_dice_loss_of_yes_or_no() -> None:
    logits, labels = RNG.standard_normal((2, 1, 4, 3)), RNG.integers(0, 2, (2, 4, 3))

    def theirs(x: Any) -> Any:
        p, q = torch.sigmoid(x)[:, 0].flatten(1), torch.tensor(labels).flatten(1).to(x.dtype)
        return (1 - (2 * (p * q).sum(1) + 1) / (p.sum(1) + q.sum(1) + 1)).mean()

    compare(lambda x: F.dice_loss(x, mn.tensor(labels)), theirs, logits)
    compare(lambda x: F.dice_loss(x, mn.tensor(labels[:, None].astype(np.float64))), theirs, logits)


def losses(labels: Any) -> dict[str, Any]:
    """Each loss as a function of the logits alone."""
    found = {f"focal {g}": (lambda x, g=g: F.focal_loss(x, mn.tensor(labels), gamma=g)) for g in (0, 0.5, 1, 2, 3)}
    yes = (np.arange(3)[None] == labels[:, None]).astype(np.float64)
    for g in (0, 0.5, 1, 2, 3):
        found[f"sigmoid {g}"] = lambda x, g=g: F.sigmoid_focal_loss(x, mn.tensor(yes).to(x.dtype), 0.25, g, "mean")
    found["dice"] = lambda x: F.dice_loss(x.reshape(1, 3, -1), mn.tensor(labels[None]))
    return found


@pytest.mark.parametrize("name", losses(np.zeros(3, int)))
def test_first_and_second_gradients_are_finite_differences(name: str) -> None:
    labels = np.array([0, 2, 1])
    x = mn.tensor(RNG.standard_normal((3, 3)), requires_grad=True)
    gradcheck(losses(labels)[name], x)

    def slope(x: Any) -> Any:
        with mn.enable_grad():  # finite differences are taken without a graph
            x = x if x.requires_grad else x.detach().requires_grad_()
            return mn.autograd.grad(losses(labels)[name](x), x, create_graph=True)[0]

    gradcheck(slope, mn.tensor(RNG.standard_normal((3, 3)), requires_grad=True), tolerance=1e-5)


@pytest.mark.parametrize("name", losses(np.zeros(3, int)))
@pytest.mark.parametrize("dtype", [mn.float32, mn.float16, mn.bfloat16])
def test_extreme_logits_stay_finite(name: str, dtype: Any) -> None:
    logits = np.array([[6e4, 0, -6e4], [-6e4, 6e4, 0], [0, 0, 0]])
    for labels in np.array([[0, 1, 2], [2, 0, 1]]):
        x = mn.tensor(logits, dtype=dtype, requires_grad=True)
        loss = losses(labels)[name](x)
        loss.backward()
        assert loss.dtype == dtype
        assert np.isfinite(x.grad.float().numpy()).all()
        assert np.isfinite(loss.item()) or dtype == mn.float16  # a mean of 60,000 and more is float16's infinity


@pytest.mark.parametrize("name", losses(np.zeros(3, int)))
@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16])
def test_16_bits_are_computed_in_float32(name: str, dtype: Any) -> None:
    labels = np.array([0, 2, 1])
    x = mn.tensor(RNG.standard_normal((3, 3)) * 2, dtype=dtype)
    found, expected = losses(labels)[name](x).double().item(), losses(labels)[name](x.double()).item()
    assert abs(found - expected) <= 2.0 ** (-8 if dtype == mn.bfloat16 else -11) * abs(expected)


@pytest.mark.parametrize("gamma", [0, 0.5, 2])
def test_a_logit_of_minus_infinity_is_a_class_that_cannot_be(gamma: float) -> None:
    x = mn.tensor([[0.5, -np.inf, 1.0], [1.0, 2.0, -np.inf]], requires_grad=True)
    loss = F.focal_loss(x, mn.tensor([0, 2]), gamma=gamma, reduction="none")
    loss.sum().backward()
    p = np.exp(0.5) / (np.exp(0.5) + np.e)
    assert loss.numpy() == pytest.approx([-((1 - p) ** gamma) * np.log(p), np.inf], rel=1e-5)
    assert np.isfinite(x.grad.numpy()).all()
    assert x.grad.numpy()[0, 1] == 0  # the class that cannot be
    assert x.grad.numpy()[1] == pytest.approx([np.exp(1) / (np.exp(1) + np.exp(2)), 1 / (1 + np.exp(-1)), -1], rel=1e-5)


def test_dice_loss_of_bytes_and_of_no_elements() -> None:
    logits, labels = mn.randn(2, 3, 4, 4), np.arange(32).reshape(2, 4, 4) % 3
    expected = F.dice_loss(logits, mn.tensor(labels))
    assert F.dice_loss(logits, mn.tensor(labels.astype(np.uint8))).item() == expected.item()
    assert F.dice_loss(mn.zeros(2, 3, 0, 4), mn.zeros(2, 0, 4, dtype=mn.int64)).item() == 0  # smooth / smooth
    assert np.isnan(F.dice_loss(mn.zeros(0, 3, 4), mn.zeros(0, 4, dtype=mn.int64)).item())  # a mean of nothing


def test_ignored_labels_leave_the_rest_alone() -> None:
    nan = float("nan")
    x = mn.tensor([[nan, 2.0, nan], [1.0, 0.0, 2.0]], requires_grad=True)
    loss = F.focal_loss(x, mn.tensor([-100, 0]))
    loss.backward()
    alone = F.focal_loss(mn.tensor([[1.0, 0.0, 2.0]]), mn.tensor([0]))
    assert loss.item() == pytest.approx(alone.item(), rel=1e-6)
    assert not x.grad[0].numpy().any()
    x.grad = None
    none = F.focal_loss(x, mn.tensor([-100, -100]))
    none.backward()
    assert np.isnan(none.item())
    assert not x.grad.numpy().any()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: F.focal_loss(x, mn.tensor([0, 5])), ValueError, "focal_loss: target[1] is 5; expected a class from"),
        (lambda x: F.focal_loss(x, mn.tensor([0, 1]), gamma=-1.0), ValueError, "focal_loss: gamma is -1.0; expected"),
        (lambda x: F.focal_loss(x, mn.tensor([0, 1]), label_smoothing=2.0), ValueError, "label_smoothing is 2.0"),
        (lambda x: F.focal_loss(x, mn.tensor([0, 1]), mn.ones(2)), ValueError, "weight has shape (2,); expected (3,)"),
        (lambda x: F.sigmoid_focal_loss(x, mn.zeros(3)), ValueError, "target has shape (3,), input has shape (2, 3)"),
        (lambda x: F.sigmoid_focal_loss(x, x, alpha=2.0), ValueError, "alpha is 2.0; expected a number from 0 to 1"),
        (lambda x: F.sigmoid_focal_loss(x, x, gamma=float("nan")), ValueError, "gamma is nan; expected"),
        (lambda x: F.dice_loss(x, mn.tensor([0, 1]), smooth=0.0), ValueError, "dice_loss: smooth is 0.0; expected"),
        (lambda x: F.dice_loss(x[0], mn.tensor(1)), ValueError, "dice_loss: input has shape (3,); expected (N, C, d1"),
        (lambda x: F.dice_loss(x[:, :1], mn.tensor([0, 2])), ValueError, "target[1] is 2; expected a class from 0 to"),
        (lambda x: F.dice_loss(x, mn.tensor([0, 1]), reduction="total"), ValueError, "reduction is 'total'"),
    ],
)
def test_mistakes(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call(mn.zeros(2, 3))
