"""Lab 14: a right autograd with a method for each operation and each step, so that a mistake changes one method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minorm.labs.checks.complex_step import PATHS

Axes = tuple[int, ...]


class Node:
    """A value in a graph, with the nodes from which it was computed.

    `back` turns the gradient of the value into one gradient for each of these nodes.
    """

    def __init__(self, value: Any, inputs: Sequence[Node] = (), back: Callable[[Any], tuple[Any, ...]] | None = None):
        self.value, self.inputs, self.back = np.asarray(value, np.float64), tuple(inputs), back
        self.grad: Any = None


class Lines:
    """Builds a program of operations, line by line. Arrays and results have consecutive numbers."""

    def __init__(self, arrays: int) -> None:
        self.arrays, self.lines = arrays, list[tuple[Any, ...]]()

    def put(self, operation: str, *inputs: int, setting: Any = None) -> int:
        """Append an operation.

        Its inputs are the arrays or results with these numbers; return the number of its result.
        """
        self.lines.append((operation, inputs, *([] if setting is None else [setting])))
        return self.arrays + len(self.lines) - 1


class Right:
    """The lab's functions under the names that the checks call, with a method for each operation and each step."""

    # Task 14.1 and 14.2

    def unbroadcast(self, dy: Any, shape: tuple[int, ...]) -> Any:
        """Sum over the axes along which an array was repeated."""
        dy = self._without_new_axes(np.asarray(dy), shape)
        return self._over_ones(dy, tuple(axis for axis, count in enumerate(shape) if count == 1))

    def _without_new_axes(self, dy: Any, shape: tuple[int, ...]) -> Any:
        return dy.sum(axis=tuple(range(dy.ndim - len(shape))))

    def _over_ones(self, dy: Any, axes: Axes) -> Any:
        return dy.sum(axis=axes, keepdims=True)

    def _like(self, dy: Any, node: Node) -> Any:
        return self.unbroadcast(dy, node.value.shape)

    def add(self, a: Node, b: Node) -> Node:
        """Add two nodes; students get this function."""
        return Node(a.value + b.value, (a, b), lambda dy: (self.unbroadcast(dy, a.value.shape), self._like_b(dy, b)))

    def _like_b(self, dy: Any, node: Node) -> Any:
        return self.unbroadcast(dy, node.value.shape)

    def sub(self, a: Node, b: Node) -> Node:
        return Node(a.value - b.value, (a, b), lambda dy: (self._like(dy, a), self._like(self._negative(dy), b)))

    def _negative(self, dy: Any) -> Any:
        return -dy

    def mul(self, a: Node, b: Node) -> Node:
        def back(dy: Any) -> tuple[Any, ...]:
            first, second = self._factors(a, b)
            return self._like(dy * first, a), self._like(dy * second, b)

        return Node(a.value * b.value, (a, b), back)

    def _factors(self, a: Node, b: Node) -> tuple[Any, Any]:
        return b.value, a.value

    def power(self, a: Node, p: float) -> Node:
        return Node(a.value**p, (a,), lambda dy: (dy * self._slope(a.value, p),))

    def _slope(self, a: Any, p: float) -> Any:
        return p * a ** (p - 1)

    def sum_over(self, a: Node, axes: Axes) -> Node:
        return Node(a.value.sum(axis=axes, keepdims=True), (a,), lambda dy: (self._spread(dy, a.value.shape),))

    def _spread(self, dy: Any, shape: tuple[int, ...]) -> Any:
        return np.broadcast_to(dy, shape)

    def mean_over(self, a: Node, axes: Axes) -> Node:
        axes = self._axes(axes, a.value.ndim)
        m = self._m(a.value, axes)
        mean = a.value.mean(axis=axes, keepdims=True)
        return Node(mean, (a,), lambda dy: (self._spread(dy / m, a.value.shape),))

    def _axes(self, axes: Axes, ndim: int) -> Axes:
        return axes

    def _m(self, a: Any, axes: Axes) -> Any:
        return np.prod([a.shape[axis] for axis in axes])

    def matmul(self, a: Node, b: Node) -> Node:
        """Multiply two matrices; students get this function."""
        return Node(a.value @ b.value, (a, b), lambda dy: (dy @ b.value.T, a.value.T @ dy))

    def relu(self, a: Node) -> Node:
        """Apply ReLU; students get this function."""
        return Node(np.maximum(a.value, 0), (a,), lambda dy: (dy * (a.value > 0),))

    def one_step(self, operation: str, arrays: Sequence[Any], dy: Any, *settings: Any) -> tuple[Any, ...]:
        """Return the value and the gradients of one operation."""
        y = getattr(self, operation)(*map(Node, arrays), *settings)
        return y.value, *y.back(np.asarray(dy))

    # Task 14.3

    def _order(self, root: Node) -> list[Node]:
        found: list[Node] = []
        seen: set[Node] = set()

        def visit(node: Node) -> None:
            if node not in seen:
                seen.add(node)
                for one in node.inputs:
                    visit(one)
                found.append(node)

        visit(root)
        return found[::-1]

    def _backward(self, root: Node, dy: Any = 1.0) -> None:
        nodes = self._order(root)
        for node in nodes:
            node.grad = np.zeros(node.value.shape)
        root.grad = root.grad + dy
        for node in nodes:
            if node.back is not None:
                for one, gradient in zip(node.inputs, node.back(node.grad), strict=True):
                    one.grad = self._joined(one.grad, gradient)

    def _joined(self, first: Any, second: Any) -> Any:
        return first + second

    def detach(self, a: Node) -> Node:
        return Node(a.value)

    def order_of(self, graph: dict[str, list[str]], root: str) -> list[str]:
        """Return the order of a graph whose nodes are names."""
        nodes: dict[str, Node] = {}
        for name, inputs in graph.items():
            nodes[name] = Node(0.0, [nodes[one] for one in inputs])
        names = {node: name for name, node in nodes.items()}
        return [names[node] for node in self._order(nodes[root])]

    def gradients(self, program: Any, arrays: Any, dy: Any) -> tuple[Any, ...]:
        """Return the value of a program, and the gradient of each array."""
        values = [Node(array) for array in arrays]
        for operation, inputs, *settings in program:
            values.append(getattr(self, operation)(*[values[one] for one in inputs], *settings))
        self._backward(values[-1], dy)
        return values[-1].value, *[self._grad_of(leaf) for leaf in values[: len(arrays)]]

    def _grad_of(self, leaf: Node) -> Any:
        return np.zeros(leaf.value.shape) if leaf.grad is None else leaf.grad

    # Task 14.4

    def _normalized(self, lines: Lines, x: int, eps: int, axes: Axes, paths: Sequence[str]) -> int:
        mean = lines.put("mean_over", x, setting=axes)
        direct = x if "direct" in paths else lines.put("detach", x)
        cut_mean = mean if "mean" in paths else lines.put("detach", mean)
        c = lines.put("sub", *self._centered((x, mean), (direct, cut_mean)))
        var = lines.put("mean_over", lines.put("mul", c, c), setting=axes)
        rstd = lines.put("power", self._with_eps(lines, var, eps), setting=-0.5)
        return lines.put(
            "mul", lines.put("sub", direct, cut_mean), rstd if "variance" in paths else lines.put("detach", rstd)
        )

    def _centered(self, whole: tuple[int, int], cut: tuple[int, int]) -> tuple[int, int]:
        return whole

    def _with_eps(self, lines: Lines, var: int, eps: int) -> int:
        return lines.put("add", var, eps)

    def through(self, x: Any, g: Any, axes: Axes, eps: float, paths: Sequence[str]) -> tuple[Any, Any]:
        """Return xhat, and the gradient of x. Only the paths that `paths` names are open."""
        lines = Lines(2)
        self._normalized(lines, 0, 1, axes, paths)
        return self.gradients(lines.lines, (x, eps), g)[:2]

    # Task 14.5

    def three_terms(self, g: Any, xhat: Any, rstd: Any, axes: Axes) -> tuple[Any, Any, Any]:
        """Return the gradients through x itself, the mean and the variance."""
        mean_g, mean_gx = (self._average(v, axes) for v in (g, g * xhat))
        return g * rstd, self._mean_term(mean_g, rstd) + 0 * g, self._variance_term(mean_gx, xhat, rstd) + 0 * g

    def _average(self, v: Any, axes: Axes) -> Any:
        return v.mean(axis=axes, keepdims=True)

    def _mean_term(self, mean_g: Any, rstd: Any) -> Any:
        return -rstd * mean_g

    def _variance_term(self, mean_gx: Any, xhat: Any, rstd: Any) -> Any:
        return -rstd * xhat * mean_gx

    def slopes(self, x: Any, g: Any, axes: Axes, eps: float, h: float = 1e-5) -> Any:
        """Return central differences of sum(g * xhat)."""

        def f(x: Any) -> Any:
            c = x - x.mean(axis=axes, keepdims=True)
            return (g * c / np.sqrt((c * c).mean(axis=axes, keepdims=True) + eps)).sum()

        found = np.zeros(x.shape)
        moved = x.copy()
        for index in np.ndindex(x.shape):
            moved = self._moved(x, moved, index, h)
            right = f(moved)
            moved = self._moved(x, moved, index, -h)
            found[index] = self._quotient(right, f(moved), f(x), h)
        return found

    def _moved(self, x: Any, before: Any, index: Any, step: float) -> Any:
        moved = x.copy()
        moved[index] += step
        return moved

    def _quotient(self, right: Any, left: Any, here: Any, h: float) -> Any:
        return (right - left) / (2 * h)

    # Task 14.6

    def train(self, x: Any, target: Any, parameters: Any, steps: int, rate: float) -> tuple[Any, list[Any]]:
        """Return the losses and the trained parameters."""
        lines = Lines(8)
        _, goal, eps, w1, s, b, w2, c = range(8)
        xhat = self._normalized(lines, lines.put("matmul", 0, w1), eps, self._batch(), PATHS)
        a = lines.put("relu", lines.put("add", lines.put("mul", xhat, s), b))
        error = lines.put("sub", lines.put("add", lines.put("matmul", a, w2), c), goal)
        lines.put(self._loss(), lines.put("mul", error, error), setting=(0, 1))
        losses = []
        for _ in range(steps):
            loss, _, _, _, *grads = self.gradients(lines.lines, (x, target, 1e-5, *parameters), 1.0)
            losses.append(loss.item())
            parameters = [self._stepped(*pair, rate) for pair in zip(parameters, grads, strict=True)]
        return np.array(losses), parameters

    def _batch(self) -> Axes:
        return (0,)

    def _loss(self) -> str:
        return "mean_over"

    def _stepped(self, value: Any, grad: Any, rate: float) -> Any:
        return value - rate * grad
