"""Records the operations that run while a trace is open, as a tree of calls.

A model is Python code, so the only way to learn its operations is to run it and record them. `minorm.onnx.export` opens
a trace, runs the model once and then walks the tree. It writes the calls for which it has a rule (such as
`F.batch_norm`); for all others it walks on to the calls inside them (`Mul`, `Add`).

    with trace.record() as calls:
        y = model(x)
    # calls: list of Call, in execution order, each with its own children

If no trace is open, recording costs an operation only one attribute look-up.
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

    target     the called function of minorm.functional, or an autograd.Function class
    arguments  its arguments by name, defaults included
    result     the Tensor, or the tuple of Tensors, that it returned
    children   the calls that this call made, in order; empty for an autograd.Function
    changed    True if the call changed an earlier Tensor in place and returned this Tensor, which now has the new value
    """

    target: Any
    arguments: dict[str, Any]
    result: Any = None
    children: list[Call] = field(default_factory=list)
    changed: bool = False


class Interceptor(Protocol):
    """Gets every outermost operation that runs inside `intercepted`, and decides the operation's result."""

    def call(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Return the result of a public function; this method is called instead of `function(**arguments)`."""

    def applied(self, function: type, arguments: dict[str, Any], result: Any) -> Any:
        """Return the result to use for an autograd Function that ran outside a public function, as in x + y. The
        Function itself computed `result`.
        """

    def changed(self, tensor: Any) -> None:
        """Take note that the last operation changed `tensor` in place (x += y): `tensor` is the result."""


class _Unread(list[Any]):
    """The list of calls of a trace that only serves an interceptor; the list keeps only the last call."""

    def append(self, call: Any) -> None:
        self[:] = [call]


class _State(threading.local):
    calls: list[Call] | None = None  # the list that gets the next call; None outside a trace
    cast: Callable[[type, tuple[Any, ...]], tuple[Any, ...]] | None = None  # set by amp inside autocast
    cast_types: dict[str, Any] = {}  # noqa: RUF012  set by amp: the type by the kind of device; replaced, never changed
    originals: dict[int, tuple[Any, Any]] = {}  # noqa: RUF012  id -> (array changed in place, old contents)
    interceptor: Interceptor | None = None  # read only inside a trace


state = _State()


@contextmanager
def record() -> Iterator[list[Call]]:
    """Open a trace in this thread; yield the list that collects the outermost calls."""
    calls: list[Call] = []
    # A trace records the model without the casts of autocast.
    with minorm_ext.Switch(state, {"calls": calls, "originals": {}, "cast": None}):
        yield calls


@contextmanager
def intercepted(interceptor: Interceptor | None) -> Iterator[None]:
    """Pass each operation inside the block to the interceptor; if the argument is None, there is no interceptor.

    Operations run one by one, as in every trace. Operations that the interceptor itself calls are not passed to it.
    """
    calls = _Unread() if state.calls is None else state.calls
    with minorm_ext.Switch(state, {"calls": calls, "interceptor": interceptor}):
        yield


def called(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call `function` with arguments by name, as an interceptor gets the arguments.

    The values for *args and **kwargs are unpacked.
    """
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
    """Switch autocast off inside the block."""
    before, state.cast = state.cast, None
    try:
        yield
    finally:
        state.cast = before


def remember(array: Any) -> None:
    """Keep a copy of an array that will be changed in place, unless the trace already has a copy of this array."""
    if id(array) not in state.originals:
        state.originals[id(array)] = array, array.copy()


def changed(tensor: Any) -> None:
    """Record that the last call changed `tensor` in place, so `tensor` is its result."""
    if state.calls is not None:
        state.calls[-1].result, state.calls[-1].changed = tensor, True
        if state.interceptor is not None:
            state.interceptor.changed(tensor)


def _blame(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise a clearer error than the error of the failed call, if the arguments explain it."""
    name = function.__name__
    error = wrong_call(name, function, args, kwargs)
    error = error or foreign_argument(name, named_arguments(function, args, kwargs))
    if error:
        raise error from None
    check_devices(name, function, args, kwargs)


def operation(function: AnyCallable, followed: Callable[..., Any] | None = None) -> AnyCallable:
    """Decorate a public function so that a trace records it as one call with children.

    If the first parameter is called x, PyTorch's name `input` works too. If a call has the keyword argument
    `activation` or `residual`, `followed` runs instead of the function.
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
        for name in ("inplace", "activation", "residual"):  # results are always new; the activation is a separate call
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
