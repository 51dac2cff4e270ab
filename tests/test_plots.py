"""The picture: every panel says what it shows, nothing leaves the page, and the numbers drawn are the right ones."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.training import BatchNormWatch

pytest.importorskip("matplotlib")
plots = pytest.importorskip("minorm.plots")


def watched(steps: int) -> BatchNormWatch:
    mn.manual_seed(steps)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.BatchNorm1d(16))
    watch = BatchNormWatch(model)
    for _ in range(steps):
        model(mn.randn(8, 1, 4, 4))
        watch.step()
    return watch


@pytest.fixture(scope="module")
def figure() -> Any:
    history = [
        {"epoch": e, "train_loss": 1 / e, "val_loss": 1.1 / e, "train_accuracy": 1 - 0.5 / e, "val_accuracy": 0.9}
        for e in range(1, 5)
    ]
    losses = list(np.linspace(2, 0.2, 40))
    figure = plots.training_picture("a title", losses, history, watched(40), watched(1), label_smoothing=0.1)
    figure.canvas.draw()
    return figure


def test_every_panel_has_title_labels_and_legend(figure: Any) -> None:
    assert len(figure.axes) == 6
    for axes in figure.axes:
        assert axes.get_title(loc="left")
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.get_legend() is not None


def test_no_text_leaves_the_page_or_covers_another_panel(figure: Any) -> None:
    page = figure.bbox
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    for box in boxes:
        assert box.x0 >= page.x0
        assert box.y0 >= page.y0
        assert box.x1 <= page.x1
        assert box.y1 <= page.y1
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            assert not a.overlaps(b)


def test_the_curves_are_the_numbers(figure: Any) -> None:
    each_batch, train, test, _ = figure.axes[0].get_lines()
    assert len(each_batch.get_xdata()) == 40
    np.testing.assert_allclose(train.get_ydata(), [1, 1 / 2, 1 / 3, 1 / 4])
    np.testing.assert_array_equal(test.get_xdata(), [10, 20, 30, 40])
    assert figure.axes[3].get_lines()[1].get_ydata()[0] == pytest.approx(90)


@pytest.mark.parametrize("smoothing", [0.1, 0.5])
def test_the_least_loss_is_what_perfect_logits_reach(smoothing: float) -> None:
    right, other = 1 - smoothing + smoothing / 10, smoothing / 10
    logits = mn.tensor([[math.log(right)] + [math.log(other)] * 9])
    loss = mn.functional.cross_entropy(logits, mn.tensor([0]), label_smoothing=smoothing)
    assert plots.least_loss(smoothing) == pytest.approx(loss.item(), rel=1e-6)


def test_without_classes_the_panel_says_so() -> None:
    history = [
        {"epoch": e, "train_loss": 1 / e, "val_loss": 1.1 / e, "train_accuracy": None, "val_accuracy": None}
        for e in range(1, 5)
    ]
    figure = plots.training_picture("a title", list(np.linspace(2, 0.2, 40)), history, watched(40), watched(1))
    figure.canvas.draw()
    assert "Accuracy (none: the targets are no classes)" in {axes.get_title(loc="left") for axes in figure.axes}


def test_it_shows_its_own_names_alone() -> None:
    assert dir(plots) == ["confusion", "curves", "learning_rates", "least_loss", "training_picture"]


def test_curves_hold_every_number() -> None:
    history = [
        {"epoch": i, "learning_rate": 0.1 / i, "train_loss": 2.0 / i, "train_accuracy": None, "val_loss": 3.0 / i,
         "val_accuracy": 0.1 * i}
        for i in (1, 2, 3)
    ]  # fmt: skip
    loss, accuracy, rate = plots.curves(history, "mine").axes
    assert [line.get_ydata().tolist() for line in loss.lines] == [[2.0, 1.0, 2 / 3], [3.0, 1.5, 1.0]]
    assert np.allclose(accuracy.lines[1].get_ydata(), [10, 20, 30])
    assert np.isnan(accuracy.lines[0].get_ydata()).all()
    assert rate.lines[0].get_ydata().tolist() == [0.1, 0.05, 0.1 / 3]


def test_a_confusion_matrix_is_darker_where_more_of_a_class_go() -> None:
    matrix = np.array([[3, 1], [0, 0]])
    axes = plots.confusion(matrix, ["a", "b"], "mine").axes[0]
    assert axes.images[0].get_array().tolist() == [[0.75, 0.25], [0, 0]]
    assert sorted(text.get_text() for text in axes.texts) == ["1", "3"]
    long = plots.confusion(matrix, ["a lorry with a trailer", "b"]).axes[0]
    assert [label.get_text() for label in long.get_xticklabels()] == ["a lorry with a tr…", "b"]
    assert not plots.confusion(np.eye(50, dtype=int), list(map(str, range(50)))).axes[0].texts


def test_a_long_title_leaves_the_matrix_its_room() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a layout that could not be made
        found = plots.confusion(np.eye(2, dtype=int), ["cat", "dog"], "W" * 255)
        found.canvas.draw()
    assert found.axes[0].get_window_extent().width > found.bbox.width / 3


def test_names_are_no_formulas_and_any_can_be_drawn() -> None:
    """matplotlib takes "$...$" for mathematics, and refuses bytes that are not UTF-8."""
    names = ["$x^{$", r"$\frac$", "a\x1b[31m\udcfc"]
    found = plots.confusion(np.eye(3, dtype=int), names, "$\\sqrt$ \udcfc")
    found.canvas.draw()
    axes = found.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["$x^{$", r"$\frac$", r"a\x1b[31m\xfc"]
    assert found.get_suptitle() == r"$\sqrt$ \xfc"
    row = {"epoch": 1, "learning_rate": 0.1, **dict.fromkeys(("train_loss", "val_loss"), 1.0)}
    row |= dict.fromkeys(("train_accuracy", "val_accuracy"), 0.5)
    plots.curves([row], "$x^{$ \udcfc").canvas.draw()


def test_learning_rates_draws_the_curve_and_the_suggestions() -> None:
    rates = np.logspace(-4, 0, 30)
    losses = 2 - np.tanh(2 * (np.log10(rates) + 2)) + np.where(rates > 0.3, 5, 0)
    test = mn.optim.RangeTest(rates.tolist(), losses.tolist(), losses.tolist())
    for figure in (plots.learning_rates(test, "a title"), test.plot()):
        figure.canvas.draw()
        raw, smooth, steepest, minimum = figure.axes[0].lines
        assert np.array_equal(raw.get_xdata(), rates)
        assert np.array_equal(smooth.get_ydata(), losses)
        assert steepest.get_xdata()[0] == test.steepest
        assert minimum.get_xdata()[0] == test.minimum
        assert figure.axes[0].get_xscale() == "log"
        shown = [label.get_text() for label in figure.axes[0].get_xticklabels()]
        assert {"0.0001", "0.01", "1"} <= set(shown), "not $10^{-4}$, which nothing reads as a formula here"
