"""Test error on the digits for each normalization and each size of the batch: two networks, a table and a picture.

    python -m benchmarks.batch_sizes [--seeds 3] [--epochs 6] [--out docs/images/batch-sizes.svg]

All train on the same images for as many epochs, but at least 200 steps, with a learning rate that grows with the batch
up to 64, and differ in the normalization alone. The number is the median of the seeds; what the picture shades lies
between the best and the worst. docs/which-normalization.md says what follows. About five minutes on one core.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import minorm as mn
import minorm.functional as F
from minorm import nn, optim, plots
from minorm.data import DataLoader, split_digits

SIZES = (2, 4, 8, 16, 32, 64, 128, 256)
LR, AT = 0.05, 64  # the learning rate, and the size of batch that it is for
GHOST = 16
LEAST = 200  # steps: six epochs of batches of 256 are 30, and what they show is that nothing is trained yet
WARM_UP = 100  # steps in which BatchRenorm is BatchNorm: before, the running statistics that r and d refer to are young

Norm = Callable[[int], nn.Module]


def r_max(step: int) -> float:
    return 1.0 if step < WARM_UP else 3.0


def d_max(step: int) -> float:
    return 0.0 if step < WARM_UP else 5.0


def norms(images: bool) -> dict[str, Norm]:
    """Return the five norms; Layer is a GroupNorm of one group, over all channels and positions of an image."""
    batch, renorm = (nn.BatchNorm2d, nn.BatchRenorm2d) if images else (nn.BatchNorm1d, nn.BatchRenorm1d)
    return {
        "Batch": batch,
        "Ghost": lambda channels: nn.GhostBatchNorm(channels, GHOST),
        "Renorm": lambda channels: renorm(channels, rmax=r_max, dmax=d_max),
        "Group": lambda channels: nn.GroupNorm(4, channels),
        "Layer": lambda channels: nn.GroupNorm(1, channels),
    }


def convolutional(norm: Norm) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), norm(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), norm(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def dense(norm: Norm) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 64, bias=False), norm(64), nn.ReLU(),
        nn.Linear(64, 64, bias=False), norm(64), nn.ReLU(),
        nn.Linear(64, 10),
    )  # fmt: skip


NETWORKS = {
    "Dense: N values per channel": (dense, norms(images=False)),
    "Convolutional: 64 N, then 16 N values per channel": (convolutional, norms(images=True)),
}


def test_error(model: nn.Module, size: int, epochs: int, seed: int) -> float:
    """Train with batches of this size; return the percentage of wrong test images in evaluation."""
    train, test = split_digits(seed=0)
    optimizer = optim.SGD(model.parameters(), lr=LR * min(1, size / AT), momentum=0.9)
    steps = len(train) // size  # an epoch
    epochs = max(epochs, -(-LEAST // steps))
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    for epoch in range(epochs):
        for images, labels in DataLoader(train, size, shuffle=True, seed=1000 * seed + epoch, drop_last=True):
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    images, labels = next(iter(DataLoader(test, batch_size=len(test))))
    with mn.no_grad():
        return 100 * float(np.mean(model(images).numpy().argmax(1) != labels.numpy()))


Results = dict[str, dict[str, dict[int, list[float]]]]  # network, norm, size: an error a seed


def measure(seeds: int, epochs: int) -> Results:
    found: Results = {}
    for title, (network, choices) in NETWORKS.items():
        for name, norm in choices.items():
            for size in SIZES:
                for seed in range(seeds):
                    mn.manual_seed(seed)
                    error = test_error(network(norm), size, epochs, seed)
                    found.setdefault(title, {}).setdefault(name, {}).setdefault(size, []).append(error)
    return found


def table(of: Mapping[str, Mapping[int, list[float]]]) -> str:
    lines = [f"| batch | {' | '.join(of)} |", "|---|" + "---|" * len(of)]
    for size in SIZES:
        numbers = [f"{statistics.median(errors[size]):.1f}" for errors in of.values()]
        lines.append(f"| {size} | {' | '.join(numbers)} |")
    return "\n".join(lines)


LINES = {  # colours that colour-blind readers tell apart, another mark for each; Batch is wide, where Ghost covers it
    "Batch": (plots.VERMILLION, "o-", 3.5),
    "Ghost": (plots.ORANGE, "s--", 1.5),
    "Renorm": (plots.PURPLE, "D-", 1.5),
    "Group": (plots.BLUE, "^-", 1.5),
    "Layer": (plots.GREEN, "v-", 1.5),
}


def picture(results: Results) -> Figure:
    with mpl.rc_context({**plots.STYLE, "svg.fonttype": "none", "svg.hashsalt": "minorm"}):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        panels = figure.subplots(1, len(results), sharey=True)
        for axes, (title, of) in zip(panels, results.items(), strict=True):
            for name, errors in of.items():
                colour, style, width = LINES[name]
                low, middle, high = ([f(errors[s]) for s in SIZES] for f in (min, statistics.median, max))
                axes.fill_between(SIZES, low, high, color=colour, alpha=0.12, linewidth=0)
                axes.plot(SIZES, middle, style, color=colour, lw=width, markersize=5, label=name)
            axes.set_title(title)
            axes.set_xscale("log", base=2)
            axes.set_xticks(SIZES, [str(size) for size in SIZES])
            axes.set_yscale("log")
            axes.set_yticks([0.5, 1, 2, 5, 10, 20, 50], ["0.5", "1", "2", "5", "10", "20", "50"])
            axes.minorticks_off()
            axes.set_xlabel("images in a batch, N")
        panels[0].set_ylabel("test error, %")
        panels[-1].legend(ncols=2, loc="upper center")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="Test error by normalization and batch size.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", metavar="FILE.svg", help="where to draw it")
    args = parser.parse_args()
    mn.set_num_threads(1)
    results = measure(args.seeds, args.epochs)
    for title, of in results.items():
        print(f"{title}; test error in %, the median of {args.seeds}\n\n{table(of)}\n")
    if args.out:
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "minorm"}):
            picture(results).savefig(args.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
