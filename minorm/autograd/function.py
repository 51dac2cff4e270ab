"""Custom operations, as in PyTorch's `autograd.function`; minorm/graph/custom_function.py and context.py have them."""

from minorm.graph.context import Context, once_differentiable
from minorm.graph.custom_function import Function

__all__ = ["Context", "Function", "once_differentiable"]
