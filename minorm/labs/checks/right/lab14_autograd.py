"""Lab 14: defines right operations and a right backward pass for the student's Vars.

`type(a)` is the student's class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.kernels.reference.sums import sum_to
from minorm.labs.calling.sent import Sent


def unbroadcast(dy: Any, shape: tuple[int, ...]) -> Any:
    """Sum dy to this shape."""
    return sum_to(dy, tuple(shape))


def sub(a: Any, b: Any) -> Any:
    """Subtract two Vars."""
    return type(a)(
        a.value - b.value, (a, b), lambda dy: (sum_to(dy, a.value.shape), sum_to(np.negative(dy), b.value.shape))
    )


def mul(a: Any, b: Any) -> Any:
    """Multiply two Vars."""
    return type(a)(
        a.value * b.value,
        (a, b),
        lambda dy: (sum_to(dy * b.value, a.value.shape), sum_to(dy * a.value, b.value.shape)),
    )


def power(a: Any, p: float) -> Any:
    """Raise a Var to a power."""
    return type(a)(a.value**p, (a,), lambda dy: (p * dy * a.value ** (p - 1),))


def sum_over(a: Any, axes: tuple[int, ...]) -> Any:
    """Sum a Var over these axes."""
    return type(a)(np.sum(a.value, axis=tuple(axes), keepdims=True), (a,), lambda dy: (dy + np.zeros(a.value.shape),))


def mean_over(a: Any, axes: tuple[int, ...]) -> Any:
    """Average a Var over these axes."""
    mean = np.mean(a.value, axis=tuple(axes), keepdims=True)
    return type(a)(mean, (a,), lambda dy: ((dy + np.zeros(a.value.shape)) * mean.size / a.value.size,))


def order(root: Any) -> list[Any]:
    """List all Vars, the root first, so that each Var comes after all Vars that use it."""
    uses: dict[Any, int] = {root: 0}
    waiting = [root]
    for node in waiting:
        for one in node.inputs:
            if one not in uses:
                uses[one] = 0
                waiting.append(one)
            uses[one] += 1
    found = [root]
    for node in found:
        for one in node.inputs:
            uses[one] -= 1
            if uses[one] == 0:
                found.append(one)
    return found


def backward(root: Any, dy: Any = 1.0) -> None:
    """Compute all gradients in an order that this function finds itself, since the student's `order` may be wrong."""
    found, entered, waiting = [], set(), [(root, False)]
    while waiting:
        node, left = waiting.pop()
        if left:
            found.append(node)
        elif node not in entered:
            entered.add(node)
            waiting.append((node, True))
            waiting.extend((one, False) for one in node.inputs)
    for node in found:
        node.grad = np.zeros(node.value.shape)
    root.grad = root.grad + dy
    for node in reversed(found):
        if node.back is not None:
            for one, gradient in zip(node.inputs, node.back(node.grad), strict=True):
                one.grad = one.grad + gradient


def detach(a: Any) -> Any:
    """Return a Var with the value of `a` and without inputs, so that no gradient flows back to them."""
    return type(a)(a.value)


OPERATIONS = {function.__name__: Sent(function) for function in (sub, mul, power, sum_over, mean_over)}
WALK = {function.__name__: Sent(function) for function in (order, backward, detach)}
