"""Measures how far an exhibit is from the formula on a case. The library computes the formula, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.labs.museum.exhibits import Array, batch_moments, exhibit, stepped
from minorm.labs.museum.plaques import PLAQUES
from minorm.tensor.creation import tensor

MOST = 4096  # elements of x
_NEEDED = {
    "batch_norm": ("x", "s", "b", "running_mean", "running_var"),
    "group_norm": ("x", "s", "b", "num_groups"),
    "layer_norm": ("x", "s", "b"),
    "lp_norm": ("x",),
}
_OPTIONS = {
    "batch_norm": ("momentum", "eps"),
    "group_norm": ("eps",),
    "layer_norm": ("axis", "eps"),
    "lp_norm": ("p", "axis"),
}


def off(letter: str, case: Mapping[str, Any]) -> float:
    """Return the exhibit's largest error on the case, relative to max(1, the largest right number).

    Return infinity for NaN or a wrong shape.
    """
    case = checked(PLAQUES[letter].function, case)
    return distance(exhibit(letter)(**case), right(PLAQUES[letter].function, case))


def right(function: str, case: Mapping[str, Any]) -> Any:
    """Return the formula's results in float64; the types in the case do not matter."""
    return _RIGHT[function](**case)


def distance(got: Any, expected: Any) -> float:
    """Return max |got - expected| / max(1, max |expected|). For several arrays, return the largest of these numbers."""
    ours, theirs = (value if isinstance(value, tuple) else (value,) for value in (got, expected))
    return max(map(_apart, ours, theirs)) if len(ours) == len(theirs) else float("inf")


def _apart(value: Any, formula: Any) -> float:
    value, formula = np.float64(value), np.float64(formula)
    if value.shape != formula.shape or not np.isfinite(value).all():
        return float("inf")
    return float(np.abs(value - formula).max(initial=0) / np.abs(formula).max(initial=1))


def checked(function: str, case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the case if it has this function's arguments with matching shapes; otherwise raise ValueError."""
    needed, options = _NEEDED[function], _OPTIONS[function]
    if not isinstance(case, dict) or not set(needed) <= set(case) <= {*needed, *options}:
        came = ", ".join(map(str, case)) if isinstance(case, dict) else type(case).__name__
        raise ValueError(f"{function} takes {', '.join(needed)} and may take {', '.join(options)}; got {came}")
    x = case["x"]
    for name in (name for name in needed if name != "num_groups"):
        value = case[name]
        if not isinstance(value, np.ndarray) or value.dtype not in (np.float16, np.float32, np.float64):
            raise ValueError(f"{function}: {name} must be an array of float16, float32 or float64; got {value!r}"[:200])
        if not np.isfinite(value).all():
            raise ValueError(f"{function}: {name} must be finite")
    if not 1 <= x.size <= MOST or x.ndim < (1 if function in ("layer_norm", "lp_norm") else 2):
        raise ValueError(
            f"{function}: x must have 1 to {MOST} elements, and enough axes to normalize; got shape {x.shape}"
        )
    _CHECKS[function](x, case)
    for name in ("momentum", "eps"):
        value = case.get(name, 0.5)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise ValueError(f"{function}: {name} must be a number from 0 to 1; got {value!r}")
    return dict(case)


def _whole(function: str, case: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = case.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{function}: {name} must be a whole number from {low} to {high}; got {value!r}")
    return value


def _shapes(function: str, case: Mapping[str, Any], names: tuple[str, ...], shapes: list[tuple[int, ...]]) -> None:
    for name in names:
        if case[name].shape not in shapes:
            asked = " or ".join(map(str, shapes))
            raise ValueError(f"{function}: {name} must have shape {asked}; got {case[name].shape}")
    if len({case[name].shape for name in names}) > 1:
        raise ValueError(f"{function}: {' and '.join(names)} must have the same shape")


def _check_batch_norm(x: Any, case: Mapping[str, Any]) -> None:
    _shapes("batch_norm", case, ("s", "b", "running_mean", "running_var"), [x.shape[1:2]])
    if (case["running_var"] < 0).any():
        raise ValueError("batch_norm: running_var must not be negative")


def _check_group_norm(x: Any, case: Mapping[str, Any]) -> None:
    count = _whole("group_norm", case, "num_groups", 0, 1, x.shape[1])
    if x.shape[1] % count:
        raise ValueError(f"group_norm: num_groups={count} must divide channels={x.shape[1]}")
    _shapes("group_norm", case, ("s", "b"), list(dict.fromkeys([(count,), x.shape[1:2]])))


def _check_layer_norm(x: Any, case: Mapping[str, Any]) -> None:
    axis = _whole("layer_norm", case, "axis", -1, -x.ndim, x.ndim - 1)
    _shapes("layer_norm", case, ("s", "b"), [x.shape[axis % x.ndim :]])


def _check_lp_norm(x: Any, case: Mapping[str, Any]) -> None:
    _whole("lp_norm", case, "axis", -1, -x.ndim, x.ndim - 1)
    _whole("lp_norm", case, "p", 2, 1, 2)


_CHECKS = {
    "batch_norm": _check_batch_norm,
    "group_norm": _check_group_norm,
    "layer_norm": _check_layer_norm,
    "lp_norm": _check_lp_norm,
}


def _wide(*arrays: Any) -> list[Any]:
    return [tensor(np.asarray(array, np.float64)) for array in arrays]


def _batch_norm(
    x: Array, s: Array, b: Array, running_mean: Array, running_var: Array, momentum: float = 0.9, eps: float = 1e-5
) -> Any:
    of_mean, of_var = batch_moments(x)
    wide, s, b, mean, var = _wide(x, s, b, of_mean, of_var)
    y = F.batch_norm(wide, mean, var, s, b, training=False, eps=eps)  # in training it refuses a batch of one
    pairs = (running_mean, of_mean), (running_var, of_var)
    return (y.numpy(), *(stepped(old.astype(np.float64), new, momentum) for old, new in pairs))


def _group_norm(x: Any, s: Any, b: Any, num_groups: int, eps: float = 1e-5) -> Any:
    repeats = x.shape[1] // len(s)
    x, s, b = _wide(x, np.repeat(s, repeats), np.repeat(b, repeats))
    return F.group_norm(x, num_groups, s, b, eps).numpy()


def _layer_norm(x: Any, s: Any, b: Any, axis: int = -1, eps: float = 1e-5) -> Any:
    x, s, b = _wide(x, s, b)
    return F.layer_norm(x, x.shape[axis % x.ndim :], s, b, eps).numpy()


def _lp_norm(x: Any, p: int = 2, axis: int = -1) -> Any:
    return F.normalize(_wide(x)[0], p, axis, eps=1e-300).numpy()


_RIGHT: Mapping[str, Callable[..., Any]] = {
    "batch_norm": _batch_norm,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    "lp_norm": _lp_norm,
}
