"""Any cut of the data into batches, parts of a step and ranks gives the loss and the step of the whole."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm as mn
import minorm.functional as F
from minorm import nn, optim
from minorm.distributed import DistributedDataParallel, simulate
from minorm.training import NonFiniteLoss, evaluate, train_epoch
from minorm.training.steps.divisor import divisor

FEATURES, CLASSES, PIXELS = 4, 3, 2
WEIGHTS = np.array([10.0, 1.0, 0.1])


class Case:
    """A loss of layers x @ w.T, and in float64 the whole's loss and its gradient with respect to w."""

    def __init__(self, kind: str, weighted: bool, ignored: np.ndarray, seed: int) -> None:
        rng = np.random.default_rng(seed)
        count = len(ignored)
        self.kind, self.weights = kind, WEIGHTS if weighted else np.ones(CLASSES)
        self.x, self.w = rng.standard_normal((count, FEATURES)), rng.standard_normal((CLASSES, FEATURES))
        self.classes = rng.integers(0, CLASSES, count)
        self.y: Any = np.where(ignored, -100, self.classes)
        weight = mn.tensor(self.weights) if weighted else None
        if kind in ("mse", "mse sum"):
            self.y = rng.standard_normal((count, CLASSES))
        self.loss: Any = {
            "entropy": lambda: nn.CrossEntropyLoss(weight),
            "smoothed": lambda: nn.CrossEntropyLoss(weight, label_smoothing=0.2),
            "entropy sum": lambda: nn.CrossEntropyLoss(weight, reduction="sum"),
            "likelihood": lambda: _Likelihood(weight),
            "function": lambda: partial(F.cross_entropy, weight=weight),
            "mse": nn.MSELoss,
            "mse sum": lambda: nn.MSELoss(reduction="sum"),
        }[kind]()

    def whole(self) -> tuple[float, np.ndarray]:
        z = self.x @ self.w.T
        if self.kind.startswith("mse"):
            over = 1 if self.kind.endswith("sum") else z.size
            return ((z - self.y) ** 2).sum() / over, 2 * (z - self.y).T @ self.x / over
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        smoothing = 0.2 if self.kind == "smoothed" else 0.0
        q = (np.eye(CLASSES)[self.classes] * (1 - smoothing) + smoothing / CLASSES) * self.weights
        q = q * (self.y >= 0)[:, None]
        over = 1.0 if self.kind.endswith("sum") else (self.weights[self.classes] * (self.y >= 0)).sum()
        return -(q * np.log(p)).sum() / over, (p * q.sum(1, keepdims=True) - q).T @ self.x / over

    def model(self) -> nn.Linear:
        model = nn.Linear(FEATURES, CLASSES, bias=False).double()
        model.weight.data = mn.tensor(self.w.copy())
        return model

    def batches(self, cuts: list[int], rank: int = 0, ranks: int = 1) -> list[Any]:
        """Cut the data into batches at these places, and return a rank's part of each."""
        places = np.split(np.arange(len(self.x)), cuts)
        mine = [part[rank::ranks] for part in places if len(part)]
        return [(mn.tensor(self.x[part]), mn.tensor(self.y[part])) for part in mine]


class _Likelihood(nn.NLLLoss):
    def forward(self, input: mn.Tensor, target: mn.Tensor) -> mn.Tensor:
        return super().forward(F.log_softmax(input, 1), target)


