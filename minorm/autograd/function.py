"""What a custom Function is written with, at PyTorch's path; minorm/graph/context.py holds it."""

from minorm.graph.context import Context, Function, once_differentiable

__all__ = ["Context", "Function", "once_differentiable"]
