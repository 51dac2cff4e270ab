"""Defines Context, in which a Function in PyTorch's form saves tensors, and the decorator once_differentiable."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from minorm.graph import graph
from minorm.graph.grad_mode import mode, no_grad
from minorm.graph.graph import is_tensor
from minorm.support.argument_errors import kind_of
from minorm.support.documented import documented


@documented({}, needs="whether each argument of forward wants a gradient")
class Context:
    """The argument `ctx` of forward and backward, which passes values from forward to backward.

    Users may set any attribute of the Context.

    needs_input_grad  a tuple of bools: True for each argument of forward that needs a gradient
    """

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self._to_save: tuple[Any, ...] = ()
        # Pairs (Tensor, None) or (elements of output i, i); None after they were freed.
        self._saved: list[tuple[Any, int | None]] | None = []
        self._dirty: tuple[Any, ...] = ()
        self._constant: tuple[Any, ...] = ()
        self._materialize = True
        self._node: Any = None  # set while backward runs

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep inputs, outputs or other Tensors for backward, which reads them from `ctx.saved_tensors`; None is
        allowed.

        It is an error to change a saved Tensor in place before backward.
        """
        for i, tensor in enumerate(tensors):
            if tensor is not None and not is_tensor(tensor):
                raise TypeError(
                    f"save_for_backward: argument {i} is {kind_of(tensor)}; expected Tensors; keep other values as "
                    "attributes: ctx.name = value"
                )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Do nothing; in PyTorch, this method keeps the tensors for derivatives in forward mode."""

    def mark_non_differentiable(self, *outputs: Any) -> None:
        """Mark the given outputs as not requiring grad."""
        self._constant = outputs

    def mark_dirty(self, *inputs: Any) -> None:
        """Say that forward changes the given inputs in place; forward must also return the given inputs."""
        self._dirty = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """Choose what backward gets for an output without a gradient: zeros if `value` is True, else None."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved Tensors, as Tensors of the graph. Raises RuntimeError if a backward pass has freed them."""
        if self._saved is None:
            raise RuntimeError(
                "saved_tensors: the Tensors were freed by an earlier backward(); call backward(retain_graph=True) to "
                "keep them"
            )
        return tuple([tensor if i is None else self._output(tensor, i) for tensor, i in self._saved])

    def _output(self, tensor: Any, i: int) -> Any:
        return tensor if self._node is None else self._node.output(tensor.array, tensor, i)


class _Once(graph.Function):
    """Returns its first input, which is a gradient, and raises an error if this gradient is differentiated."""

    def forward(self, gradient: Any, *_: Any, name: str) -> Any:
        self.name = name
        return gradient.copy()  # the user's code may hold the Tensor that backward returned

    def backward(self, *_: Any) -> Any:
        raise RuntimeError(
            f"{self.name}: backward is marked once_differentiable, so the gradient cannot be differentiated again; "
            "expected create_graph=False"
        )

    gradient = backward


@documented({}, backward="a static backward(ctx, *gradients)")
def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward that cannot be differentiated. The backward runs without a graph, and an attempt to
    differentiate the result raises an error.

    Write this decorator below @staticmethod.

    Example:
        >>> class Double(mn.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x * 2
        ...
        ...     @staticmethod
        ...     @mn.autograd.once_differentiable
        ...     def backward(ctx, dy):
        ...         return dy * 2
    """

    @functools.wraps(backward)
    def run(ctx: Any, *gradients: Any) -> Any:
        with no_grad():
            results = backward(ctx, *gradients)
        if not mode.recording:
            return results
        several = results if isinstance(results, tuple) else (results,)
        asks = [dy for dy in gradients if dy is not None and dy.requires_grad]
        asks += [x for x in ctx.saved_tensors if x is not None and x.requires_grad]
        if not asks:
            return results
        name = backward.__qualname__.removesuffix(".backward")
        marked = [dx if dx is None else _Once.apply(dx, *asks, name=name) for dx in several]
        return tuple(marked) if isinstance(results, tuple) else marked[0]

    return run
