"""What `load_state_dict` and `set_state` are given: whether it has the form of a state, before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from minorm.support.argument_errors import kind_of

MOST = 1 << 63  # an int beyond is none that anything counts


def check_form(operation: str, state: Any, like: Mapping[str, Any]) -> None:
    """ValueError where `state` has not the keys of `like`, or a value of another kind than there.

    Kinds are numbers, bools, texts, lists whose items are as the first one of `like`, dicts, and None; where `like` has
    None, a number will do as well. All else must be of the type that `like` has.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"{operation}: the state is a {kind_of(state)}; expected a dict, as state_dict() gives")
    if state.keys() != like.keys():
        raise ValueError(f"{operation}: the state has {sorted(map(str, state))}; expected {sorted(like)}")
    for name, value in state.items():
        check_kind(operation, name, value, like[name])


def check_kind(operation: str, name: str, value: Any, like: Any) -> None:
    """ValueError where `value` is of another kind than `like`, as in `check_form`."""
    if not _fits(value, like):
        raise ValueError(f"{operation}: {name} is {shown(value)}; expected {_wanted(like)}")


def check_number(operation: str, name: str, value: Any, low: float, *, whole: bool = False) -> None:
    """ValueError where `value` is not a number of at least `low`, or with `whole` not a whole one."""
    if not _is_number(value) or not value >= low or (whole and value % 1 != 0):
        raise ValueError(
            f"{operation}: {name} is {shown(value)}; expected {'an int' if whole else 'a number'} of at least {low:g}"
        )


def completed(change: Callable[[], None]) -> None:
    """Do `change`, which may be done twice, to its end: if Ctrl-C comes meanwhile, the exception is raised after it."""
    try:
        change()
    except KeyboardInterrupt:
        change()
        raise


def guarded(operation: str, change: Callable[[], None], undo: Callable[[], None]) -> None:
    """Do `change`; where it fails, `undo` it. If numbers that came with a state are why, a ValueError says so."""
    try:
        change()
    except BaseException as error:
        undo()
        if not isinstance(error, (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)):
            raise
        if str(error).startswith(operation):
            raise
        raise ValueError(f"{operation}: the state is none to go on from: {type(error).__name__}: {error}") from error


def shown(value: Any) -> str:
    """A value in a few words: itself where it is short."""
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
