"""Runs a normalization, the addition of a residual and a ReLU in one pass.

    F.batch_norm(x, ..., activation="relu", residual=r)  ==  F.relu(F.batch_norm(x, ...) + r), bit for bit

The single pass reads and writes memory half as often. In a trace the three operations run separately, so that an ONNX
file has a node for each operation. The operations also run separately for a residual without an activation, for a
residual whose type differs from x's, and for statistics over several ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from minorm.functional.activation import relu
from minorm.functional.arguments import float_type
from minorm.graph import trace
from minorm.tensor.tensor import Tensor

Normalization = TypeVar("Normalization", bound=Callable[..., Tensor])


def activated(function: Normalization) -> Normalization:
    """Decorate a normalization as a traced operation with two more keyword arguments, `activation` and `residual`.

    If one pass can compute the result, the normalization gets both arguments. If not, the residual is added and the
    activation is applied after the normalization.
    """
    normalize = trace.operation(function)
    name = function.__name__

    def followed(*args: Any, **kwargs: Any) -> Any:
        activation, residual = kwargs.pop("activation", None), kwargs.pop("residual", None)
        x = args[0] if args else kwargs.get("x")
        if not isinstance(x, Tensor):
            return normalize(*args, **kwargs)
        _check(name, x, activation, residual)
        if is_one_pass(x, activation, residual, kwargs.get("process_group")):
            return normalize(*args, activation=activation, residual=residual, **kwargs)
        y = normalize(*args, **kwargs)
        if residual is not None:
            y = y + residual
        return y if activation is None else relu(y)

    run = trace.operation(function, followed)
    normalize.public = run  # type: ignore[attr-defined]  # the function that a trace calls
    return run


def is_one_pass(x: Tensor, activation: Any, residual: Tensor | None, group: Any = None) -> bool:
    """Return True if one kernel can compute the result. If the residual has another type than x, which autocast allows,
    the kernel cannot.
    """
    same = residual is None or residual.array.dtype == x.array.dtype
    return activation is not None and same and group is None and not is_recorded()


def is_recorded() -> bool:
    """Return True while a trace records operations. A trace needs each operation separately."""
    return trace.state.calls is not None


def _check(operation: str, x: Tensor, activation: Any, residual: Any) -> None:
    if activation not in (None, "relu"):
        raise ValueError(f"{operation}: activation={activation!r}; expected 'relu' or None")
    if residual is not None:
        float_type(operation, "x", x)
        float_type(operation, "residual", residual)
        if residual.shape != x.shape:
            raise ValueError(f"{operation}: residual has shape {residual.shape}; expected x.shape == {x.shape}")
        if residual.dtype != x.dtype and trace.state.cast is None:
            raise TypeError(
                f"{operation}: residual is {residual.dtype}, x is {x.dtype}; expected one type; "
                f"use residual.to(minorm.{x.dtype})"
            )
