"""Deprecates public names: an old name warns for at least one release, and the warning gives the new name.

    @deprecated("F.batch_norm", since="0.2", gone="0.3")      a function or a method
    def batch_normalization(...): ...

    __getattr__ = renamed(__name__, {"BatchNorm": "BatchNorm2d"}, since="0.2", gone="0.3", get=__getattr__)

CONTRIBUTING.md has the policy, under "Change a public name". GOING lists the deprecated names for the tests. The tests
fail if a name still exists when the version reaches the name's `gone`.
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
    """A deprecated name: `since` is the first release that warns, and `gone` is the first release without the name."""

    name: str
    instead: str
    since: str
    gone: str

    def warn(self) -> None:
        """Issue a DeprecationWarning that points to the line of the user's code with the name."""
        text = (
            f"{self.name} is deprecated since minorm {self.since} and will be removed in {self.gone}; use "
            f"{self.instead}"
        )
        warnings.warn(text, DeprecationWarning, stacklevel=outside())


GOING: list[Going] = []


def version(text: str) -> tuple[int, int]:
    """Return (major, minor) of a version, such as (0, 2) for "0.2" and "0.2.1"."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def deprecated(instead: str, *, since: str, gone: str) -> Callable[[AnyCallable], AnyCallable]:
    """Decorate a function or a method so that each call warns, and then works as before."""

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
    """Return a package's `__getattr__` (PEP 562), which gives a warning and the new object for each old name.

    `get` finds all other names.
    """
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
