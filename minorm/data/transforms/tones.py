"""Changes the tones of batches of images, floats from 0 to 1, for RandAugment and TrivialAugmentWide.

Posterizing and equalizing work on bytes, as in Pillow: each element is first rounded to a byte.
"""

from __future__ import annotations

import numpy as np

from minorm.data.dataset import Array


def posterized(images: Array, bits: int) -> Array:
    """Keep the highest `bits` of each byte, and set the lower bits to 0."""
    kept = _bytes(images) & (256 - (1 << (8 - bits)))
    return (kept / 255).astype(images.dtype)


def solarized(images: Array, threshold: float) -> Array:
    """Return 1 - x for each x >= threshold, and x otherwise."""
    return np.where(images >= images.dtype.type(threshold), 1 - images, images)


def autocontrasted(images: Array) -> Array:
    """Stretch each channel so that its values go from 0 to 1. A channel with a single tone does not change."""
    low, high = images.min((2, 3), keepdims=True), images.max((2, 3), keepdims=True)
    span = high - low
    flat = span <= 0
    return np.where(flat, images, np.clip((images - low) / np.where(flat, 1, span), 0, 1))


def equalized(images: Array) -> Array:
    """Spread each channel's tones so that about equally many elements have each tone. A single tone stays as it is."""
    found = _bytes(images)
    for channel in found.reshape(-1, *found.shape[2:]):
        counts = np.bincount(channel.ravel(), minlength=256)
        step = int(counts[counts > 0][:-1].sum()) // 255
        if step:
            table = (np.cumsum(counts) - counts + step // 2) // step
            channel[...] = np.minimum(table, 255)[channel]
    return (found / 255).astype(images.dtype)


def sharpened(images: Array, f: float) -> Array:
    """Return f * images + (1 - f) * smooth, clipped to 0 to 1.

    Each element of `smooth` is a weighted mean of 3 x 3 elements: the middle one has the weight 5 / 13, the others have
    1 / 13. Elements on the border do not change.
    """
    if min(images.shape[2:]) <= 2:
        return images
    smooth = images.copy()
    height, width = images.shape[2:]
    windows = [images[:, :, i : height - 2 + i, j : width - 2 + j] for i in range(3) for j in range(3)]
    smooth[:, :, 1:-1, 1:-1] = (sum(windows) + 4 * windows[4]) / 13
    return np.clip(f * images + (1 - f) * smooth, 0, 1).astype(images.dtype)


def _bytes(images: Array) -> Array:
    return np.rint(np.clip(images, 0, 1) * 255).astype(np.intp)
