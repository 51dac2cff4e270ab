"""Typical mistakes in lab 14: subclasses of the right autograd, each with one wrong method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.labs.checks.complex_step import PATHS
from minorm.labs.checks.mistakes.right_lab14 import Axes, Lines, Node, Right
from minorm.labs.judge.recognizing import Recognizer

MOST = 20_000  # steps of a walk that visits a node for each path to it


# Task 14.1


class NotUndone(Right):
    """broadcasting is not undone, so the gradient keeps the shape of dy"""

    def unbroadcast(self, dy: Any, shape: tuple[int, ...]) -> Any:
        return np.asarray(dy)


class NewAxesKept(Right):
    """axes of length 1 are summed, but not the new axes in front"""

    def unbroadcast(self, dy: Any, shape: tuple[int, ...]) -> Any:
        dy = np.asarray(dy)
        lined = (1,) * (dy.ndim - len(shape)) + tuple(shape)
        return dy.sum(axis=tuple(i for i, count in enumerate(lined) if count == 1), keepdims=True)


class OnesNotSummed(Right):
    """the new axes in front are summed, but not axes of length 1"""

    def _over_ones(self, dy: Any, axes: Axes) -> Any:
        return dy


class OnesDropped(Right):
    """axes of length 1 are summed without keepdims=True, so they are gone"""

    def _over_ones(self, dy: Any, axes: Axes) -> Any:
        return dy.sum(axis=axes)


class RepeatedAveraged(Right):
    """the gradient is a mean over the repeated axes; the gradients of all uses have to be added"""

    def _without_new_axes(self, dy: Any, shape: tuple[int, ...]) -> Any:
        return dy.mean(axis=tuple(range(dy.ndim - len(shape))))

    def _over_ones(self, dy: Any, axes: Axes) -> Any:
        return dy.mean(axis=axes, keepdims=True)


class FirstTaken(Right):
    """only the gradient of the first use is taken; the gradients of all uses have to be added"""

    def _without_new_axes(self, dy: Any, shape: tuple[int, ...]) -> Any:
        return dy[(0,) * (dy.ndim - len(shape))]

    def _over_ones(self, dy: Any, axes: Axes) -> Any:
        return dy[tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(dy.ndim))]


# Task 14.2


class BroadcastForgotten(Right):
    """unbroadcast is not called in an operation on two arrays"""

    def _like(self, dy: Any, node: Node) -> Any:
        return dy


class DifferenceWithoutSign(Right):
    """db of a - b is dy; it has to be -dy"""

    def _negative(self, dy: Any) -> Any:
        return dy


class ProductSwapped(Right):
    """da of a * b has the factor a; it has to be dy * b"""

    def _factors(self, a: Node, b: Node) -> tuple[Any, Any]:
        return a.value, b.value


class PowerWithoutFactor(Right):
    """the factor p is missing in the slope of a power"""

    def _slope(self, a: Any, p: float) -> Any:
        return a ** (p - 1)


class PowerNotLowered(Right):
    """the slope of a power keeps the exponent p; it has to be p - 1"""

    def _slope(self, a: Any, p: float) -> Any:
        return p * a**p


class PowerWithoutSign(Right):
    """the slope of a power has |p| as its factor; it has to be p, because 1 / sqrt(a), for example, falls as a grows"""

    def _slope(self, a: Any, p: float) -> Any:
        return abs(p) * a ** (p - 1)


class MeanWithoutM(Right):
    """1/m is missing in the gradient of a mean"""

    def _m(self, a: Any, axes: Axes) -> Any:
        return 1


class MeanOfAll(Right):
    """the gradient of a mean is divided by the number of all elements, not by the number in one mean"""

    def _m(self, a: Any, axes: Axes) -> Any:
        return a.size


class MeanOfRows(Right):
    """the gradient of a mean is divided by the number of means, not by the number of elements in a mean"""

    def _m(self, a: Any, axes: Axes) -> Any:
        return np.prod([count for axis, count in enumerate(a.shape) if axis not in axes])


class MeanOverAllAxes(Right):
    """the mean ignores `axes` and runs over all axes"""

    def _axes(self, axes: Axes, ndim: int) -> Axes:
        return tuple(range(ndim))


class NotSpread(Right):
    """the gradient of a sum or a mean has the shape of the sum; it has to have the shape of the input"""

    def _spread(self, dy: Any, shape: tuple[int, ...]) -> Any:
        return dy


# Task 14.3


class Overwritten(Right):
    """gradients are overwritten if a Var is used twice; they have to be added"""

    def _joined(self, first: Any, second: Any) -> Any:
        return 0 * first + second


class InputsFirst(Right):
    """the order is reversed, with the root at the end"""

    def _order(self, root: Node) -> list[Node]:
        return super()._order(root)[::-1]


class LevelByLevel(Right):
    """the order goes level by level, so a Var may come before another Var that uses it"""

    def _order(self, root: Node) -> list[Node]:
        found = [root]
        for node in found:
            for one in node.inputs:
                if one not in found:
                    found.append(one)
        return found


class WrittenDownTooEarly(Right):
    """a Var is added to the order before its inputs are visited, so it may come before another Var that uses it"""

    def _order(self, root: Node) -> list[Node]:
        found: list[Node] = []

        def visit(node: Node) -> None:
            if node not in found:
                found.append(node)
                for one in node.inputs:
                    visit(one)

        visit(root)
        return found


class VisitedAgain(Right):
    """a Var is visited once for each use, so the order holds it several times"""

    def _order(self, root: Node) -> list[Node]:
        found: list[Node] = []

        def visit(node: Node) -> None:
            if len(found) > MOST:
                raise MemoryError
            for one in node.inputs:
                visit(one)
            found.append(node)

        visit(root)
        return found[::-1]


class NotDetached(Right):
    """detach keeps the inputs, so the gradient still flows to them"""

    def detach(self, a: Node) -> Node:
        return Node(a.value, (a,), lambda dy: (dy,))


class ZeroValue(Right):
    """detach loses the value"""

    def detach(self, a: Node) -> Node:
        return Node(0 * a.value)


# Task 14.4


class EpsForgotten(Right):
    """eps is left out of rstd"""

    def _with_eps(self, lines: Lines, var: int, eps: int) -> int:
        return var


class VarianceOfCut(Right):
    """the variance is computed from an x - mean whose path is cut, so cutting this path also changes another path"""

    def _centered(self, whole: tuple[int, int], cut: tuple[int, int]) -> tuple[int, int]:
        return cut


class AllPathsOpen(Right):
    """`paths` is ignored, and the gradient comes through all three paths"""

    def through(self, x: Any, g: Any, axes: Axes, eps: float, paths: Sequence[str]) -> tuple[Any, Any]:
        return super().through(x, g, axes, eps, PATHS)


class OtherPaths(Right):
    """the paths in `paths` are cut and the others are open; it has to be the other way round"""

    def through(self, x: Any, g: Any, axes: Axes, eps: float, paths: Sequence[str]) -> tuple[Any, Any]:
        return super().through(x, g, axes, eps, [path for path in PATHS if path not in paths])


# Task 14.5


class SumsForMeans(Right):
    """1/m is missing; sums are taken, but means are needed"""

    def _average(self, v: Any, axes: Axes) -> Any:
        return v.sum(axis=axes, keepdims=True)


class TermsOverAllAxes(Right):
    """`axes` is ignored, and the means are taken over the whole array"""

    def _average(self, v: Any, axes: Axes) -> Any:
        return v.mean()


class MeanAdded(Right):
    """the term of the mean has the wrong sign; xhat falls as the mean grows"""

    def _mean_term(self, mean_g: Any, rstd: Any) -> Any:
        return rstd * mean_g


class MeanWithoutRstd(Right):
    """the factor rstd is missing in the term of the mean"""

    def _mean_term(self, mean_g: Any, rstd: Any) -> Any:
        return -mean_g


class VarianceAdded(Right):
    """the term of the variance has the wrong sign; the slope of v**-0.5 is negative"""

    def _variance_term(self, mean_gx: Any, xhat: Any, rstd: Any) -> Any:
        return rstd * xhat * mean_gx


class VarianceWithoutXhat(Right):
    """the factor xhat is missing in the term of the variance"""

    def _variance_term(self, mean_gx: Any, xhat: Any, rstd: Any) -> Any:
        return -rstd * mean_gx


class VarianceWithoutRstd(Right):
    """the factor rstd is missing in the term of the variance"""

    def _variance_term(self, mean_gx: Any, xhat: Any, rstd: Any) -> Any:
        return -xhat * mean_gx


class VarianceOfThirdPower(Right):
    """the variance's term has the factor rstd**3; it has to be rstd, as x - mean is xhat / rstd in two places"""

    def _variance_term(self, mean_gx: Any, xhat: Any, rstd: Any) -> Any:
        return -(rstd**3) * xhat * mean_gx


