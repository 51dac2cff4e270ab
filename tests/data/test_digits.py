"""The digits of scikit-learn: real images, and an error that names the extra where it is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from minorm.data import load_digits, split_digits


def test_the_images_and_labels() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    theirs = datasets.load_digits()
    images, labels = load_digits()[:]
    assert images.shape == (1797, 1, 8, 8)
    assert images.dtype == np.float32
    assert (images.min(), images.max()) == (0, 1)
    assert np.array_equal(images[:, 0] * 16, theirs.images)
    assert labels.dtype == np.int64
    assert np.array_equal(labels, theirs.target)


def test_the_split_is_the_seeds_and_shares_nothing() -> None:
    pytest.importorskip("sklearn")
    train, test = split_digits(seed=1)
    assert (len(train), len(test)) == (1438, 359)
    assert np.array_equal(np.sort(np.concatenate([train.indices, test.indices])), np.arange(1797))
    assert np.array_equal(split_digits(seed=1)[1].indices, test.indices)
    assert not np.array_equal(split_digits(seed=2)[1].indices, test.indices)
    assert set(test[:][1].tolist()) == set(range(10))


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"load_digits: the digits come with scikit-learn.*pip install scikit-learn"):
        load_digits()
