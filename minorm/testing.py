"""Checks gradients against finite differences, which do not use the graph.

The slope of a function along direction v is (f(x + h v) - f(x - h v)) / 2h; its error is O(h^2) + O(rounding / h).
`gradcheck` compares this slope with the gradient from backward() for every element, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.graph.differentiation import grad
from minorm.graph.grad_mode import enable_grad, no_grad
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(
    {},
    f="a function of Tensors that returns a Tensor",
    inputs="the arguments of f, float64",
    which="the number of the input whose gradient is computed",
    weights="an array of weights for the elements of f's result",
    h="the distance by which an element is moved up and down",
)
def numerical_gradient(f: Callable[..., Tensor], inputs: tuple[Tensor, ...], which: int, weights: Any, h: float) -> Any:
    """Return the sum of weights * (f(x + h e) - f(x - h e)) / 2h for each unit vector e of input number `which`.

    The error is O(h^2) + O(rounding / h). The gradient is a float64 array with the shape of the input.

    Example:
        >>> from minorm.testing import numerical_gradient
        >>> x = mn.tensor([3.0], dtype=mn.float64)
        >>> numerical_gradient(lambda x: x * x, (x,), which=0, weights=1.0, h=1e-3).round(6).tolist()
        [6.0]
    """
    x = inputs[which]
    gradient = np.zeros(x.shape, np.float64)
    original = x.detach().cpu().numpy()
    with no_grad():
        for index in np.ndindex(*x.shape):
            sides = []
            for step in (h, -h):
                shifted = original.copy()
                shifted[index] += step
                arguments = [Tensor(shifted).to(x.device) if i == which else t for i, t in enumerate(inputs)]
                sides.append(float((f(*arguments).detach().cpu().numpy() * weights).sum()))
            gradient[index] = (sides[0] - sides[1]) / (2 * h)
    return gradient


@documented(
    {},
    f="a function of the inputs that returns a Tensor, or a tuple of Tensors",
    inputs="float64 arrays, or Tensors on the CPU or a GPU; Tensors that do not require grad stay fixed",
    h="the distance by which an element is moved up and down",
    tolerance="the largest error allowed, relative to 1 + the largest slope",
    seed="the seed of random weights of f's results, which keep errors from cancelling in a sum",
)
def gradcheck(f: Callable[..., Any], *inputs: Any, h: float = 1e-5, tolerance: float = 1e-6, seed: int = 0) -> float:
    """Compare gradients with (f(x + h e) - f(x - h e)) / 2h for each unit vector e; return the largest relative error.

    Raises AssertionError if a relative error exceeds `tolerance`; the message names the input and the two values.
    Raises TypeError if an input has floats of another type than float64.

    Example:
        >>> from minorm.testing import gradcheck
        >>> gradcheck(lambda x: x.exp(), mn.zeros(2, dtype=mn.float64).numpy()) < 1e-6
        True
    """
    tensors = tuple(Tensor(x.copy(), True) if isinstance(x, np.ndarray) else x for x in inputs)
    for i, x in enumerate(tensors):
        if isinstance(x, Tensor) and x.requires_grad and x.dtype != np.float64:
            raise TypeError(
                f"gradcheck: input {i} is {x.dtype}; expected float64, because finite differences need that precision"
            )
    rng = np.random.default_rng(seed)

    def outputs(*arguments: Any) -> tuple[Tensor, ...]:
        result = f(*arguments)
        return result if isinstance(result, tuple) else (result,)

    def output(number: int) -> Callable[..., Tensor]:
        return lambda *arguments: outputs(*arguments)[number]

    worst = 0.0
    for number in range(len(outputs(*tensors))):
        y = outputs(*tensors)[number]
        if not y.requires_grad:
            continue
        weights = rng.standard_normal(y.shape)
        for x in tensors:
            if isinstance(x, Tensor):
                x.grad = None
        y.backward(Tensor(np.asarray(weights, y.dtype)).to(y.device))
        for i, x in enumerate(tensors):
            if not (isinstance(x, Tensor) and x.requires_grad):
                continue
            expected = numerical_gradient(output(number), tensors, i, weights, h)
            got = np.zeros(x.shape) if x.grad is None else x.grad.cpu().numpy()
            error = np.abs(got - expected) / (1 + np.abs(expected).max(initial=0.0))
            largest = float(error.max(initial=0.0))
            if not largest <= tolerance:  # written so that NaN is an error too
                where = np.unravel_index(int(np.nan_to_num(error, nan=np.inf).argmax()), error.shape)
                raise AssertionError(
                    f"gradcheck: output {number}, input {i} at {tuple(map(int, where))}: backward says {got[where]}, "
                    f"finite differences say {expected[where]} (error {largest:.2e}, tolerance {tolerance:.0e})"
                )
            worst = max(worst, largest)
    return worst


@documented(
    {},
    f="a function of the inputs that returns a Tensor, or a tuple of Tensors",
    inputs="float64 arrays, or Tensors on the CPU or a GPU; Tensors that do not require grad stay fixed",
    h="the distance by which an element is moved up and down",
    tolerance="the largest error allowed, relative to 1 + the largest slope",
    seed="the seed of the random weights of f's results and gradients",
)
def gradgradcheck(
    f: Callable[..., Any], *inputs: Any, h: float = 1e-5, tolerance: float = 1e-6, seed: int = 0
) -> float:
    """Call `gradcheck` for the gradients of f, as functions of the inputs, and so check second derivatives.

    The gradients come from `autograd.grad(create_graph=True)`. They also depend on random weights of f's results.

    Raises the same AssertionError as gradcheck. Its message counts the weights as further inputs, after the inputs of
    f.

    Example:
        >>> from minorm.testing import gradgradcheck
        >>> gradgradcheck(lambda x: x.exp(), mn.zeros(2, dtype=mn.float64).numpy()) < 1e-6
        True
    """
    tensors = [Tensor(x.copy(), True) if isinstance(x, np.ndarray) else x for x in inputs]
    moving = [i for i, x in enumerate(tensors) if isinstance(x, Tensor) and x.requires_grad]
    rng = np.random.default_rng(seed)
    results = [y for y in _several(f(*tensors)) if y.requires_grad]
    weights = [Tensor(rng.standard_normal(y.shape).astype(y.dtype), True).to(y.device) for y in results]

    def first(*given: Any) -> tuple[Tensor, ...]:
        with enable_grad():
            arguments, v = list(given[: len(tensors)]), given[len(tensors) :]
            for i in moving:  # finite differences pass Tensors outside the graph
                if not arguments[i].requires_grad:
                    arguments[i] = arguments[i].detach().requires_grad_()
            ends = [y for y in _several(f(*arguments)) if y.requires_grad]
            found = grad(ends, [arguments[i] for i in moving], v, create_graph=True, allow_unused=True)
            return tuple([g for g in found if g is not None])

    return gradcheck(
        first, *tensors, *[w.detach().requires_grad_() for w in weights], h=h, tolerance=tolerance, seed=seed
    )


def _several(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)
