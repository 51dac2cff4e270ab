"""The two functions that compute gradients: `backward` adds them to the leaves' `grad`, and `grad` returns them.

Both functions check their arguments. backward.py has the walk on arrays, and recorded.py has the walk on Tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm import devices
from minorm.graph import backward as arrays
from minorm.graph import recorded
from minorm.graph.graph import is_tensor
from minorm.support.argument_errors import kind_of
from minorm.support.documented import documented

GRAPH_KEPT = (
    "True keeps the graph for another backward pass, False frees the graph; None uses the value of create_graph"
)


@documented(
    {},
    tensors="the Tensor or Tensors to differentiate",
    grad_tensors=(
        "for each of tensors, a Tensor or an array with one weight per element; None for Tensors of one element"
    ),
    retain_graph=GRAPH_KEPT,
    create_graph="True records the gradients in the graph, so that they can be differentiated",
    inputs="the Tensors that get a gradient: one, several, or a dict; None is every leaf that requires grad",
)
def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add d(tensors)/d(leaf), weighted by grad_tensors, to leaf.grad of every leaf that requires grad, or only of
    `inputs`.

    Several threads may walk graphs with common leaves at the same time. No gradient is lost. But the order in which
    gradients are added varies, so a sum of more than two gradients may differ in its last bits. Walk each graph in only
    one thread, since the walk frees the graph.

    Example:
        >>> x = mn.tensor([1.0, 2.0], requires_grad=True)
        >>> mn.autograd.backward([x * x, x.sum()], [mn.ones(2), None])
        >>> x.grad
        tensor([3., 5.])
    """
    ends = _several("backward", "tensors", tensors)
    given = _one_for_each("backward", "grad_tensors", grad_tensors, ends)
    weights = _weights("backward", ("tensor", "grad_tensors"), ends, given)
    if ends:
        start(ends, weights, given, retain_graph, create_graph, inputs)


def start(
    ends: Sequence[Any],
    weights: Sequence[Any],
    given: Sequence[Any],
    retain_graph: bool | None,
    create_graph: bool,
    inputs: Any,
) -> None:
    """Start the walk of `backward` at the Tensors `ends`.

    weights  the weights of `ends`, as arrays
    given    the weights that the user passed
    """
    leaves = None if inputs is None else _targets(inputs)
    keep = create_graph if retain_graph is None else bool(retain_graph)
    if create_graph:
        recorded.add_to_leaves(_as_tensors(ends, weights, given), keep, leaves)
    else:
        arrays.add_to_leaves(list(zip(ends, weights, strict=True)), keep, leaves)


def _targets(inputs: Any) -> tuple[Any, ...]:
    """Return the Tensors in `inputs` as a tuple.

    Each Tensor must require grad. retain_grad() is called, so that a Tensor that is not a leaf also gets a gradient.
    """
    found = _several("backward", "inputs", inputs)
    if not found:
        raise RuntimeError("backward: inputs is empty; expected Tensors that require grad, or None for all leaves")
    for i, x in enumerate(found):
        if not x.requires_grad:
            raise RuntimeError(f"backward: inputs[{i}] does not require grad; expected Tensors that require grad")
    for x in found:
        x.retain_grad()
    return found


@documented(
    {},
    outputs="the Tensor or Tensors to differentiate",
    inputs=(
        "the Tensors with respect to which outputs are differentiated: one, several, or a dict; each must require grad"
    ),
    grad_outputs="for each output, a Tensor with one weight per element; None for outputs of one element",
    retain_graph=GRAPH_KEPT,
    create_graph="True records the gradients in the graph, so that they can be differentiated",
    only_inputs="accepted but ignored: only the gradients of inputs are computed",
    allow_unused=(
        "True gives None for an input that the outputs do not depend on; None and False raise an error for such an "
        "input"
    ),
    materialize_grads="True gives zeros for such an input",
)
def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,  # noqa: ARG001
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> Any:
    """Return d(outputs)/d(input) for each input, as a tuple, or as a dict for a dict of inputs. No `.grad` changes.

    Raises RuntimeError if an input does not require grad, or if the outputs do not depend on an input.

    Example:
        >>> x = mn.tensor([1.0, 2.0], requires_grad=True)
        >>> mn.autograd.grad((x * x).sum(), x)
        (tensor([2., 4.]),)
        >>> (slope,) = mn.autograd.grad((x**3).sum(), x, create_graph=True)
        >>> mn.autograd.grad(slope.sum(), x)
        (tensor([ 6., 12.]),)
    """
    ends, starts = _several("autograd.grad", "outputs", outputs), _several("autograd.grad", "inputs", inputs)
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "autograd.grad: allow_unused is False and materialize_grads is True; expected allow_unused=True or None"
        )
    if not starts:
        raise RuntimeError("autograd.grad: inputs is empty; expected Tensors that require grad")
    for i, x in enumerate(starts):
        if not x.requires_grad:
            raise RuntimeError(f"autograd.grad: input {i} does not require grad; expected inputs that require grad")
    given = _one_for_each("autograd.grad", "grad_outputs", grad_outputs, ends)
    weights = _weights("autograd.grad", ("output", "grad_outputs"), ends, given)
    keep = create_graph if retain_graph is None else bool(retain_graph)
    if create_graph:
        results = recorded.gradients_of(starts, _as_tensors(ends, weights, given), keep)
    else:
        results = arrays.gradients_of(starts, list(zip(ends, weights, strict=True)), keep)
    for i, (x, dx) in enumerate(zip(starts, results, strict=True)):
        if dx is None and materialize_grads:
            with devices.on_device_of(x.array):
                results[i] = x.from_array(np.zeros_like(x.array))
        elif dx is None and not allow_unused:
            raise RuntimeError(
                f"autograd.grad: the outputs do not depend on input {i}; expected inputs that the outputs depend on; "
                "allow_unused=True gives None for the others"
            )
    return dict(zip(inputs, results, strict=True)) if isinstance(inputs, dict) else tuple(results)


