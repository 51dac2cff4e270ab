"""Recording: while a trace is open, every operation that runs is written down as a tree of calls.

A model is Python, so the only way to know what it computes is to run it and watch. `minorm.onnx.export`
opens a trace, runs the model once and then walks the tree: where it knows how to write a call
(`F.batch_norm`) it does, and where it does not it descends into the calls made inside (`Mul`, `Add`).

    with trace.record() as calls:
        y = model(x)
    # calls: list of Call, in execution order, each with its own children

Outside a trace an operation pays one attribute look-up.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import minorm_ext
from minorm.devices import REFUSALS, check_devices
from minorm.support.argument_errors import foreign_argument, named_arguments, signature_of, unbound, wrong_call

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])


@dataclass
class Call:
    """One operation that ran.

    target     what was called: a function of minorm.functional, or an autograd.Function class
    arguments  its arguments by name, defaults included
    result     the Tensor, or the tuple of Tensors, that it returned
    children   the calls it made itself, in order; empty for an autograd.Function
    changed    whether the result is a Tensor from before, changed in place: from here on it stands for the new value
    """

    target: Any
    arguments: dict[str, Any]
    result: Any = None
    children: list[Call] = field(default_factory=list)
    changed: bool = False


class Interceptor(Protocol):
    """Sees every outermost operation while `intercepted` is open, and says what it returns."""

    def call(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Is called in the place of `function(**arguments)`, a public function."""

    def applied(self, function: type, arguments: dict[str, Any], result: Any) -> Any:
        """Returns what takes the place of `result`, where an autograd Function was applied by itself (x + y)."""

    def changed(self, tensor: Any) -> None:
        """Is told that the last operation changed `tensor` in place (x += y): that is its result."""


class _Unread(list[Any]):
    """The calls of a trace that is open only for its interceptor: the last one is kept."""

    def append(self, call: Any) -> None:
        self[:] = [call]


class _State(threading.local):
    calls: list[Call] | None = None  # where the next call is written, None outside a trace
    cast: Callable[[type, tuple[Any, ...]], tuple[Any, ...]] | None = None  # amp's, where an autocast is open
    cast_types: dict[str, Any] = {}  # noqa: RUF012  amp's too: the type by the kind of device; replaced, never changed
    originals: dict[int, tuple[Any, Any]] = {}  # noqa: RUF012  by id: arrays changed in place, what they held before
    interceptor: Interceptor | None = None  # looked for inside a trace alone


state = _State()


@contextmanager
def record() -> Iterator[list[Call]]:
    """Open a trace in this thread; yields the list that the outermost calls are appended to."""
    calls: list[Call] = []
    # What is written down is the model, not how it was run: no cast.
    with minorm_ext.Switch(state, {"calls": calls, "originals": {}, "cast": None}):
        yield calls


@contextmanager
def intercepted(interceptor: Interceptor | None) -> Iterator[None]:
    """Inside, the interceptor stands between the model and its operations; None takes it away.

    Operations run one by one, as in every trace. What the interceptor itself calls it does not see again.
    """
    calls = _Unread() if state.calls is None else state.calls
    with minorm_ext.Switch(state, {"calls": calls, "interceptor": interceptor}):
        yield


def called(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """`function` with the arguments that an interceptor got, by name."""
    positional: list[Any] = []
    named = dict(arguments)
    for name, parameter in signature_of(function).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional += named.pop(name, ())
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named |= named.pop(name, {})
    return function(*positional, **named)


@contextmanager
def no_casts() -> Iterator[None]:
    """Inside, an autocast leaves the types of operations alone."""
    before, state.cast = state.cast, None
    try:
        yield
    finally:
        state.cast = before


def remember(array: Any) -> None:
    """Keep what an array holds before it is changed in place for the first time."""
    if id(array) not in state.originals:
        state.originals[id(array)] = array, array.copy()


def changed(tensor: Any) -> None:
    """Say that the last call changed `tensor` in place: that is its result."""
    if state.calls is not None:
        state.calls[-1].result, state.calls[-1].changed = tensor, True
        if state.interceptor is not None:
            state.interceptor.changed(tensor)


def _blame(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise what says more than the error of a call that failed; return where that error says it all."""
    name = function.__name__
    error = wrong_call(name, function, args, kwargs)
    error = error or foreign_argument(name, named_arguments(function, args, kwargs))
    if error:
        raise error from None
    check_devices(name, function, args, kwargs)


def operation(function: AnyCallable, followed: Callable[..., Any] | None = None) -> AnyCallable:
    """Decorate a public function so that a trace shows it as one call with children.

    Where the first argument is called x, PyTorch's name for it, `input`, is taken too. followed: what is called in its
    place where an `activation` or a `residual` follows, both of which are passed by name.
    """
    whole, given = unbound(function)
    renamed = whole.__code__.co_varnames[given : given + 1] == ("x",)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if renamed and "input" in kwargs and not args:
            kwargs["x"] = kwargs.pop("input")
        if followed and (kwargs.get("activation") is not None or kwargs.get("residual") is not None):
            return followed(*args, **kwargs)
        calls = state.calls
        if calls is None:
            try:
                return function(*args, **kwargs)
            except REFUSALS:
                _blame(function, args, kwargs)
                raise
        if error := wrong_call(function.__name__, function, args, kwargs):
            raise error
        arguments = named_arguments(function, args, kwargs)
        for name in ("inplace", "activation", "residual"):  # results are new tensors, and what follows has its own call
            arguments.pop(name, None)
        if (interceptor := state.interceptor) is not None:
            with intercepted(None):
                return interceptor.call(getattr(run, "public", run), arguments)
        call = Call(getattr(run, "public", run), arguments)
        calls.append(call)
        state.calls = call.children
        try:
            call.result = function(*args, **kwargs)
        finally:
            state.calls = calls
        return call.result

    return run  # type: ignore[return-value]
