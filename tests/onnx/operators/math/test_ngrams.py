"""TfIdfVectorizer against a count by hand and onnxruntime, and pools that are damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from tests.onnx.runtime import expected

POOL = {
    "pool_int64s": (2, 3, 5, 4, 5, 6, 7, 8, 6, 7),  # 2 3 5 4, then pairs
    "ngram_counts": (0, 4),
    "ngram_indexes": (0, 1, 2, 3, 4, 5, 6),
    "max_gram_length": 2,
    "min_gram_length": 1,
}
X = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int64)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips", [0, 1, 3])
def test_counts_are_onnxruntimes(one_node: Any, mode: str, skips: int) -> None:
    weights = tuple(np.arange(1, 8) / 4)
    proto = one_node("TfIdfVectorizer", [X], 9, mode=mode, max_skip_count=skips, weights=weights, **POOL)
    y = mo.load(proto)(mn.Tensor(X))
    np.testing.assert_allclose(y.array, expected(proto, X)[0], rtol=1e-6)


def test_by_hand(one_node: Any) -> None:
    """Of 8 6 7 5 6 8: one 5, and the pairs 6 7 and 5 6."""
    y = mo.load(one_node("TfIdfVectorizer", [X[1]], 9, mode="TF", max_skip_count=0, **POOL))(mn.Tensor(X[1]))
    np.testing.assert_array_equal(y.array, [0, 0, 1, 0, 1, 0, 1])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mode": "Other"}, "mode is 'Other'"),
        ({"ngram_counts": (0, 3)}, "expected, for each length, the position"),
        ({"ngram_counts": (0, 40)}, "expected, for each length, the position"),
        ({"ngram_indexes": (0, 1)}, "ngram_indexes has 2 numbers; expected 7, one for each n-gram"),
        ({"weights": (1.0,)}, "weights has 1 numbers; expected one for each of 7"),
        ({"min_gram_length": 0}, "lengths 0 to 2"),
        ({"pool_int64s": None, "pool_strings": ("a",)}, "the node counts texts"),
    ],
)
def test_damaged_pools_are_errors(one_node: Any, changed: dict[str, Any], message: str) -> None:
    attributes = {"mode": "TF", "max_skip_count": 0, **POOL, **changed}
    given = {name: value for name, value in attributes.items() if value is not None}
    with pytest.raises(mo.LoadError, match=message):
        mo.load(one_node("TfIdfVectorizer", [X], 9, **given))
