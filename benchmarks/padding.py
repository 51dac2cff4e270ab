"""Show how padding changes a normalization and how a mask corrects it: two tables and a picture.

    python -m benchmarks.padding [--out docs/images/padded-batch.png]

Sequences of N(3, 1) numbers of different lengths, padded with 0 to the longest, which is what a batch needs.
docs/masked.md says what follows.
"""

from __future__ import annotations

import argparse
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import minorm as mn
import minorm.functional as F
from minorm import nn, plots

MEAN, STD = 3.0, 1.0
LENGTHS = (48, 41, 35, 28, 22, 15, 9, 5)


def padded(lengths: Any, length: int | None = None, channels: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """x (N, C, L), and the mask (N, 1, L): True where a sequence has an element."""
    length = max(lengths) if length is None else length
    mask = np.arange(length) < np.reshape(lengths, (-1, 1, 1))
    x = np.random.default_rng(0).normal(MEAN, STD, (len(lengths), channels, length))
    return np.where(mask, x, 0).astype(np.float32), mask


def statistics(share: float) -> list[tuple[float, float]]:
    """Mean and standard deviation of a channel where this share of the batch counts: of all, and by the mask."""
    x, mask = padded([round(share * 200)] * 2000, 200)
    results = []
    for given in (None, mn.tensor(mask)):
        layer = nn.BatchNorm1d(1, momentum=None)  # an average of one batch: its own statistics
        layer(mn.tensor(x), mask=given)
        results.append((float(layer.running_mean.item()), float(layer.running_var.item()) ** 0.5))
    return results


def statistics_table(shares: Any = (1.0, 0.75, 0.5, 0.25, 0.1)) -> str:
    lines = ["| padding | mean | std | mean, masked | std, masked |", "|---|---|---|---|---|"]
    for share in shares:
        (mean, std), (mean_masked, std_masked) = statistics(share)
        lines.append(f"| {1 - share:.0%} | {mean:.2f} | {std:.2f} | {mean_masked:.2f} | {std_masked:.2f} |")
    return "\n".join(lines)


def change(norm: str, length: int, masked: bool) -> float:
    """How much the result for one sequence of 20 changes when it is padded to `length`: the largest difference."""
    channels = 4
    alone, _ = padded([20], 20, channels)
    x = np.zeros((1, channels, length), np.float32)
    x[:, :, :20] = alone
    mask = mn.tensor(np.arange(length) < 20) if masked else None
    run = {
        "InstanceNorm": lambda x, m: F.instance_norm(x, mask=m),
        "GroupNorm": lambda x, m: F.group_norm(x, 2, mask=m),
        "BatchNorm, training": lambda x, m: F.batch_norm(x, None, None, training=True, mask=m),
        "LayerNorm over C and L": lambda x, m: F.layer_norm(x, x.shape[1:], mask=m),
        "LayerNorm over C": lambda x, m: F.layer_norm(
            x.transpose(1, 2), channels, mask=None if m is None else m.reshape(1, -1, 1)
        ).transpose(1, 2),
    }[norm]
    expected = run(mn.tensor(alone), None).numpy()
    return float(np.abs(run(mn.tensor(x), mask).numpy()[:, :, :20] - expected).max())


NORMS = ("InstanceNorm", "GroupNorm", "LayerNorm over C and L", "BatchNorm, training", "LayerNorm over C")


def change_table(lengths: Any = (24, 40, 200)) -> str:
    columns = [f"padded to {length}" for length in lengths] + [f"to {lengths[-1]}, masked"]
    lines = [f"| {' | '.join(['', *columns])} |", "|---|" + "---|" * len(columns)]
    for norm in NORMS:
        numbers = [change(norm, length, False) for length in lengths] + [change(norm, lengths[-1], True)]
        lines.append(f"| {norm} | {' | '.join(f'{number:.2g}' for number in numbers)} |")
    return "\n".join(lines)


def picture() -> Figure:
    x, mask = padded(LENGTHS)
    plain = F.batch_norm(mn.tensor(x), None, None, training=True).numpy()
    with_mask = F.batch_norm(mn.tensor(x), None, None, training=True, mask=mn.tensor(mask)).numpy()
    shown = mask[:, 0]
    with mpl.rc_context({**plots.STYLE, "axes.grid": False}):
        figure = Figure(figsize=(11, 6), layout="constrained")
        panels = figure.subplots(2, 2)
        batch, before, after = (values[:, 0] for values in (x, plain, with_mask))
        maps = (
            (panels[0, 0], np.where(shown, batch, np.nan), "A padded batch: eight sequences, N(3, 1), grey is padding"),
            (panels[0, 1], before, _title("BatchNorm without a mask", before, shown)),
            (panels[1, 1], np.where(shown, after, np.nan), _title("BatchNorm with the mask", after, shown)),
        )
        for axes, values, title in maps:
            centre = MEAN if axes is panels[0, 0] else 0.0
            axes.set_facecolor("#D9D9D9")
            image = axes.pcolormesh(values, cmap="RdBu_r", vmin=centre - 3, vmax=centre + 3, edgecolors="white", lw=0.1)
            axes.stairs(LENGTHS, orientation="horizontal", baseline=None, color="black", lw=1.2)
            axes.invert_yaxis()
            axes.set_title(title)
            axes.set_xlabel("position")
            axes.set_ylabel("sequence")
            axes.set_yticks(np.arange(len(LENGTHS)) + 0.5, range(1, len(LENGTHS) + 1))
            figure.colorbar(image, ax=axes, pad=0.01)
        _statistics(panels[1, 0])
    return figure


def _title(what: str, y: np.ndarray, counted: np.ndarray) -> str:
    return f"{what}; real elements: mean {y[counted].mean():.2f}, std {y[counted].std():.2f}".replace("-0.00", "0.00")


def _statistics(axes: Any) -> None:
    """Mean and std against the share of padding, by the formula and as measured."""
    r = np.linspace(0.02, 1, 200)
    axes.plot(1 - r, r * MEAN, color=plots.BLUE, label="mean = r m")
    spread = np.sqrt(r * STD**2 + r * (1 - r) * MEAN**2)
    axes.plot(1 - r, spread, color=plots.VERMILLION, ls="--", label="std = √(r v + r (1 - r) m²)")
    for share in (1.0, 0.75, 0.5, 0.25, 0.1):
        (mean, std), (mean_masked, std_masked) = statistics(share)
        axes.plot(1 - share, mean, "o", color=plots.BLUE)
        axes.plot(1 - share, std, "s", color=plots.VERMILLION)
        axes.plot(1 - share, mean_masked, "o", color=plots.BLUE, mfc="white")
        axes.plot(1 - share, std_masked, "s", color=plots.VERMILLION, mfc="white")
    axes.plot([], [], "o", color="black", label="measured")
    axes.plot([], [], "o", color="black", mfc="white", label="measured, masked")
    axes.set_title(f"What BatchNorm takes for the statistics (true: mean {MEAN:g}, std {STD:g})")
    axes.set_xlabel("share of padding, 1 - r")
    axes.set_ylim(0, 3.6)
    axes.legend(ncols=2, loc="lower left")


def main() -> None:
    parser = argparse.ArgumentParser(description="Padding, and a mask against it.")
    parser.add_argument("--out", metavar="FILE.png", help="where to draw it")
    args = parser.parse_args()
    print(f"Statistics of a channel (true: mean {MEAN:g}, std {STD:g})\n\n{statistics_table()}\n")
    print(f"Largest change of the result for one sequence\n\n{change_table()}")
    if args.out:
        picture().savefig(args.out, dpi=90)


if __name__ == "__main__":
    main()
