"""Compares answers: the comparisons raise one exception, which says what was expected and what came.

`what` names the call that is compared, in a student's words: `mean of a 3x5x7 array over (0, 2)`. The message gives one
expected number, but never says how to compute this number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes

LONGEST = 400  # characters of a value that a table shows
LARGEST = 10_000  # elements of an array that is compared as Python's numbers


class Wrong(AssertionError):
    """Raised for an answer that is not the expected one."""

    def __init__(self, what: str, expected: str, got: str) -> None:
        super().__init__(f"{what}: expected {expected}, got {got}")
        self.what, self.expected, self.got = what, expected, got


def close(got: Any, expected: Any, what: str, rtol: float = 1e-9, atol: float = 1e-12, dtype: Any = None) -> None:
    """Raise Wrong unless |got - expected| <= atol + rtol |expected|, shapes are equal, and the type is `dtype`."""
    expected = np.asarray(expected)
    found = numbers(got, what, f"numbers of shape {expected.shape}")
    if found.shape != expected.shape:
        raise Wrong(what, f"shape {expected.shape}", f"shape {found.shape}")
    if dtype is not None and found.dtype != np.dtype(dtype):
        raise Wrong(what, f"numbers of type {np.dtype(dtype)}", str(found.dtype))
    wide, right = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        good = (np.abs(wide - right) <= atol + rtol * np.abs(right)) & np.isfinite(right) | (wide == right)
        good |= np.isnan(wide) & np.isnan(right)
    if not good.all():
        index = tuple(int(i) for i in np.argwhere(~good)[0])
        where = f" at {list(index)}" if index else ""
        asked = (
            f", {expected.dtype if dtype is None else np.dtype(dtype)}" if _type_matters(found, expected, dtype) else ""
        )
        more = f"; {np.count_nonzero(~good)} of {good.size} are wrong" if good.size > 1 else ""
        raise Wrong(what, f"{right[index]:.9g}{where}{asked}", f"{wide[index]:.9g} ({found.dtype}{more})")


def equal(got: Any, expected: Any, what: str) -> None:
    """Raise Wrong unless got equals expected. Arrays are compared by element, other values as a whole."""
    if isinstance(expected, np.ndarray):
        found = numbers(got, what, f"an array of shape {expected.shape}")
        if found.shape != expected.shape:
            raise Wrong(what, f"shape {expected.shape}", f"shape {found.shape}")
        if not np.array_equal(found, expected):
            index = tuple(int(i) for i in np.argwhere(found != expected)[0])
            raise Wrong(
                what, f"{expected[index]} at {list(index)} ({expected.dtype})", f"{found[index]} ({found.dtype})"
            )
    elif _plain(got) != _plain(expected) or isinstance(_plain(got), bool) != isinstance(expected, bool):
        raise Wrong(what, *_with_types(expected, got))


def at_most(got: Any, bound: float, what: str, unit: str = "") -> None:
    """Raise Wrong unless the number is at most `bound`; NaN is wrong."""
    value = float(numbers(got, what, "a number"))
    if not value <= bound:
        raise Wrong(what, f"at most {bound:.3g}{unit}", f"{value:.3g}{unit}")


def true(fact: Any, what: str, expected: str, got: str) -> None:
    """Raise Wrong unless `fact` is true. This is for checks that close, equal and at_most cannot express."""
    if not fact:
        raise Wrong(what, expected, got)


def parts(got: Any, count: int, what: str) -> tuple[Any, ...]:
    """Return the tuple of `count` results that a function should return, or raise Wrong."""
    if not isinstance(got, (tuple, list)) or len(got) != count:
        kind = f"{len(got)}" if isinstance(got, (tuple, list)) else f"one {_kind(got)}"
        raise Wrong(what, f"{count} results", kind)
    return tuple(got)


def numbers(got: Any, what: str, expected: str) -> Any:
    """Return the answer as an array of numbers, or raise Wrong."""
    if got is None or isinstance(got, (str, bytes, dict)):
        raise Wrong(what, expected, _kind(got))
    try:
        array = np.asarray(got)
    except ValueError:
        raise Wrong(what, expected, f"a {type(got).__name__} of uneven lengths") from None
    if array.dtype not in dtypes.ALL:
        raise Wrong(what, expected, f"a {_kind(got)} of {array.dtype}")
    return array


def _type_matters(found: Any, expected: Any, dtype: Any) -> bool:
    """Return whether types have to be compared.

    This is so if the check asks for a type, or if for example `found` has ints and `expected` has floats.
    """
    return dtype is not None or found.dtype.kind != expected.dtype.kind


def _with_types(expected: Any, got: Any) -> tuple[str, str]:
    """Return both values as text, with their types if the types differ: `13 (int)` and `'13' (str)`."""
    kinds = type(_plain(expected)).__name__, type(_plain(got)).__name__
    if kinds[0] == kinds[1]:
        return shown(expected), shown(got)
    came = "" if got is None else f" ({type(got).__name__})"
    return f"{shown(expected)} ({type(expected).__name__})", _kind(None) if got is None else shown(got) + came


def shown(value: Any) -> str:
    """Show a value, short enough for a table."""
    text = repr(_plain(value))
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."


def _kind(value: Any) -> str:
    return "None (is there a return?)" if value is None else type(value).__name__


def _plain(value: Any) -> Any:
    """Turn lists into tuples, and NumPy's numbers into Python's."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist() if value.size <= LARGEST else f"an array of shape {value.shape}"
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item) for item in value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
