"""PyTorch's place for what a Function of one's own is written with; minorm/graph/context.py holds it."""

from minorm.graph.context import Context, Function, once_differentiable

__all__ = ["Context", "Function", "once_differentiable"]
