"""Pictures of a training run: its curves, a confusion matrix, and the running statistics beside the batches'
statistics.

The left part of `training_picture` shows loss and accuracy. The middle part shows one channel over time, the mean above
and the variance below. Each dot is the value of one batch, and the line is the running value that evaluation uses. The
right part shows all channels at the end: how far the running value, and the value of the last batch, are from the value
over all training images.

The colours have the names of Okabe and Ito's colours, but are darker. Each colour has a contrast of at least 4.5 with
white, and colour-blind readers can distinguish any two colours. Shapes and line styles differ as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from minorm.optim import RangeTest
from minorm.support.safe_names import printable, printable_lines
from minorm.training import BatchNormWatch
from minorm.training.files.outcome import clipped

__all__ = ["confusion", "curves", "learning_rates", "least_loss", "training_picture"]

BLUE, VERMILLION, GREY = "#0771EC", "#BD560C", "#757575"
GREEN, PURPLE, ORANGE = "#005A34", "#8B2871", "#684C13"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9,
}
PLAIN: dict[Any, Any] = {**STYLE, "text.parse_math": False, "text.usetex": False}  # a "$" in a user's name stays a "$"


def __dir__() -> list[str]:
    return __all__


def training_picture(
    title: str,
    losses: Sequence[float],
    history: Sequence[dict[str, Any]],
    watch: BatchNormWatch,
    population: BatchNormWatch,
    label_smoothing: float = 0.0,
) -> Figure:
    """Return the picture of a training run; `figure.savefig("training.png", dpi=130)` writes it to a file.

    losses      the loss of every training step
    history     a row for each epoch, as Run keeps them
    watch       the statistics of the BatchNorm layers at every step
    population  the statistics of the same layers, with all training images as one batch
    """
    with mpl.rc_context(PLAIN):
        figure = Figure(figsize=(14, 7.6), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        FigureCanvasAgg(figure)
        figure.suptitle(printable_lines(title), x=0.01, ha="left", fontsize=13, fontweight="bold")
        grid = figure.subplots(2, 3)
        _loss(grid[0, 0], losses, history, label_smoothing)
        _accuracy(grid[1, 0], history)
        layer = watch.layers[-1]
        channel = _most_moved(watch, layer)
        for row in (0, 1):  # mean, variance
            _channel(grid[row, 1], watch, layer, channel, row)
            _errors(grid[row, 2], watch, population, row)
    return figure


def curves(history: Sequence[dict[str, Any]], title: str = "") -> Figure:
    """Draw loss, accuracy and learning rate by epoch, from the rows of a log.csv (`training.read_log`)."""
    epochs = [row["epoch"] for row in history]
    with mpl.rc_context(PLAIN):
        figure = Figure(figsize=(13, 4), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        FigureCanvasAgg(figure)
        figure.suptitle(printable_lines(title), x=0.01, ha="left", fontsize=13, fontweight="bold")
        loss, accuracy, rate = figure.subplots(1, 3)
        for part, name, line, style in (
            ("train", "train", "-", {"color": BLUE, "marker": "o"}),
            ("val", "validation", "--", {"color": VERMILLION, "marker": "s"}),
        ):
            loss.plot(epochs, [row[f"{part}_loss"] for row in history], line, markersize=4, label=name, **style)
            shares = [_percent(row[f"{part}_accuracy"]) for row in history]
            accuracy.plot(epochs, shares, line, markersize=4, label=name, **style)
        rate.plot(epochs, [row["learning_rate"] for row in history], "o-", color=GREY, markersize=4)
        loss.set(title="Loss", xlabel="epoch")
        accuracy.set(title="Accuracy in %", xlabel="epoch")
        rate.set(title="Learning rate at the epoch's start", xlabel="epoch")
        for axes in (loss, accuracy, rate):
            axes.xaxis.get_major_locator().set_params(integer=True)
        loss.legend()
        accuracy.legend(loc="lower right")
    return figure


def learning_rates(test: RangeTest, title: str = "") -> Figure:
    """Draw the loss that `mn.optim.lr_finder` measured at each learning rate, and the rates that it suggests."""
    with mpl.rc_context(PLAIN):
        figure = Figure(figsize=(8, 4.5), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        FigureCanvasAgg(figure)
        figure.suptitle(printable_lines(title), x=0.01, ha="left", fontsize=13, fontweight="bold")
        axes = figure.subplots()
        axes.plot(test.rates, test.losses, color=GREY, alpha=0.5, linewidth=1, label="loss of each batch")
        axes.plot(test.rates, test.smoothed, color=BLUE, linewidth=2, label="moving average")
        marks = [("steepest descent", test.steepest, VERMILLION, "--"), ("minimum / 10", test.minimum, GREEN, ":")]
        for name, rate, colour, line in marks:
            if rate is not None:
                axes.axvline(rate, color=colour, linestyle=line, label=f"{name}: {rate:.2g}")
        least, first = min(test.smoothed), test.smoothed[0]
        room = max(first - least, 0.1 * abs(first))
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")  # powers of 10 would be formulas
        axes.xaxis.set_minor_formatter("")
        axes.set(ylim=(least - 0.2 * room, first + room), xlabel="learning rate", ylabel="loss")
        axes.set(title="Loss while the learning rate rises")
        axes.legend(loc="upper left")
    return figure


def confusion(matrix: Any, names: Sequence[str], title: str = "") -> Figure:
    """Draw a confusion matrix: a row for each true class, a column for each predicted class. A cell is darker if its
    share of the row is larger.
    """
    count = len(names)
    side = min(14.0, max(4.0, 0.42 * count + 2.2))
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    with mpl.rc_context({**PLAIN, "axes.grid": False}):
        figure = Figure(figsize=(side, side), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        figure.suptitle(
            printable_lines(title), x=0.01, ha="left", fontsize=11
        )  # a long title must leave room for the axes
        axes.set(xlabel="taken for", ylabel="is")
        if count <= 40:
            axes.set_xticks(range(count), list(map(clipped, names)), rotation=90)
            axes.set_yticks(range(count), list(map(clipped, names)))
        for i, j in zip(*np.nonzero(matrix), strict=True) if count <= 16 else ():
            colour = "white" if shares[i, j] > 0.55 else "black"
            axes.text(j, i, f"{matrix[i, j]}", ha="center", va="center", fontsize=8, color=colour)
    return figure


def _loss(axes: Any, losses: Sequence[float], history: Sequence[dict[str, Any]], label_smoothing: float) -> None:
    steps = len(losses) // len(history)
    ends = steps * np.arange(1, len(history) + 1)
    axes.plot(range(1, len(losses) + 1), losses, color=BLUE, alpha=0.35, linewidth=1, label="training, each batch")
    axes.plot(ends, [row["train_loss"] for row in history], "o-", color=BLUE, markersize=4, label="training, epoch")
    axes.plot(ends, [row["val_loss"] for row in history], "s--", color=VERMILLION, markersize=4, label="test")
    if label_smoothing:
        floor = least_loss(label_smoothing)
        axes.axhline(
            floor, color=GREY, linestyle=":", label=f"lower bound of the loss with label smoothing {label_smoothing:g}"
        )
        axes.set_ylim(bottom=floor - 0.08)
    axes.set(title="Loss (cross entropy)", xlabel="training step", ylabel="loss")
    axes.legend()


def least_loss(label_smoothing: float, classes: int = 10) -> float:
    """Return the entropy of a smoothed label, which is the smallest cross entropy that a prediction can have."""
    others = label_smoothing / classes
    right = 1 - label_smoothing + others
    return -right * math.log(right) - (classes - 1) * others * math.log(others)


def _accuracy(axes: Any, history: Sequence[dict[str, Any]]) -> None:
    epochs = [row["epoch"] for row in history]
    train, test = ([_percent(row[name]) for row in history] for name in ("train_accuracy", "val_accuracy"))
    axes.plot(epochs, train, "o-", color=BLUE, markersize=4, label="training (batch statistics)")
    axes.plot(epochs, test, "s--", color=VERMILLION, markersize=4, label="test (running statistics)")
    last = test[-1]
    end = "none: the targets are no classes" if math.isnan(last) else f"test at the end: {last:.2f} %"
    axes.set(title=f"Accuracy ({end})", xlabel="epoch", ylabel="accuracy in %")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="lower right")


def _percent(share: float | None) -> float:
    return math.nan if share is None else 100 * share


def _most_moved(watch: BatchNormWatch, layer: str) -> int:
    """Return the channel whose running mean, measured in standard deviations, is farthest from 0."""
    means, variances = watch.running(layer)
    return int(np.argmax(np.abs(means[-1]) / np.sqrt(variances[-1] + 1e-12)))


def _channel(axes: Any, watch: BatchNormWatch, layer: str, channel: int, row: int) -> None:
    """Draw one channel over time: the values of the batches, and the running value."""
    name, share = ("mean", "variance")[row], watch.momentum(layer)
    batch, running = watch.batch(layer)[row][:, channel], watch.running(layer)[row][:, channel]
    steps = np.arange(1, len(batch) + 1)
    axes.plot(steps, batch, ".", color=GREY, markersize=4, label=f"{name} of each batch")
    rule = f"running {name} = {share:g} x old + {1 - share:g} x batch"
    axes.plot(steps, running, "-", color=VERMILLION, linewidth=2, label=rule)
    axes.set(
        title=f"BatchNorm follows: {name}, channel {channel} of layer {printable(layer)}",
        xlabel="training step",
        ylabel=name,
    )
    axes.set_ylim(top=axes.get_ylim()[1] + 0.25 * np.ptp(axes.get_ylim()))  # room for the legend
    axes.legend(loc="upper left")


def _errors(axes: Any, watch: BatchNormWatch, population: BatchNormWatch, row: int) -> None:
    """Draw, for every channel, how far the last running value and the last batch's value are from the value of all
    images.
    """
    batch: list[Any] = []
    running: list[Any] = []
    ends = [0]
    for layer in watch.layers:
        mean, variance = (values[-1] for values in population.batch(layer))
        for found, values in ((batch, watch.batch(layer)), (running, watch.running(layer))):
            found.append((values[0][-1] - mean) / np.sqrt(variance) if row == 0 else values[1][-1] / variance - 1)
        ends.append(ends[-1] + len(mean))
    name, unit = (("mean", "in standard deviations"), ("variance", "in %"))[row]
    scale = (1, 100)[row]
    axes.axhline(0, color=GREY, linestyle=":")
    axes.plot(
        scale * np.concatenate(batch),
        "o",
        color=GREY,
        markerfacecolor="none",
        markersize=5,
        label=f"{name} of the last batch",
    )
    axes.plot(scale * np.concatenate(running), ".", color=VERMILLION, markersize=7, label=f"running {name}")
    for layer, start, end in zip(watch.layers, ends[:-1], ends[1:], strict=True):
        axes.axvline(end - 0.5, color="#CCCCCC", linewidth=1)
        axes.text(
            (start + end) / 2,
            0.02,
            f"layer {printable(layer)}",
            transform=axes.get_xaxis_transform(),
            ha="center",
            color=GREY,
        )
    axes.set(title=f"BatchNorm averages: error of the {name}", xlabel="channel", ylabel=f"error {unit}")
    limit = 1.45 * max(abs(v) for v in axes.get_ylim())  # room for legend and names
    axes.set(xlim=(-1, ends[-1]), ylim=(-limit, limit))
    axes.legend(loc="upper left", ncols=2)
