"""Products of a Jacobian or a Hessian with a vector. They take one to three backward walks, but the whole matrix would
take one walk for each row.

vjp   v^T J   one walk
jvp   J v     two walks: (w^T J) v is linear in w, and its gradient by w is J v
vhp   v^T H   two walks: one computes the gradient, and one differentiates the gradient
hvp   H v     three walks; H is symmetric, so vhp returns the same numbers faster
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.autograd.derivatives import FUNCTION, GRAPH, STRICT, Call, finished
from minorm.support.documented import documented
from minorm.tensor.creation import ones_like

INPUTS = "the point at which func is differentiated: a Tensor, or a tuple of Tensors"
OF_INPUTS = "the vector, of the inputs' shapes; None for inputs of one element"
NUMBER = "a function of Tensors that returns one number"


@documented(
    {},
    func=FUNCTION,
    inputs=INPUTS,
    v="the vector, of the outputs' shapes; None for an output of one element",
    create_graph=GRAPH,
    strict=STRICT,
)
def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return (func(inputs), v^T J), where J is the Jacobian of func.

    Example:
        >>> x = mn.tensor([1.0, 2.0])
        >>> mn.autograd.functional.vjp(lambda x: x * x, x, mn.tensor([1.0, 10.0]))
        (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    call = Call("vjp", func, inputs, create_graph)
    weights = call.weights(v, call.outputs, "the result of func")
    found = call.gradients(call.outputs, call.inputs, weights, strict, create_graph)
    return _outputs(call, create_graph), call.packed(finished(found, create_graph))


@documented({}, func=FUNCTION, inputs=INPUTS, v=OF_INPUTS, create_graph=GRAPH, strict=STRICT)
def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return (func(inputs), J v), where J is the Jacobian of func.

    Example:
        >>> x = mn.tensor([1.0, 2.0])
        >>> mn.autograd.functional.jvp(lambda x: (x * x).sum(), x, mn.tensor([1.0, 10.0]))
        (tensor(5.), tensor(42.))
    """
    call = Call("jvp", func, inputs, create_graph)
    weights = call.weights(v, call.inputs, "inputs")
    w = [ones_like(y).requires_grad_() for y in call.outputs]
    rows = call.gradients(call.outputs, call.inputs, w, strict, True)
    found = finished(call.gradients(rows, w, weights, strict, create_graph), create_graph)
    return _outputs(call, create_graph), found[0] if call.one_output else tuple(found)


@documented({}, func=NUMBER, inputs=INPUTS, v=OF_INPUTS, create_graph=GRAPH, strict=STRICT)
def vhp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return (func(inputs), v^T H), where H is the Hessian of func.

    Example:
        >>> x = mn.tensor([1.0, 2.0])
        >>> mn.autograd.functional.vhp(lambda x: (x**3).sum(), x, mn.tensor([1.0, 10.0]))
        (tensor(9.), tensor([  6., 120.]))
    """
    call = Call("vhp", func, inputs, create_graph)
    y = call.single()
    weights = call.weights(v, call.inputs, "inputs")
    slopes = call.gradients([y], call.inputs, [ones_like(y)], strict, True)
    found = call.gradients(slopes, call.inputs, weights, strict, create_graph)
    return _outputs(call, create_graph), call.packed(finished(found, create_graph))


@documented({}, func=NUMBER, inputs=INPUTS, v=OF_INPUTS, create_graph=GRAPH, strict=STRICT)
def hvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return (func(inputs), H v), where H is the Hessian of func; `vhp` returns the same numbers faster.

    Example:
        >>> x = mn.tensor([1.0, 2.0])
        >>> mn.autograd.functional.hvp(lambda x: (x**3).sum(), x, mn.tensor([1.0, 10.0]))
        (tensor(9.), tensor([  6., 120.]))
    """
    call = Call("hvp", func, inputs, create_graph)
    y = call.single()
    weights = call.weights(v, call.inputs, "inputs")
    slopes = call.gradients([y], call.inputs, [ones_like(y)], strict, True)
    w = [ones_like(x).requires_grad_() for x in call.inputs]
    rows = call.gradients(slopes, call.inputs, w, strict, True)
    found = call.gradients(rows, w, weights, strict, create_graph)
    return _outputs(call, create_graph), call.packed(finished(found, create_graph))


def _outputs(call: Call, create_graph: bool) -> Any:
    found = finished(call.outputs, create_graph)
    return found[0] if call.one_output else tuple(found)
