"""Check the arguments of transforms. An error names the transform, the argument, its value and what is expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.data.dataset import Array

TINY = float(np.finfo(np.float64).tiny)


def is_int(value: Any) -> bool:
    """Return whether a value is a whole number, and not a bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, (int, float, np.integer, np.floating)) and bool(np.isfinite(value))


def whole(name: str, argument: str, value: Any, least: int) -> int:
    """Return `value` as an int; raise ValueError unless it is a whole number of at least `least`."""
    if not is_int(value) or value < least:
        raise ValueError(f"{name}: {argument}={value!r}; expected an int of at least {least}")
    return int(value)


def check_probability(name: str, p: Any) -> float:
    """Return p as a float; raise ValueError unless it is from 0 to 1."""
    return share(name, "p", p, "a probability")


def share(name: str, argument: str, value: Any, kind: str = "a number") -> float:
    """Return `value` as a float; raise ValueError unless it is a number from 0 to 1."""
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{name}: {argument}={value!r}; expected {kind} from 0 to 1")
    return float(value)


def pair(name: str, argument: str, value: Any, least: int) -> tuple[int, int]:
    """Return `value` as two ints (vertical, horizontal). If it is one int, return this int twice."""
    both = (value, value) if is_int(value) else _listed(value)
    if len(both) != 2 or not all(is_int(item) and item >= least for item in both):
        raise ValueError(f"{name}: {argument}={value!r}; expected an int of at least {least}, or two of them")
    return int(both[0]), int(both[1])


def interval(name: str, argument: str, value: Any, low: float = -np.inf, high: float = np.inf) -> tuple[float, float]:
    """Return `value` as two floats a and b; raise ValueError unless they are finite and low <= a <= b <= high."""
    both = _listed(value)
    if len(both) != 2 or not all(map(is_number, both)) or not low <= both[0] <= both[1] <= high:
        above, below = ("<=" if np.isfinite(end) else "<" for end in (low, high))
        raise ValueError(f"{name}: {argument}={value!r}; expected two numbers, {low:g} {above} first <= second "
                         f"{below} {high:g}")  # fmt: skip
    return float(both[0]), float(both[1])


def around(name: str, argument: str, value: Any, middle: float = 0, low: float = -np.inf) -> tuple[float, float]:
    """Return `value` as a pair of floats.

    If `value` is one number d, return (middle - d, middle + d), but no number below `low`.
    """
    if not is_number(value):
        return interval(name, argument, value, low)
    if value < 0:
        raise ValueError(f"{name}: {argument}={value!r}; expected at least 0, or two numbers")
    return max(low, float(middle - value)), float(middle + value)


def point(name: str, argument: str, value: Any) -> tuple[float, float] | None:
    """Return (x, y) as floats; return None if the value is None."""
    if value is None:
        return None
    both = _listed(value)
    if len(both) != 2 or not all(map(is_number, both)):
        raise ValueError(f"{name}: {argument}={value!r}; expected two finite numbers (x, y), or None")
    return float(both[0]), float(both[1])


def one_number(name: str, argument: str, value: Any) -> Any:
    """Check that the value is a number, and return it. NaN and infinity are numbers too."""
    if not isinstance(value, (int, float, np.number, np.bool_)) or np.iscomplexobj(value):
        raise ValueError(f"{name}: {argument}={value!r}; expected a number")
    return value


def by_channel(name: str, argument: str, value: Any, others: str = "") -> Array:
    """Return `value` as a float64 array of one number, or of a number for each channel. It may be a Tensor.

    others  the end of an error message, which names further values that are accepted
    """
    try:
        found = np.asarray(value, np.float64).reshape(-1)
    except (TypeError, ValueError):
        found = np.empty(0)
    if not found.size or isinstance(value, (str, bytes)) or value is None:
        raise ValueError(f"{name}: {argument}={value!r}; expected a number, or one for each channel{others}")
    return found


def check_channels(name: str, argument: str, values: Array, images: Array) -> None:
    """Raise ValueError unless `values` has one number, or a number for each channel of the images."""
    if len(values) not in (1, images.shape[1]):
        raise ValueError(f"{name}: {argument} has {len(values)} numbers and the images have shape {images.shape}; "
                         f"expected 1 or {images.shape[1]}, one for each channel")  # fmt: skip


def check_fits(name: str, argument: str, values: Any, images: Array) -> None:
    """Raise ValueError if the images are integers and their type cannot hold all numbers in `values`."""
    if images.dtype.kind not in "iu":
        return
    limits, numbers = np.iinfo(images.dtype), np.asarray(values)
    with np.errstate(invalid="ignore"):
        fits = (numbers >= limits.min) & (numbers <= limits.max) & (numbers == np.trunc(numbers))
    if not fits.all():
        shown = numbers.item() if numbers.size == 1 else numbers.ravel().tolist()
        raise ValueError(f"{name}: {argument}={shown} and images of {images.dtype}; expected whole numbers from "
                         f"{limits.min} to {limits.max}")  # fmt: skip


def functions(name: str, value: Any) -> list[Any]:
    """Return transforms as a list; raise TypeError for anything but functions of images."""
    if not isinstance(value, Sequence) and not hasattr(value, "__iter__"):
        raise TypeError(f"{name}: transforms is {type(value).__name__}; expected a list of functions of images")
    found = list(value)
    for place, transform in enumerate(found):
        if not callable(transform):
            raise TypeError(f"{name}: transforms[{place}] is {transform!r}; expected a function of images")
    return found


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes)) else ()
