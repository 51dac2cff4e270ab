"""Validation accuracy of recipes on five small data sets, the mean of several seeds, as a table in Markdown.

    python -m benchmarks.recipes [--seeds 2] [--sets N ...] [--recipes NAME ...]

The recipe "default" is what `choose_settings` chooses; each other one changes a single thing. All train the network of
network.py to the end; what counts is the last epoch, so that no recipe gains by having many epochs to pick from.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.recipes.sets import SETS, write
from minorm.training import Run, choose_settings

NETWORK = f"{Path(__file__).parent / 'network.py'}:build"
RECIPES: dict[str, dict[str, Any]] = {
    "default": {},
    "trivial augment": {"trivial_augment": True},
    "rand augment 2,9": {"rand_augment": "2,9"},
    "rotate 15": {"rotate": 15.0},
    "mixup 0.2": {"mixup": 0.2},
    "label smoothing 0": {"label_smoothing": 0.0},
    "focal loss": {"loss": "focal"},
    "adamw": {"optimizer": "adamw"},
    "ema 0.99": {"ema": 0.99},
}
LENGTHS = {"half the epochs": 0.5, "twice the epochs": 2.0}


def accuracy(root: Path, recipe: str, seed: int) -> float:
    """Train a recipe; return the accuracy of the last epoch in percent."""
    given: dict[str, Any] = {"data": "folder", "model": NETWORK, "seed": seed, **RECIPES.get(recipe, {})}
    chosen = choose_settings(root, **given)
    if recipe in LENGTHS:
        epochs = max(1, round(chosen.settings.epochs * LENGTHS[recipe]))
        chosen = choose_settings(root, **given, epochs=epochs)
    for images in chosen.sets:
        images.dataset.pixels = functools.cache(images.dataset.pixels)  # decoded once, not once an epoch
    run = Run(chosen.settings, sets=chosen.sets)
    run.fit()
    return 100 * float(run.history[-1]["val_accuracy"] or 0)


def main() -> None:
    """Train and print; progress goes line by line, the table comes at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--sets", type=int, nargs="+", default=list(range(len(SETS))), help="by number, from 0")
    parser.add_argument("--recipes", nargs="+", default=[*RECIPES, *LENGTHS])
    args = parser.parse_args()
    names = [list(SETS)[number] for number in args.sets]
    found: dict[tuple[str, str], str] = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            write(name, Path(folder))
            for recipe in args.recipes:
                start = time.perf_counter()
                scores = [accuracy(Path(folder), recipe, seed) for seed in range(args.seeds)]
                said = f"{statistics.mean(scores):.1f}" + (
                    f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
                )
                found[recipe, name] = said
                print(f"{name}; {recipe}: {said} ({time.perf_counter() - start:.0f} s)", flush=True)
    print(f"| recipe | {' | '.join(names)} |")
    print(f"|---|{'---|' * len(names)}")
    for recipe in args.recipes:
        print(f"| {recipe} | {' | '.join(found[recipe, name] for name in names)} |")


if __name__ == "__main__":
    main()
