"""Checks, before anything changes, that arguments of `load_state_dict` and `set_state` have the form of a state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from minorm.support.argument_errors import kind_of

MOST = 1 << 63  # no counter reaches an int this large


def check_form(operation: str, state: Any, like: Mapping[str, Any]) -> None:
    """Raise ValueError if the keys of `state` and `like` differ, or a value is of another kind.

    Kinds are numbers, bools, texts, lists, dicts and None. The items of a list must be of the same kind as the first
    item of the list in `like`. If `like` has None, a number is accepted too. Any other value must have the same type as
    in `like`.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"{operation}: the state is a {kind_of(state)}; expected a dict, as state_dict() gives")
    if state.keys() != like.keys():
        raise ValueError(f"{operation}: the state has {sorted(map(str, state))}; expected {sorted(like)}")
    for name, value in state.items():
        check_kind(operation, name, value, like[name])


def check_kind(operation: str, name: str, value: Any, like: Any) -> None:
    """Raise ValueError if `value` is of another kind than `like`; `check_form` lists the kinds."""
    if not _fits(value, like):
        raise ValueError(f"{operation}: {name} is {shown(value)}; expected {_wanted(like)}")


def check_number(operation: str, name: str, value: Any, low: float, *, whole: bool = False) -> None:
    """Raise ValueError unless `value` is a number of at least `low`, and a whole number if `whole` is True."""
    if not _is_number(value) or not value >= low or (whole and value % 1 != 0):
        raise ValueError(
            f"{operation}: {name} is {shown(value)}; expected {'an int' if whole else 'a number'} of at least {low:g}"
        )


def completed(change: Callable[[], None]) -> None:
    """Call `change`; if Ctrl-C interrupts the call, call `change` again to complete it, and raise KeyboardInterrupt."""
    try:
        change()
    except KeyboardInterrupt:
        change()
        raise


def guarded(operation: str, change: Callable[[], None], undo: Callable[[], None]) -> None:
    """Call `change`; if it raises an error, call `undo`, and raise an error.

    This is a ValueError if the values in the state may be the cause, and otherwise the original error.
    """
    try:
        change()
    except BaseException as error:
        undo()
        if not isinstance(error, (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)):
            raise
        if str(error).startswith(operation):
            raise
        raise ValueError(
            f"{operation}: training cannot go on from this state: {type(error).__name__}: {error}"
        ) from error


def shown(value: Any) -> str:
    """Return a short text for a value: its repr, cut if it is long, or its type."""
    if isinstance(value, (bool, float, str, type(None))) or (isinstance(value, int) and abs(value) < MOST):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:37]}..."
    return f"a {kind_of(value)}"


def _is_number(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Real) and (value != value or not _is_huge(value))


def _is_huge(value: Any) -> bool:
    return isinstance(value, int) and abs(value) >= MOST


def _fits(value: Any, like: Any) -> bool:
    if type(like) is bool:
        return isinstance(value, bool)
    if isinstance(like, Real):
        return _is_number(value)
    if like is None:
        return value is None or _is_number(value)
    if isinstance(like, (list, tuple)):
        return isinstance(value, (list, tuple)) and (not like or all(_fits(item, like[0]) for item in value))
    if isinstance(like, Mapping):
        return isinstance(value, Mapping)
    return isinstance(value, str) if isinstance(like, str) else callable(value) or type(value) is type(like)


def _wanted(like: Any) -> str:
    if type(like) is bool:
        return "a bool"
    if isinstance(like, Real):
        return "a number"
    if like is None:
        return "None or a number"
    if isinstance(like, (list, tuple)):
        return "a list of numbers" if like and isinstance(like[0], Real) else "a list as state_dict() gives"
    return "a dict" if isinstance(like, Mapping) else f"a {kind_of(like)}"
