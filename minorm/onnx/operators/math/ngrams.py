"""TfIdfVectorizer: count how often the n-grams of a pool occur in rows of whole numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from minorm.onnx.graph.errors import Unsupported
from minorm.onnx.graph.memory_budget import TURN
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, reads
from minorm.onnx.operators.traced_as_one_call import whole
from minorm.tensor.tensor import Tensor

MODES = ("TF", "IDF", "TFIDF")
LOOK_UP = TURN // 200  # the look-up of one n-gram takes as long as this many multiplications


@reads("TfIdfVectorizer", since=9, fixed=EVERY)
def read_tf_idf(node: Node) -> Callable[[Tensor], Tensor]:
    """Map x of shape (N, C) to (N, columns), or x of shape (C,) to (columns,).

    The columns are counts (TF), weights of the n-grams that occur (IDF), or counts times weights (TFIDF).
    """
    if node["pool_strings"] or node["pool_int64s"] is None:
        raise Unsupported("the node counts texts; minorm counts only whole numbers (pool_int64s)")
    places, mode = _pool(node), node["mode"]
    least, most, skips = node["min_gram_length"], node["max_gram_length"], node["max_skip_count"]
    columns = node["ngram_indexes"]
    width = max(columns) + 1 if columns else 0
    weights = np.ones(len(columns), np.float32) if node["weights"] is None else np.array(node["weights"], np.float32)
    if mode not in MODES or not 1 <= least <= most or skips < 0 or min(columns, default=0) < 0:
        raise ValueError(
            f"mode is {mode!r}, lengths {least} to {most}, max_skip_count {skips}, ngram_indexes {columns}; expected "
            f"the mode {' or '.join(MODES)}, 1 <= min_gram_length <= max_gram_length, max_skip_count >= 0 and "
            "ngram_indexes >= 0"
        )
    if len(weights) != len(columns):
        raise ValueError(f"weights has {len(weights)} numbers; expected one for each of {len(columns)} n-grams")
    factors = np.zeros(width, np.float32)
    factors[list(columns)] = weights

    def vectorize(x: Tensor) -> Tensor:
        if x.ndim not in (1, 2):
            raise ValueError(f"x has shape {x.shape}; expected (C,) or (N, C)")
        rows = x.array.reshape(-1, x.shape[-1])
        node.fits((len(rows), width), np.float32)
        node.check_work(rows.size * (min(most, rows.shape[1]) - least + 1 if rows.size else 0), skips + 1, LOOK_UP)
        counts = np.zeros((len(rows), width), np.float32)
        for row, elements in zip(counts, rows.tolist(), strict=True):
            for length in range(least, min(most, len(elements)) + 1):
                for step in range(1, (skips if length > 1 else 0) + 2):
                    for start in range(len(elements) - step * (length - 1)):
                        gram = tuple(elements[start : start + step * (length - 1) + 1 : step])
                        if gram in places:
                            row[columns[places[gram]]] += 1
        found = counts if mode == "TF" else np.where(counts > 0, factors, 0) if mode == "IDF" else counts * factors
        return Tensor(found.astype(np.float32).reshape(*x.shape[:-1], width))

    return whole(node, vectorize)


def _pool(node: Node) -> dict[tuple[int, ...], int]:
    """Map each n-gram to its number in the pool; ngram_counts says where the n-grams of length 1, 2 ... begin."""
    pool, begins = node["pool_int64s"], [*node["ngram_counts"], len(node["pool_int64s"])]
    places: dict[tuple[int, ...], int] = {}
    number = 0
    for length, (begin, end) in enumerate(itertools.pairwise(begins), start=1):
        if not 0 <= begin <= end <= len(pool) or (end - begin) % length:
            raise ValueError(
                f"ngram_counts is {begins[:-1]}; expected, for each length, the position in pool_int64s ({len(pool)} "
                "numbers) at which the n-grams of this length begin"
            )
        for start in range(begin, end, length):
            places.setdefault(tuple(pool[start : start + length]), number)
            number += 1
    if number != len(node["ngram_indexes"]):
        raise ValueError(
            f"ngram_indexes has {len(node['ngram_indexes'])} numbers; expected {number}, one for each n-gram of the "
            "pool"
        )
    return places
