"""602 pictures in five classes, as a phone's folder has them: 64 to 200 pixels, noisy, in colours that tell nothing.

The class is the outline of one shape, of any size, place and turn, on a striped ground.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

COUNTS = {"circle": 188, "square": 150, "triangle": 110, "cross": 84, "ring": 70}


def write(root: Path, share: float = 1.0) -> None:
    """Write the pictures, or a share of each class."""
    from PIL import Image

    for label, (name, count) in enumerate(COUNTS.items()):
        (root / name).mkdir(parents=True)
        for i in range(round(count * share)):
            pixels = drawn(name, np.random.default_rng((label, i)))
            Image.fromarray(pixels).save(root / name / f"{i:03}.jpg", quality=90)


def drawn(name: str, rng: np.random.Generator) -> np.ndarray:
    """One picture of this class."""
    height, width = rng.integers(64, 201, 2)
    side = min(height, width)
    radius = side * rng.uniform(0.25, 0.42)
    centre = np.array([height, width]) / 2 + rng.uniform(-0.08, 0.08, 2) * side
    y, x = np.mgrid[:height, :width] - centre[:, None, None]
    turn = rng.uniform(0, 2 * np.pi)
    u, v = (np.cos(turn) * x + np.sin(turn) * y) / radius, (np.cos(turn) * y - np.sin(turn) * x) / radius
    mask = inside(name, u, v)[..., None]
    bright, dark = _striped(y, x, rng, 40), _striped(y, x, rng, 0)
    shape, ground = (bright, dark) if rng.random() < 0.5 else (dark, bright)
    noise = rng.normal(0, 35, (height, width, 3))
    return np.clip(np.where(mask, shape, ground) + noise, 0, 255).astype(np.uint8)


def inside(name: str, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Whether places, in radii from the middle, are inside of the shape."""
    distance = np.hypot(u, v)
    if name == "circle":
        return distance < 1
    if name == "ring":
        return (distance < 1) & (distance > 0.5)
    if name == "square":
        return np.maximum(abs(u), abs(v)) < 0.85
    if name == "triangle":
        return (v > -0.6) & (v < 1.1 - 1.7 * abs(u))
    return (np.minimum(abs(u), abs(v)) < 0.3) & (np.maximum(abs(u), abs(v)) < 1)  # cross


def _striped(y: np.ndarray, x: np.ndarray, rng: np.random.Generator, least: float) -> np.ndarray:
    """Stripes of two colours, whose channels are from `least` to 105 more."""
    first, second = rng.uniform(least, least + 105, (2, 3))
    angle, length = rng.uniform(0, np.pi), rng.uniform(4, 16)
    waves = np.sin(2 * np.pi * (np.cos(angle) * x + np.sin(angle) * y) / length)[..., None]
    return first + (second - first) * (0.5 + 0.5 * waves)
