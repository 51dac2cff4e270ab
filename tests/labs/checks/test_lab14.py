"""Lab 14: typically wrong answers lose the points they should, and no others; work around the graph earns nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.labs.test_zeros import earned

SHAPES = {"rows, columns and single numbers", "new axes and lengths of 1 at once"}
ODD = "other shapes, axes and powers"
STEPS = {"values and gradients of five operations", ODD}
ORDER = "the order of a graph"
ADDED = "gradients are added where a Var is used twice"
DETACHED = "detach lets no gradient through"
RANDOM = "random programs"
ONCE = "each Var passes its gradient on once, when all of it has come"
DOUBLINGS = "forty doublings in a row"
CUT = {"one path at a time", "two paths, other axes, large means"}
FORMULAS = {"a formula for each path", "the formulas for any xhat and rstd"}
DIFFERENCES = "central differences"
TRAINS = "the losses of some steps, and what was learned"
NETWORK = "gradients come to every parameter through your graph"

JOIN = "                one.grad = one.grad + gradient\n"
IN_PLACE = """
                if one not in begun:
                    begun.add(one)
                    one.grad = gradient
                else:
                    one.grad += gradient
"""
AT_ONCE = """
    root.grad = root.grad + dy
    waiting = [(root, root.grad)]
    for _ in range(20_000):
        if not waiting:
            break
        node, dy = waiting.pop()
        if node.back is not None:
            for one, gradient in zip(node.inputs, node.back(dy)):
                one.grad = one.grad + gradient
                waiting.append((one, gradient))
    return
"""
DIFFERENCES_OF = """
    program, arrays = list(program), [np.array(a) for a in arrays]
    def f():
        values = [Var(a) for a in arrays]
        for operation, inputs, *settings in program:
            values.append(globals()[operation](*[values[i] for i in inputs], *settings))
        return values[-1].value
    grads = []
    for a in arrays:
        grad = np.zeros(a.shape)
        for i in np.ndindex(a.shape):
            kept = a[i]
            a[i] = kept + 1e-5
            up = (f() * dy).sum()
            a[i] = kept - 1e-5
            grad[i] = (up - (f() * dy).sum()) / 2e-5
            a[i] = kept
        grads.append(grad)
    return f(), *grads
"""
FORMULA = """
    rstd = (x.var(axis=axes, keepdims=True) + eps) ** -0.5
    xhat = (x - x.mean(axis=axes, keepdims=True)) * rstd
    return sum(three_terms(g, xhat, rstd, axes))
"""
BY_FORMULA = """
    p = [v.value for v in (x, w1, s, b, w2, c)]
    h = p[0] @ p[1]
    xhat = (h - h.mean(0)) / np.sqrt(h.var(0) + EPS)
    return Var(np.maximum(xhat * p[2] + p[3], 0) @ p[4] + p[5])
"""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # sums that lose an axis reach all that adds, multiplies or subtracts shapes
        ([("    dy = dy.sum(axis=tuple(range(dy.ndim - len(shape))))\n", "")], {*SHAPES, ODD, RANDOM}),
        # only the first argument is summed back
        ([("unbroadcast(-dy, b.value.shape)", "-dy")], {*STEPS, ADDED, RANDOM, *CUT, TRAINS, NETWORK}),
        # 1/sqrt grows
        ([("dy * p * a.value", "dy * abs(p) * a.value")], {*STEPS, RANDOM, *CUT, TRAINS, NETWORK}),
        ([("np.broadcast_to(dy / m, shape)", "np.broadcast_to(dy, shape)")],
         {*STEPS, ADDED, RANDOM, *CUT, TRAINS, NETWORK}),
        # right for positive numbers
        ([("dy * p * a.value ** (p - 1)", "dy * p * np.abs(a.value) ** (p - 1)")], {ODD}),
        # the last gradient wins
        ([(JOIN, "                one.grad = gradient\n")],
         {ADDED, DETACHED, RANDOM, ONCE, DOUBLINGS, *CUT, TRAINS, NETWORK}),
        # added into the array that another Var holds as well
        ([("    dy = dy.sum(axis=tuple(range(dy",
           "    if dy.shape == tuple(shape): return dy\n    dy = dy.sum(axis=tuple(range(dy"),
          ("    root.grad = root.grad + dy\n", "    root.grad, begun = np.array(root.grad + dy), {root}\n"),
          (JOIN, IN_PLACE), ("lambda dy: (np.broadcast_to(dy, shape),)", "lambda dy: (dy + np.zeros(shape),)"),
          ("lambda dy: (np.broadcast_to(dy / m, shape),)", "lambda dy: (dy / m + np.zeros(shape),)")],
         {ADDED, ONCE, RANDOM}),
        # inputs before what uses them
        ([("    return found[::-1]\n", "    return found\n")],
         {ORDER, ADDED, DETACHED, RANDOM, ONCE, DOUBLINGS, *CUT, TRAINS, NETWORK}),
        # every gradient is passed on as it comes: right sums, too many steps
        ([("    root.grad = root.grad + dy\n", AT_ONCE)],
         {ONCE, DOUBLINGS, NETWORK}),
        ([("    return Var(a.value)\n", "    return a\n")], {DETACHED, RANDOM, *CUT}),
        # finite differences in place of the walk
        ([("    values = [Var(array) for array in arrays]\n", DIFFERENCES_OF)], {DETACHED, RANDOM}),
        # the variance is made of what was cut
        ([("    centered = sub(x, mean)\n", "    centered = sub(x if 'direct' in paths else detach(x), mean)\n")], CUT),
        # eps behind the root
        ([("power(add(var, Var(eps)), -0.5)", "power(add(power(var, 0.5), Var(eps)), -1)")], {*CUT, TRAINS, NETWORK}),
        # sums for means
        ([("mean_g = g.mean(", "mean_g = g.sum(")], FORMULAS),
        ([("-rstd * xhat * mean_gx", "rstd * xhat * mean_gx")], FORMULAS),
        # a mean that is 0 for every xhat
        ([("(g * xhat).mean(axis=axes, keepdims=True)",
           "((g - mean_g) * xhat).mean(axis=axes, keepdims=True)")], {"the formulas for any xhat and rstd"}),
        # the formula in place of differences
        ([("    found = np.zeros(x.shape)\n    for index",
FORMULA + "    for index")], {DIFFERENCES}),
        ([("(f(right) - f(left)) / (2 * h)", "(f(right) - f(x)) / h")], {DIFFERENCES}),
        ([("normalized(matmul(x, w1), (0,)", "normalized(matmul(x, w1), (1,)")], {TRAINS, NETWORK}),
        # the right numbers, and no graph behind them
        ([("    xhat = normalized(matmul(x, w1)", BY_FORMULA + "    xhat = normalized(matmul(x, w1)")],
         {TRAINS, NETWORK}),
        ([("leaf.value - rate * leaf.grad", "leaf.value - 0.99 * rate * leaf.grad")], {TRAINS}),
    ],
)  # fmt: skip
def test_wrong_answers(lost: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    assert lost(14, *changes) == expected


def test_zeros_earn_nothing() -> None:
    """The walk leaves zeros, and the functions of numbers give them; only the operations are right."""

    def backward(root: Any, dy: Any = 1.0) -> None:
        root.grad = np.zeros(root.value.shape)
        for node in root.inputs:
            backward(node)

    assert earned(14, "zeros", order_of=lambda graph, root: [], backward=backward) == []
