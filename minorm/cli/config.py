"""`--config FILE.toml` reads long options from a file, such as `batch-size = 32`. The command line overrides them."""

from __future__ import annotations

import argparse
import difflib
import tomllib
from typing import Any

from minorm.cli.terminal.one_line_errors import UsageError
from minorm.serialization import opening

NOT_IN_A_FILE = ("help", "config", "resume", "other-images", "trust", "traceback")


def read(path: str, parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Read option values from the TOML file at `path`.

    Return a dict whose keys are the attribute names that `parser` uses. For an unknown key or a wrong value, raise
    UsageError, which names the file.
    """
    with opening.regular(path, "config") as file:
        try:
            given = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"{path} is no TOML file: {error}") from error
    known = {
        option.removeprefix("--"): action
        for action in parser._actions  # argparse has no public list of the declared options
        for option in action.option_strings
        if option.startswith("--")
    }
    known = {name: action for name, action in known.items() if name not in NOT_IN_A_FILE}
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key.replace("_", "-"), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}"
            raise UsageError(f"{path}: there is no option {key!r}; {hint}")
    return {known[key].dest: _value(path, key, value, known[key]) for key, value in given.items()}


def _value(path: str, key: str, value: Any, action: argparse.Action) -> Any:
    """Convert `value`, which the file gives for the option `key`, as if it had come from the command line."""
    if action.nargs == 0:  # a switch
        if not isinstance(value, bool):
            raise UsageError(f"{path}: {key} is {value!r}; expected true or false")
        return value
    kind = action.type if callable(action.type) else str
    expected = f"one of {', '.join(action.choices)}" if action.choices else f"{_article(kind)}"
    try:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError
        found = kind(value if kind is str and isinstance(value, str) else str(value))
    except (ValueError, TypeError):
        raise UsageError(f"{path}: {key} is {value!r}; expected {expected}") from None
    if action.choices and found not in action.choices:
        raise UsageError(f"{path}: {key} is {value!r}; expected {expected}")
    return found


def _article(kind: Any) -> str:
    return {"int": "a whole number", "float": "a number", "str": "a text"}.get(getattr(kind, "__name__", ""), "a value")
