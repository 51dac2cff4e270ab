"""Choose the lengths at which we trace a model, so that we can follow every free axis through the model.

Several strides in a row turn both 8 and 16 into 1, and half of an even length is the same whether it is rounded up or
down. So we also run the model at three other lengths of a free height, for example. The first differs by more than a
stride. The second stays odd when it is halved and rounded up (32 k + 1). The third stays odd when it is halved and
rounded down (32 k - 1). If the model refuses a length, we try another length. If the model accepts no odd length,
nothing has to be rounded.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minorm.graph.trace import Call
from minorm.onnx.exporting.example_inputs import Inputs
from minorm.onnx.exporting.runs import Run, tensors_of
from minorm.onnx.graph.errors import ExportError, Unstable
from minorm.tensor.tensor import Tensor

# Errors that a model raises at a size that it does not take.
REFUSALS = (ValueError, TypeError, LookupError, RuntimeError, ArithmeticError, AssertionError)
STEP = 64  # lengths that differ by half of this still differ after a total stride of 32
FARTHER = 512  # added to lengths if strides still make them equal
LARGEST = 1 << 24  # the most elements of an input at another length; twice the example's number is always allowed


def runs_of(inputs: Inputs, run: Callable[[tuple[Any, ...]], Run]) -> tuple[Inputs, list[Run]]:
    """Run the example, also with other lengths of each free axis; return inputs with these lengths, and the runs."""
    base = run(inputs.args)
    runs, others = [base], []
    for symbol in range(len(inputs.symbols.names)):
        found = dict(_others(inputs, symbol, base, run))
        others.append(tuple(found))
        runs += found.values()
    symbols = dataclasses.replace(inputs.symbols, others=tuple(others))
    return dataclasses.replace(inputs, symbols=symbols), runs


def _others(inputs: Inputs, symbol: int, base: Run, run: Callable[[tuple[Any, ...]], Run]) -> Iterator[tuple[int, Run]]:
    """Yield (length, run) for other lengths of one axis, if the model accepts the length."""
    refused: list[tuple[int, str]] = []
    name, length = inputs.symbols.names[symbol], inputs.symbols.base[symbol]
    taken = {length}

    def attempt(lengths: Sequence[int]) -> tuple[int, Run] | None:
        for n in dict.fromkeys(lengths):
            if n < 1 or n in taken or not _fits(inputs, symbol, n):
                continue
            try:
                found = n, run(inputs.resized({symbol: n}))
                taken.add(n)
                return found
            except ExportError:
                raise
            except REFUSALS as error:
                refused.append((n, str(error)))
        return None

    if symbol in inputs.leading:
        first = attempt((length + 2, 2 * length))
    else:
        above = -(-(length + STEP // 2) // STEP) * STEP
        first = attempt((above, 2 * length, length + 32, length // 2, length - 1))
        if first is not None and (lost := _merged(base.calls, first[1].calls)):
            far = attempt((above + FARTHER,))
            first = far if far is not None and _merged(base.calls, far[1].calls) < lost else first
    if first is None:
        tried = ", ".join(str(n) for n, _ in refused)
        reason = f": {refused[0][1]}" if refused else ""
        raise Unstable(f"the model runs only with length {length} of the axis {name!r}; tried with {tried}{reason}")
    yield first
    for rest in () if symbol in inputs.leading else (1, -1):
        odd = attempt(_odd(length, rest))
        if odd is None:
            return
        yield odd


def _odd(length: int, rest: int) -> list[int]:
    """Return lengths to try.

    The first is a number 32 k + rest near `length` without a factor 3, 5 or 7, if there is one. The last is an odd
    number below `length`.
    """
    k = max(2, length // 32)
    around = [32 * (k + i) + rest for i in (0, 1, 2, 3)]
    usable = [n for n in around if math.gcd(n, 105) == 1 and n != length]
    return [*usable[:1], length - 1 - length % 2 if rest == 1 else length - 3 - length % 2]


def _fits(inputs: Inputs, symbol: int, length: int) -> bool:
    now = sum(tensor.numel() for tensor in inputs.tensors)
    axes = [sum(own == symbol for own in axes.values()) for axes in inputs.axes]
    ratio = length / max(1, inputs.symbols.base[symbol])
    then = sum(tensor.numel() * ratio**count for tensor, count in zip(inputs.tensors, axes, strict=True))
    return then <= max(2 * now, LARGEST)


def _merged(first: Sequence[Call], other: Sequence[Call]) -> int:
    """Count the lengths that a strided operation makes equal in both runs, although its input's lengths differ."""
    count = 0
    for a, b in zip(first, other, strict=False):
        if a.children and b.children:
            count += _merged(a.children, b.children)
        elif "stride" in a.arguments and "stride" in b.arguments:
            (before, after), (before_, after_) = _lengths(a), _lengths(b)
            pairs = zip(before, before_, after, after_, strict=False)
            count += sum(n != n_ and m == m_ for n, n_, m, m_ in pairs)
    return count


def _lengths(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    given = next((value for value in call.arguments.values() if isinstance(value, Tensor)), None)
    made = tensors_of(call.result)
    return (given.shape if given is not None else (), made[0].shape if made else ())
