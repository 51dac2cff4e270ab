"""Whether operations leave a graph behind: each thread's own answer, changed for a while or from here on.

with no_grad(): ...             @no_grad()  or  @no_grad  on a function
set_grad_enabled(False)         from here on; as a `with` it ends there
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import minorm_ext
from minorm.support.argument_errors import checked
from minorm.support.decorating import Block
from minorm.support.documented import documented

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])


class _Mode(threading.local):
    recording = True


mode = _Mode()


def is_grad_enabled() -> bool:
    """False inside `no_grad`, True otherwise; each thread has its own answer."""
    return mode.recording


class _Within(minorm_ext.Switch, Block):  # type: ignore[misc]  # compiled: its type is not known
    """A mode for a block or a function; one object may be entered again while it is open."""

    def __init__(self, recording: bool, begun: bool = False) -> None:
        super().__init__(mode, {"recording": recording}, begun)
        self.recording = recording

    def _recreate_cm(self) -> _Within:
        return _Within(self.recording)  # threads may run the decorated function at once


@documented({}, function="what is decorated, as in `@no_grad`; None for `with no_grad():` and `@no_grad()`")
@checked
def no_grad(function: AnyCallable | None = None) -> Any:
    """Inside, operations leave no graph behind: results do not require grad. Works as a decorator too.

    Example:
        >>> x = mn.ones(2, requires_grad=True)
        >>> with mn.no_grad():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """
    return _Within(False) if function is None else _Within(False)(function)


@documented({}, function="what is decorated, as in `@enable_grad`; None for `with enable_grad():`")
@checked
def enable_grad(function: AnyCallable | None = None) -> Any:
    """Inside, operations leave a graph behind again, also within `no_grad`.

    Example:
        >>> x = mn.ones(2, requires_grad=True)
        >>> with mn.no_grad(), mn.enable_grad():
        ...     y = x * 2
        >>> y.requires_grad
        True
    """
    return _Within(True) if function is None else _Within(True)(function)


@documented({}, mode="True records nothing, False records as usual; or what is decorated")
@checked
def inference_mode(mode: Any = True) -> Any:
    """`no_grad()` by its other name: inside, operations leave no graph behind.

    Example:
        >>> x = mn.ones(2, requires_grad=True)
        >>> with mn.inference_mode():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """
    return _Within(False)(mode) if callable(mode) else _Within(not mode)


@documented({}, mode="True records, False does not")
class set_grad_enabled(_Within):  # noqa: N801  PyTorch's name
    """Record from here on, or no longer; `with set_grad_enabled(training):` ends with the block.

    Example:
        >>> with mn.set_grad_enabled(False):
        ...     mn.is_grad_enabled()
        False
    """

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode), begun=True)  # what the call itself begins, the first `with` ends

    def __call__(self, function: AnyCallable) -> AnyCallable:
        """As a decorator it holds inside the function alone."""
        self.__exit__()
        return super().__call__(function)