class OneSided(Right):
    """the difference is one-sided, (f(x + h) - f(x)) / h; its error is of size h instead of h^2"""

    def _quotient(self, right: Any, left: Any, here: Any, h: float) -> Any:
        return (right - here) / h


class DividedByH(Right):
    """the difference is divided by h; it has to be divided by 2h, because the two points are 2h apart"""

    def _quotient(self, right: Any, left: Any, here: Any, h: float) -> Any:
        return (right - left) / h


class NotMovedBack(Right):
    """an element is not restored before the next one is moved"""

    def _moved(self, x: Any, before: Any, index: Any, step: float) -> Any:
        moved = before.copy()
        moved[index] = x[index] + step
        return moved


# Task 14.6


class Ascent(Right):
    """the step goes up the gradient; it has to be p - rate * gradient"""

    def _stepped(self, value: Any, grad: Any, rate: float) -> Any:
        return value + rate * grad


class OverFeatures(Right):
    """the network normalizes over the features of each sample, axis 1; it has to normalize over the batch, axis 0"""

    def _batch(self) -> Axes:
        return (1,)


class SumOfSquares(Right):
    """the loss is a sum; it has to be a mean"""

    def _loss(self) -> str:
        return "sum_over"


RECOGNIZER = Recognizer.of(Right, vars())
