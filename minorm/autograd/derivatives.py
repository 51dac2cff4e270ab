"""Code that Jacobians and their products share: it copies the inputs, collects the results as tuples, and computes
gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minorm.graph.differentiation import grad
from minorm.graph.grad_mode import enable_grad
from minorm.support.argument_errors import kind_of
from minorm.tensor.creation import ones_like, zeros_like
from minorm.tensor.tensor import Tensor

FUNCTION = "a function that takes Tensors and returns a Tensor, or a tuple of Tensors"
STRICT = "if a result does not depend on an input, True raises a RuntimeError and False gives zeros"
GRAPH = "True records the results in the graph, so that they can be differentiated"


class Call:
    """One call of the function to differentiate, with its inputs and its outputs.

    The inputs are separate from the Tensors that the caller passed. But if create_graph is True, an input that requires
    grad stays connected to the caller's graph.
    """

    def __init__(self, operation: str, func: Callable[..., Any], inputs: Any, create_graph: bool) -> None:
        self.operation, self.one = operation, not isinstance(inputs, (tuple, list))
        given = tensors(operation, "inputs", (inputs,) if self.one else inputs)
        with enable_grad():
            self.inputs = tuple([_apart(x, create_graph) for x in given])
            result = func(*self.inputs)
        self.one_output = not isinstance(result, (tuple, list))
        self.outputs = tensors(operation, "the result of func", (result,) if self.one_output else result)

    def packed(self, results: Sequence[Any]) -> Any:
        """Return one result for each input: a Tensor if the caller passed one Tensor, else a tuple."""
        return results[0] if self.one else tuple(results)

    def single(self) -> Tensor:
        """Return the output, which must be one number."""
        if not self.one_output or self.outputs[0].numel() != 1:
            shapes = " and ".join(str(y.shape) for y in self.outputs)
            raise RuntimeError(f"{self.operation}: func gives shape {shapes}; expected one Tensor of one element")
        return self.outputs[0]

    def weights(self, v: Any, like: Sequence[Tensor], what: str) -> list[Tensor]:
        """Return v as a list of Tensors, after a check that they have the shapes and types of `like`.

        If v is None, `like` must have only one element, and the result is a 1 for this element.
        """
        if v is None:
            if len(like) != 1 or like[0].numel() != 1:
                raise RuntimeError(
                    f"{self.operation}: v is None; expected a vector, because {what} has more than one element"
                )
            return [ones_like(like[0])]
        given = tensors(self.operation, "v", v if isinstance(v, (tuple, list)) else (v,))
        shapes, expected = [x.shape for x in given], [x.shape for x in like]
        if shapes != expected:
            raise RuntimeError(f"{self.operation}: v has shapes {shapes}; expected {expected}, the shapes of {what}")
        for i, (weight, x) in enumerate(zip(given, like, strict=True)):
            if weight.dtype != x.dtype:
                raise TypeError(f"{self.operation}: v[{i}] is {weight.dtype}; expected {x.dtype}, the type of {what}")
        return list(given)

    def gradients(
        self, outputs: Sequence[Any], inputs: Sequence[Any], v: Sequence[Any], strict: bool, create_graph: bool
    ) -> list[Tensor]:
        """Return the gradients of the inputs. If the outputs do not depend on an input, return zeros for it, or raise
        an error if strict is True.
        """
        pairs = [(y, w) for y, w in zip(outputs, v, strict=True) if y.requires_grad]
        if strict and len(pairs) < len(outputs):
            raise RuntimeError(f"{self.operation}: an output does not depend on the inputs; strict=False gives zeros")
        found: Sequence[Any] = [None] * len(inputs)
        if pairs:
            ends, weights = zip(*pairs, strict=True)
            found = grad(ends, inputs, weights, retain_graph=True, create_graph=create_graph, allow_unused=True)
        if strict and any(g is None for g in found):
            raise RuntimeError(f"{self.operation}: the outputs do not depend on an input; strict=False gives zeros")
        if strict and create_graph and not all(g.requires_grad for g in found):
            raise RuntimeError(
                f"{self.operation}: a derivative does not depend on the inputs, so it cannot be differentiated; "
                "strict=False treats the derivative as a constant"
            )
        return [zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def tensors(operation: str, name: str, values: Any) -> tuple[Tensor, ...]:
    """Return the values if all are Tensors; raise TypeError otherwise."""
    for i, value in enumerate(values):
        if not isinstance(value, Tensor):
            raise TypeError(f"{operation}: {name}[{i}] is {kind_of(value)}; expected a Tensor")
    return tuple(values)


def finished(results: Sequence[Tensor], create_graph: bool) -> list[Tensor]:
    """Return the results; unless create_graph is True, detach the results from the graph."""
    return list(results) if create_graph else [x.detach() for x in results]


def _apart(x: Tensor, create_graph: bool) -> Tensor:
    if create_graph and x.requires_grad:
        return x.reshape(x.shape)
    return x.detach().requires_grad_()
