"""Switches the recording of the graph on and off, in a block or permanently. Each thread has a separate setting.

with no_grad(): ...             @no_grad()  or  @no_grad  on a function
set_grad_enabled(False)         permanently; as a `with` statement, until the block ends
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
    """Return False inside `no_grad`, True otherwise; each thread has a separate setting."""
    return mode.recording


class _Within(minorm_ext.Switch, Block):  # type: ignore[misc]  # compiled: its type is not known
    """Sets the mode for a block or a function. Blocks with the same object may be nested."""

    def __init__(self, recording: bool, begun: bool = False) -> None:
        super().__init__(mode, {"recording": recording}, begun)
        self.recording = recording

    def _recreate_cm(self) -> _Within:
        return _Within(self.recording)  # several threads may run the decorated function at the same time


@documented({}, function="the function to decorate, as in `@no_grad`; None for `with no_grad():` and `@no_grad()`")
@checked
def no_grad(function: AnyCallable | None = None) -> Any:
    """Stop recording the graph inside the block: results do not require grad. Also works as a decorator.

    Example:
        >>> x = mn.ones(2, requires_grad=True)
        >>> with mn.no_grad():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """
    return _Within(False) if function is None else _Within(False)(function)


@documented({}, function="the function to decorate, as in `@enable_grad`; None for `with enable_grad():`")
@checked
def enable_grad(function: AnyCallable | None = None) -> Any:
    """Record the graph inside the block, even within `no_grad`.

    Example:
        >>> x = mn.ones(2, requires_grad=True)
        >>> with mn.no_grad(), mn.enable_grad():
        ...     y = x * 2
        >>> y.requires_grad
        True
    """
    return _Within(True) if function is None else _Within(True)(function)


@documented({}, mode="True records nothing, False records as usual; or the function to decorate")
@checked
def inference_mode(mode: Any = True) -> Any:
    """Do the same as `no_grad()`: stop recording the graph inside the block.

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
    """Switch recording on or off permanently, or, as `with set_grad_enabled(training):`, until the block ends.

    Example:
        >>> with mn.set_grad_enabled(False):
        ...     mn.is_grad_enabled()
        False
    """

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode), begun=True)  # the call begins the mode, and the first `with` ends it

    def __call__(self, function: AnyCallable) -> AnyCallable:
        """Decorate a function, so that the mode holds only while the function runs."""
        self.__exit__()
        return super().__call__(function)
