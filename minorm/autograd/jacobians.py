"""Jacobians and Hessians: all first or second derivatives of a function, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.autograd.derivatives import FUNCTION, GRAPH, STRICT, Call, finished
from minorm.graph.grad_mode import enable_grad
from minorm.support.documented import documented
from minorm.tensor.combining import stack
from minorm.tensor.creation import ones_like, zeros
from minorm.tensor.tensor import Tensor

STRATEGIES = ("reverse-mode", "forward-mode")
UNUSED = "accepted but ignored: each row takes one backward pass"
STRATEGY = '"reverse-mode" or "forward-mode"; ignored, because each row takes one backward pass'


@documented(
    {},
    func=FUNCTION,
    inputs="the point at which func is differentiated: a Tensor, or a tuple of Tensors",
    create_graph=GRAPH,
    strict=STRICT,
    vectorize=UNUSED,
    strategy=STRATEGY,
)
def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,  # noqa: ARG001
    strategy: str = "reverse-mode",
) -> Any:
    """Return d(func(inputs))/d(inputs); for one output and one input, its shape is (*output.shape, *input.shape).

    For one input and one output, the result is a Tensor. For several inputs and one output, or one input and several
    outputs, the result is a tuple of Tensors. For several inputs and several outputs, the result has a tuple for each
    output, with one Tensor for each input.

    Example:
        >>> mn.autograd.functional.jacobian(lambda x: x * x, mn.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    _check_strategy("jacobian", "strategy", strategy)
    call = Call("jacobian", func, inputs, create_graph)
    found = [call.packed(_of_output(call, y, strict, create_graph)) for y in call.outputs]
    return found[0] if call.one_output else tuple(found)


def _check_strategy(operation: str, name: str, strategy: str) -> None:
    """Raise ValueError for a strategy that PyTorch does not have."""
    if strategy not in STRATEGIES:
        raise ValueError(f"{operation}: {name} is {strategy!r}; expected {' or '.join(map(repr, STRATEGIES))}")


def _of_output(call: Call, y: Tensor, strict: bool, create_graph: bool) -> list[Tensor]:
    """Return the derivatives of all elements of the output y with respect to each input."""
    if y.numel() == 0:
        return [zeros(*y.shape, *x.shape, dtype=x.dtype, device=x.device) for x in call.inputs]
    with enable_grad():  # y[i] must join the graph, also inside the caller's no_grad()
        flat = y.reshape(-1)
        parts = [flat[i] for i in range(flat.numel())]
        rows = [call.gradients([part], call.inputs, [ones_like(part)], strict, create_graph) for part in parts]
        blocks = [stack(list(column), 0) for column in zip(*rows, strict=True)]
        shaped = [block.reshape(*y.shape, *x.shape) for block, x in zip(blocks, call.inputs, strict=True)]
    return finished(shaped, create_graph)


@documented(
    {},
    func="a function of Tensors that returns one number",
    inputs="the point at which func is differentiated: a Tensor, or a tuple of Tensors",
    create_graph=GRAPH,
    strict=STRICT,
    vectorize=UNUSED,
    outer_jacobian_strategy=STRATEGY,
)
def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,  # noqa: ARG001
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Return all second derivatives of func, whose result must be one number.

    For one input a, the second derivatives are a Tensor of shape (*a.shape, *a.shape). For a tuple of inputs, they are
    a tuple of tuples, with a Tensor of shape (*a.shape, *b.shape) for each pair of inputs a and b.

    Example:
        >>> mn.autograd.functional.hessian(lambda x: (x**3).sum(), mn.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    _check_strategy("hessian", "outer_jacobian_strategy", outer_jacobian_strategy)

    def slopes(*given: Tensor) -> Any:
        call = Call("hessian", func, given, True)
        y = call.single()
        return tuple(call.gradients([y], call.inputs, [ones_like(y)], strict, True))

    found = jacobian(slopes, inputs, create_graph, strict)
    return found if isinstance(inputs, (tuple, list)) else found[0]