@st.composite
def cases(draw: Any) -> tuple[Case, list[int]]:
    count = draw(st.integers(1, 12))
    ignored = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    ignored[draw(st.integers(0, count - 1))] = False
    kinds = ["entropy", "smoothed", "entropy sum", "likelihood", "function", "mse", "mse sum"]
    case = Case(draw(st.sampled_from(kinds)), draw(st.booleans()), ignored, draw(st.integers(0, 99)))
    cuts = draw(st.lists(st.integers(1, count), max_size=5, unique=True))
    return case, sorted(cuts)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_batches_and_parts_give_the_whole(drawn: tuple[Case, list[int]]) -> None:
    case, cuts = drawn
    loss, gradient = case.whole()
    model, batches = case.model(), case.batches(cuts)
    assert evaluate(model, batches, case.loss).loss == pytest.approx(loss, rel=1e-6)
    score = train_epoch(model, batches, case.loss, optim.SGD(model.parameters(), lr=1.0), accumulate=len(batches))
    assert score.loss == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(model.weight.numpy(), case.w - gradient, rtol=1e-6, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(cases(), st.integers(1, 3))
def test_ranks_give_the_whole(drawn: tuple[Case, list[int]], ranks: int) -> None:
    case, cuts = drawn
    loss, gradient = case.whole()

    def program(group: Any) -> tuple[float, float, np.ndarray]:
        model = DistributedDataParallel(case.model(), group)
        batches = case.batches(cuts, group.rank, group.size)
        found = evaluate(model, batches, case.loss).loss
        optimizer = optim.SGD(model.parameters(), lr=1.0)
        score = train_epoch(model, batches, case.loss, optimizer, accumulate=len(batches))
        return found, score.loss, model.module.weight.numpy()

    for evaluated, trained, weight in simulate(ranks, program):
        assert evaluated == pytest.approx(loss, rel=1e-6)
        assert trained == pytest.approx(loss, rel=1e-6)
        np.testing.assert_allclose(weight, case.w - gradient, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_of_which_nothing_counts_is_left_out(ranks: int) -> None:
    """Momentum and weight decay would move the weights even without a gradient."""
    case = Case("entropy", True, np.arange(8) < 4, 0)
    gradient = case.whole()[1]

    def program(group: Any) -> np.ndarray:
        model = DistributedDataParallel(case.model(), group)
        optimizer = optim.SGD(model.parameters(), lr=1.0, weight_decay=0.1)
        train_epoch(model, case.batches([4], group.rank, group.size), case.loss, optimizer)
        return model.module.weight.numpy()

    for weight in simulate(ranks, program):
        np.testing.assert_allclose(weight, case.w - (gradient + 0.1 * case.w), rtol=1e-6)
    alone = case.model()
    train_epoch(alone, case.batches([4]), case.loss, optim.SGD(alone.parameters(), lr=1.0, weight_decay=0.1))
    np.testing.assert_allclose(alone.weight.numpy(), case.w - (gradient + 0.1 * case.w), rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_no_target_that_counts_is_an_error(weighted: bool) -> None:
    case = Case("entropy", weighted, np.ones(4, bool), 0)
    model = case.model()
    with pytest.raises(
        NonFiniteLoss, match=r"every target of this batch is ignore_index=-100.*the loss is a mean over nothing"
    ):
        evaluate(model, case.batches([2]), case.loss)
    with pytest.raises(NonFiniteLoss, match="after 4 images of this epoch; every target"):
        train_epoch(model, case.batches([2]), case.loss, optim.SGD(model.parameters(), lr=1.0))
    np.testing.assert_array_equal(model.weight.numpy(), case.w)


def test_pixels_of_images_of_several_sizes_count_one_each() -> None:
    rng = np.random.default_rng(0)
    parts = [(rng.standard_normal((2, CLASSES, n, n)), rng.integers(0, CLASSES, (2, n, n))) for n in (2, 5)]
    parts[1][1][0] = 255
    total, count = 0.0, 0
    for z, y in parts:
        shifted = z - np.log(np.exp(z).sum(1, keepdims=True))
        kept = y != 255
        total -= np.take_along_axis(shifted, np.where(kept, y, 0)[:, None], 1)[:, 0][kept].sum()
        count += kept.sum()
    loader = [(mn.tensor(z), mn.tensor(y.astype(np.uint8))) for z, y in parts]
    assert evaluate(nn.Identity(), loader, nn.CrossEntropyLoss(ignore_index=255)).loss == pytest.approx(total / count)


def test_what_is_divided_by() -> None:
    labels, values = mn.tensor([0, 2, -100, 1]), mn.ones(4, 6)
    own = nn.Module()
    own.reduction, own.ignore_index = "mean", 1
    for function, targets, expected in (
        (nn.CrossEntropyLoss(), labels, 3),
        (nn.CrossEntropyLoss(mn.tensor(WEIGHTS)), labels, 11.1),
        (nn.CrossEntropyLoss(mn.tensor(WEIGHTS), ignore_index=0), labels, 1.1 + 10),  # -100 is for the loss to name
        (partial(F.nll_loss, ignore_index=2), labels, 3),
        (F.cross_entropy, labels, 3),
        (own, labels, 3),
        (nn.MSELoss(), values, 24),
        (nn.KLDivLoss(reduction="batchmean"), values, 4),
        (nn.KLDivLoss(reduction="sum"), values, None),
        (partial(F.mse_loss, reduction="sum"), values, None),
        (lambda outputs, targets: (outputs - targets).abs().max(), values, 4),
    ):
        found = divisor(function, targets)
        assert found is None if expected is None else found == pytest.approx(expected)


@pytest.mark.parametrize("function", [nn.FocalLoss(), partial(F.focal_loss, gamma=1.0), nn.DiceLoss(), F.dice_loss])
def test_focal_and_dice_of_parts_are_those_of_the_whole(function: Any) -> None:
    logits = mn.tensor(np.random.default_rng(0).standard_normal((5, 3, 4)))
    labels = mn.tensor(np.array([[0, -100, -100, -100], [1, 2, 0, 1], [2, 2, -100, 1], [0, 0, 1, 1], [-100, 1, 2, 0]]))
    parts = [slice(0, 2), slice(2, 5)]
    losses = [function(logits[part], labels[part]).item() for part in parts]
    shares = [divisor(function, labels[part]) for part in parts]
    assert np.average(losses, weights=shares) == pytest.approx(function(logits, labels).item(), rel=1e-12)
