"""A public name that goes warns for at least one release, and says what to write instead.

    @deprecated("F.batch_norm", since="0.2", gone="0.3")      a function or a method
    def batch_normalization(...): ...

    __getattr__ = renamed(__name__, {"BatchNorm": "BatchNorm2d"}, since="0.2", gone="0.3", get=__getattr__)

CONTRIBUTING.md has the policy, under "Change a public name". GOING lists what is on its way, for the tests: they fail
when the version reaches `gone` and the name is still there.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from minorm.support.argument_errors import outside

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])


class Going(NamedTuple):
    """A name that goes: `since` is the first release that warns, `gone` the first without it."""

    name: str
    instead: str
    since: str
    gone: str

    def warn(self) -> None:
        """A DeprecationWarning at the line of the user's that has the name."""
        text = f"{self.name} is deprecated since minorm {self.since} and goes in {self.gone}; use {self.instead}"
        warnings.warn(text, DeprecationWarning, stacklevel=outside())


GOING: list[Going] = []


def version(text: str) -> tuple[int, int]:
    """(0, 2) of "0.2" and of "0.2.1": the release that a version is of."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def deprecated(instead: str, *, since: str, gone: str) -> Callable[[AnyCallable], AnyCallable]:
    """Decorate a function or a method so that each call warns and does what it did."""

    def mark(function: AnyCallable) -> AnyCallable:
        going = _going(f"{function.__module__}.{function.__qualname__}", instead, since, gone)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            going.warn()
            return function(*args, **kwargs)

        return run  # type: ignore[return-value]

    return mark


def renamed(
    package: str, names: Mapping[str, str], *, since: str, gone: str, get: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562) whose old names are the new ones with a warning; `get` knows others."""
    going = {old: _going(f"{package}.{old}", f"{package}.{new}", since, gone) for old, new in names.items()}

    def find(name: str) -> Any:
        if name in going:
            going[name].warn()
            return getattr(sys.modules[package], names[name])
        if get is not None:
            return get(name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])

    return find


def _going(name: str, instead: str, since: str, gone: str) -> Going:
    if version(gone) <= version(since):
        raise ValueError(
            f"{name}: gone={gone!r} is not after since={since!r}; expected at least one release that warns"
        )
    found = Going(name, instead, since, gone)
    GOING.append(found)
    return found
