"""Loads the handwritten digits that come with scikit-learn: 1,797 real images of 8 x 8 pixels."""

from __future__ import annotations

import numpy as np

from minorm.data.dataset import ArrayDataset, Subset, random_split
from minorm.support.documented import documented


def load_digits() -> ArrayDataset:
    """Load images 1797 x 1 x 8 x 8, float32 from 0 to 1, and labels 0 to 9, int64.

    Raises ImportError if scikit-learn is missing.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError(
            "load_digits: the digits come with scikit-learn, which is not installed; pip install scikit-learn"
        ) from error
    found = datasets.load_digits()
    images = (found.images / 16).astype(np.float32)[:, np.newaxis]
    return ArrayDataset(images, found.target.astype(np.int64))


@documented({}, seed="the same seed gives the same two parts", fraction="the share of the samples for training")
def split_digits(seed: int = 0, fraction: float = 0.8) -> tuple[Subset, Subset]:
    """Split the digits at random into (train, test). `fraction` is the share of the digits that `train` gets.

    The same seed gives the same parts.

    Raises ImportError if scikit-learn is missing.

    Example:
        >>> train, test = mn.data.split_digits(seed=0)
        >>> len(train), len(test)
        (1438, 359)
    """
    return random_split(load_digits(), fraction, seed)
