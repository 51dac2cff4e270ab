"""The names of PyTorch's `autograd.function`; minorm/graph/context.py and custom_function.py define them."""

from minorm.graph.context import Context, once_differentiable
from minorm.graph.custom_function import Function

__all__ = ["Context", "Function", "once_differentiable"]
