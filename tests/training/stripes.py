"""Ten textures of stripes and grids, in random colours: some to train a network on, others to fine-tune it on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

FIRST = ("across", "down", "falling", "rising", "grid", "noise")
OTHERS = ("steep", "flat", "steeper", "flatter")
NETWORK = """
from minorm import nn

def build(channels, size, classes):
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 24, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes))
"""


def write(root: Path, names: tuple[str, ...], train: int, val: int, seed: int, size: int = 16) -> None:
    """So many pictures of each class to train on, and to validate on."""
    from PIL import Image

    for part, count in (("train", train), ("val", val)):
        rng = np.random.default_rng((seed, count))
        for name in names:
            folder = root / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(drawn(name, rng, size)).save(folder / f"{i:03}.png")


def drawn(name: str, rng: np.random.Generator, size: int = 16) -> np.ndarray:
    """One picture of this class."""
    y, x = np.mgrid[:size, :size] * rng.uniform(0.9, 1.3)
    first, second = rng.uniform(0, 2 * np.pi, 2)
    waves = {
        "across": np.sin(x + first),
        "down": np.sin(y + first),
        "falling": np.sin(0.7 * (x + y) + first),
        "rising": np.sin(0.7 * (x - y) + first),
        "grid": np.sin(x + first) * np.sin(y + second),
        "noise": rng.normal(0, 0.7, (size, size)),
        "steep": np.sin(0.92 * x + 0.38 * y + first),
        "flat": np.sin(0.38 * x + 0.92 * y + first),
        "steeper": np.sin(0.92 * x - 0.38 * y + first),
        "flatter": np.sin(0.38 * x - 0.92 * y + first),
    }[name][..., None]
    low, high = rng.uniform(50, 205, (2, 3))
    noise = rng.normal(0, 15, (size, size, 3))
    return np.clip(low + (high - low) * (waves + 1) / 2 + noise, 0, 255).astype(np.uint8)
