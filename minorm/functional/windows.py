"""Code that convolution and pooling share. It makes a function for each number of axes, and checks windows.

An option of a window (kernel_size, stride ...) is an int within bounds for each axis. The window must fit the input.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from minorm.functional.argument_texts import AXES as WORDS
from minorm.graph import trace
from minorm.support.argument_errors import not_a_tensor
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Public = tuple[Callable[Arguments, Result], ...]
MOST = 2**31 - 1  # the largest stride, dilation or padding, from which kernels compute places in 64 bits
AXES = {1: "(N, C, L)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}


def for_each_rank(
    family: str, texts: Mapping[str, str], *formulas: str, example: int, batch: bool = True
) -> Callable[[Callable[Concatenate[int, Arguments], Result]], Public[Arguments, Result]]:
    """Make the public functions `family` + "1d", "2d" ... from one function, whose first argument is the number of
    axes.

    texts      the descriptions of the arguments; words in braces come from `argument_texts.AXES`, for each rank
    formulas   the beginnings of the docstrings for rank 1, 2 ...; the function's docstring is appended to each
    example    the length of each axis in the docstring's example
    batch      True if `batches` must turn one sample into a batch; False if the function itself accepts one sample
    """

    def make(function: Callable[Concatenate[int, Arguments], Result]) -> Public[Arguments, Result]:
        def of(rank: int, formula: str) -> Callable[Arguments, Result]:
            one: Any = functools.partial(function, rank)
            one.__name__ = one.__qualname__ = f"{family}{rank}d"
            one.__module__, one.__doc__ = function.__module__, function.__doc__ and formula
            one.__signature__, one.__wrapped__ = inspect.signature(one), function  # the place of its source
            public = batches(rank)(trace.operation(one)) if batch else trace.operation(one)
            meanings = {name: text.format_map(WORDS[rank]) for name, text in texts.items()}
            shape = "1, 1" + f", {example}" * rank
            return documented(meanings, base=function, shape=shape, words=WORDS[rank])(public)

        return tuple(of(rank, formula) for rank, formula in enumerate(formulas, start=1))

    return make


def batches(rank: int) -> Callable[[AnyCallable], AnyCallable]:
    """Decorate a traced function of x (N, C, *spatial), so that it also takes one sample (C, *spatial).

    The sample becomes a batch of one. This also happens in a trace, so no other code needs to handle single samples.
    """

    def decorate(function: AnyCallable) -> AnyCallable:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            x = args[0] if args else kwargs.get("x")
            if not isinstance(x, Tensor) or x.array.ndim != rank + 1:
                return function(*args, **kwargs)
            batch = x.unsqueeze(0)
            result = function(batch, *args[1:], **kwargs) if args else function(**{**kwargs, "x": batch})
            return tuple(part.squeeze(0) for part in result) if isinstance(result, tuple) else result.squeeze(0)

        vars(function)["public"] = run  # the function that a trace calls
        return run  # type: ignore[return-value]

    return decorate


def ints(operation: str, name: str, value: Any, rank: int, least: int = 1) -> Ints:
    """Return one int per axis. `value` is one int for all axes, or `rank` ints. For anything else, raise TypeError or
    ValueError.
    """
    if type(value) is tuple and len(value) == rank:  # the form in which layers pass it
        for n in value:
            if type(n) is not int or not least <= n <= MOST:
                break
        else:
            return value
    if type(value) is int:
        result: Ints = (value,) * rank
    elif _is_int(value):
        result = (int(value),) * rank
    elif isinstance(value, (tuple, list)) and len(value) in (1, rank) and all(map(_is_int, value)):
        result = tuple(map(int, value)) * (rank if len(value) == 1 else 1)
    else:
        raise TypeError(f"{operation}: {name} is {value!r}; expected an int{_or_tuple(rank)}")
    if min(result) < least:
        raise ValueError(f"{operation}: {name} is {value!r}; expected {name} >= {least} along every axis")
    check_most(operation, name, value, max(result))
    return result


def pairs(operation: str, name: str, value: Any, rank: int) -> Pairs:
    """Return `value` as a (low, high) pair per axis. `value` is one int, or an int per axis for both sides, or a pair
    per axis.
    """
    if type(value) is int and 0 <= value <= MOST:
        return ((value, value),) * rank
    kinds = (tuple, list)
    if isinstance(value, kinds) and value and isinstance(value[0], kinds) and all(isinstance(v, kinds) for v in value):
        if len(value) != rank or not all(len(pair) == 2 and all(map(_is_int, pair)) for pair in value):
            raise TypeError(f"{operation}: {name} is {value!r}; expected {rank} pairs (low, high) of ints")
        result = tuple((int(low), int(high)) for low, high in value)
        if min(map(min, result)) < 0:
            raise ValueError(f"{operation}: {name} is {value!r}; expected {name} >= 0 on every side")
        check_most(operation, name, value, max(map(max, result)))
        return result
    return tuple([(n, n) for n in ints(operation, name, value, rank, least=0)])


def check_rank(operation: str, name: str, x: Any, rank: int) -> None:
    """Raise an error unless `x` is a Tensor (N, C, *spatial) with `rank` spatial axes."""
    if not isinstance(x, Tensor):
        raise not_a_tensor(operation, name, x)
    if x.array.ndim != rank + 2:
        raise ValueError(
            f"{operation}: {name} has {x.array.ndim} dimensions; expected {rank + 2}, {AXES[rank]}; "
            f"{name}.shape is {x.shape}"
        )


def channels_elsewhere(x: Ints, channels: Any) -> str:
    """Return a hint on where the channels seem to be and how to move their axis; return "" if the shape gives no hint.

    x is a shape (N, C, *spatial); N is 1 if the caller passed one sample without the first axis.
    """
    axis = 1 - len(x)
    if len(x) > 2 and x[-1] == channels != x[1]:
        return f"; the channels seem to be last: x.movedim(-1, {axis}) puts them first"
    if channels == x[0] == 1:
        return "; images (N, H, W) need an axis of channels: x.unsqueeze(1)" if len(x) == 4 else ""
    return ""


def check_fit(operation: str, size: Ints, kernel: Ints, padding: Pairs, dilation: Ints) -> None:
    """Raise ValueError if the window is larger than the padded input."""
    for n, k, (low, high), d in zip(size, kernel, padding, dilation, strict=True):
        if d * (k - 1) + 1 > n + low + high:
            span = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
            padded = tuple(n + low + high for n, (low, high) in zip(size, padding, strict=True))
            raise ValueError(
                f"{operation}: the kernel is larger than the padded input: the kernel spans {span}, and the input "
                f"with padding {padding} spans {padded}; expected a kernel that fits into the padded input; use a "
                "smaller kernel or more padding"
            )


def check_most(operation: str, name: str, value: Any, largest: int) -> None:
    """Raise ValueError if `largest`, the largest number in `value`, is above the limit of the kernels."""
    if largest > MOST:
        raise ValueError(f"{operation}: {name} is {value!r}; expected at most {MOST}")


def _is_int(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, (bool, Tensor))


def _or_tuple(rank: int) -> str:
    return " or a tuple of 1 int" if rank == 1 else f" or a tuple of {rank} ints"
