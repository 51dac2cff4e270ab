"""Six implementations with a bug each. Lab 11 asks what they do, so look at their answers before you look in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

OPERATORS = {
    "A": "LpNormalization",
    "B": "LpNormalization",
    "C": "LRN",
    "D": "LRN",
    "E": "MeanVarianceNormalization",
    "F": "MeanVarianceNormalization",
}


def run(name: str, case: Mapping[str, Any]) -> list[Any]:
    """The suspect's outputs; ValueError for a case of another operator."""
    if case["operator"] != OPERATORS[name]:
        raise ValueError(f"suspect {name} is {OPERATORS[name]}, the case {case['operator']}")
    (x,) = case["inputs"]
    with np.errstate(all="ignore"):
        y = _SUSPECTS[name](x.astype(np.float64), dict(case["attributes"]))
    return [y.astype(x.dtype)]


def _lp(x: Any, said: dict[str, Any], last: bool = False) -> Any:
    axis = -1 if last else said.get("axis", -1)
    p = said.get("p", 2)
    return x / (np.abs(x) ** p).sum(axis=axis, keepdims=True) ** (1 / p)


def _lp_last(x: Any, said: dict[str, Any]) -> Any:
    return np.nan_to_num(_lp(x, said, last=True))


def _lrn(x: Any, said: dict[str, Any], mirrored: bool = False, share: bool = True) -> Any:
    size, channels = said["size"], x.shape[1]
    below, above = (size - 1) // 2, size // 2
    if mirrored:
        below, above = above, below
    sums = [(x[:, max(0, c - below) : c + above + 1] ** 2).sum(axis=1) for c in range(channels)]
    alpha = said.get("alpha", 1e-4) / (size if share else 1)
    return x / (said.get("bias", 1.0) + alpha * np.stack(sums, axis=1)) ** said.get("beta", 0.75)


def _lrn_mirrored(x: Any, said: dict[str, Any]) -> Any:
    return _lrn(x, said, mirrored=True)


def _lrn_whole(x: Any, said: dict[str, Any]) -> Any:
    return _lrn(x, said, share=False)


def _mvn_samples(x: Any, said: dict[str, Any]) -> Any:
    axes = tuple(said.get("axes", (2, 3)))
    return (x - x.mean(axis=axes, keepdims=True)) / (x.std(axis=axes, keepdims=True) + 1e-9)


def _mvn_naive(x: Any, said: dict[str, Any]) -> Any:
    axes, narrow = tuple(said.get("axes", (0, 2, 3))), x.astype(np.float32)
    mean = narrow.mean(axis=axes, keepdims=True)
    var = np.maximum((narrow * narrow).mean(axis=axes, keepdims=True) - mean * mean, 0)
    return (narrow - mean) / (np.sqrt(var) + np.float32(1e-9))


_SUSPECTS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "A": _lp,  # a norm of 0 makes NaN
    "B": _lp_last,  # always the last axis
    "C": _lrn_mirrored,  # windows of even size the wrong way round
    "D": _lrn_whole,  # alpha not divided by size
    "E": _mvn_samples,  # the default axes leave out the batch
    "F": _mvn_naive,  # E[x^2] - E[x]^2
}
