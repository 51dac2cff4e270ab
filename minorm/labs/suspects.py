"""Holds implementations with one bug each, in series of six. Lab 11 asks which bug, so do not read them first."""

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
    """Run a suspect on the case and return its outputs.

    Raise ValueError if the case is of another operator than the suspect.
    """
    operator = OPERATORS[name[0]]
    if case["operator"] != operator:
        raise ValueError(f"suspect {name} is for {operator}, but the case is of {case['operator']}")
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


def _lp_unsigned(x: Any, said: dict[str, Any]) -> Any:
    return np.abs(np.nan_to_num(_lp(x, said)))


def _lp_two(x: Any, said: dict[str, Any]) -> Any:
    return np.nan_to_num(_lp(x, {**said, "p": 2}))


def _lp_rootless(x: Any, said: dict[str, Any]) -> Any:
    total = (np.abs(x) ** said.get("p", 2)).sum(axis=said.get("axis", -1), keepdims=True)
    return np.nan_to_num(x / total)


def _lp_everywhere(x: Any, said: dict[str, Any]) -> Any:
    return np.nan_to_num(_lp(x.reshape(1, -1), {"p": said.get("p", 2)})).reshape(x.shape)


def _lrn_beta(x: Any, said: dict[str, Any]) -> Any:
    return _lrn(x, {**said, "beta": 0.75})


def _lrn_bias(x: Any, said: dict[str, Any]) -> Any:
    return _lrn(x, {**said, "bias": 1.0})


def _lrn_absolute(x: Any, said: dict[str, Any]) -> Any:
    return np.sign(x) * np.abs(x) ** 0.5 * _lrn(np.abs(x) ** 0.5, said)


def _lrn_wide(x: Any, said: dict[str, Any]) -> Any:
    size = said["size"]
    return _lrn(x, {**said, "size": size + 1, "alpha": said.get("alpha", 1e-4) * (size + 1) / size})


def _mvn(x: Any, axes: tuple[int, ...], power: float = 1.0, fewer: int = 0, centered: bool = True) -> Any:
    mean = x.mean(axis=axes, keepdims=True)
    c = x - mean
    m = x.size // mean.size
    std = np.sqrt((c * c).sum(axis=axes, keepdims=True) / max(m - fewer, 1))
    return (c if centered else x) / (std**power + 1e-9)


def _axes(said: dict[str, Any]) -> tuple[int, ...]:
    return tuple(said.get("axes", (0, 2, 3)))


_SUSPECTS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "A": _lp,  # a norm of 0 makes NaN
    "B": _lp_last,  # always the last axis
    "C": _lrn_mirrored,  # windows of even size the wrong way round
    "D": _lrn_whole,  # alpha not divided by size
    "E": _mvn_samples,  # the default axes leave out the batch
    "F": _mvn_naive,  # E[x^2] - E[x]^2
    "A2": _lp_unsigned,  # the sign is lost
    "B2": _lp_two,  # p is always 2
    "C2": _lrn_beta,  # beta is always 0.75
    "D2": _lrn_bias,  # bias is always 1
    "E2": lambda x, said: _mvn(x, _axes(said), power=2),  # divided by the variance
    "F2": lambda x, said: _mvn(x, _axes(said), fewer=1),  # the variance divides by m - 1
    "A3": _lp_rootless,  # the root of the sum is missing
    "B3": _lp_everywhere,  # one norm for all
    "C3": _lrn_absolute,  # |x| in place of x^2
    "D3": _lrn_wide,  # windows one channel too wide
    "E3": lambda x, _: _mvn(x, (0, 2, 3)),  # always the default axes
    "F3": lambda x, said: _mvn(x, _axes(said), centered=False),  # the mean is not subtracted
}