def _several(operation: str, name: str, values: Any) -> tuple[Any, ...]:
    """Return a tuple of Tensors; `values` may be one Tensor, several Tensors, or a dict of Tensors."""
    if is_tensor(values):
        return (values,)
    if not hasattr(values, "__iter__"):
        raise TypeError(f"{operation}: {name} is {kind_of(values)}; expected a Tensor, or several Tensors")
    found = tuple(values.values() if isinstance(values, dict) else values)
    for i, value in enumerate(found):
        if not is_tensor(value):
            raise TypeError(f"{operation}: {name}[{i}] is {kind_of(value)}; expected a Tensor")
    return found


def _one_for_each(operation: str, name: str, values: Any, ends: Sequence[Any]) -> tuple[Any, ...]:
    """Return the weights as a tuple, one weight for each of `ends`."""
    if values is None:
        return (None,) * len(ends)
    given = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    if len(given) != len(ends):
        raise RuntimeError(f"{operation}: {name} has {len(given)} elements; expected {len(ends)}, one for each tensor")
    return given


def _weights(operation: str, names: tuple[str, str], ends: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """Return an array for each output: the weights of the output's elements."""
    pairs = enumerate(zip(ends, given, strict=True))
    return [_weights_of(operation, *names, i, output, weight) for i, (output, weight) in pairs]


def _weights_of(operation: str, what: str, name: str, i: int, output: Any, weight: Any) -> Any:
    """Return an array with the weights of one output's elements."""
    if not output.requires_grad:
        raise RuntimeError(
            f"{operation}: {what} {i} does not require grad; expected a result that was computed from Tensors that "
            "require grad"
        )
    if weight is None:
        if output.array.size != 1:
            raise RuntimeError(
                f"{operation}: {what} {i} has shape {output.shape}; expected one element, or weights in {name}"
            )
        with devices.on_device_of(output.array):
            return np.ones_like(output.array)
    array = weight.array if is_tensor(weight) else weight
    if not hasattr(array, "dtype"):
        raise TypeError(f"{operation}: {name}[{i}] is {kind_of(weight)}; expected a Tensor or None")
    if not devices.same_device(array, output.array):
        raise RuntimeError(
            f"{operation}: {name}[{i}] is on {devices.device_of(array)}; expected {output.device}, the device of the "
            "tensor"
        )
    if array.shape != output.shape or array.dtype != output.dtype:
        raise ValueError(
            f"{operation}: {name}[{i}] is {array.dtype} of shape {array.shape}; expected {output.dtype} of "
            f"shape {output.shape}"
        )
    return array


def _as_tensors(ends: Sequence[Any], weights: Sequence[Any], given: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return pairs (output, weights), in which the output and the weights are Tensors.

    If the user passed the weights as a Tensor, the pair has the same Tensor, which may be part of the graph.
    """
    pairs = zip(ends, weights, given, strict=True)
    return [(y, v if is_tensor(v) else y.from_array(array)) for y, array, v in pairs]


@documented({}, data="a Tensor", requires_grad="True makes backward() store a gradient in the Tensor")
def Variable(data: Any, requires_grad: bool = False) -> Any:
    """Return the Tensor `data`, detached from its graph; older programs call this function for each batch.

    Example:
        >>> mn.autograd.Variable(mn.ones(2), requires_grad=True).requires_grad
        True
    """
    return data.detach().requires_grad_(requires_grad)
