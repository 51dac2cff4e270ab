"""PyTorch's place for the parts of a custom Function; minorm/graph/context.py and custom_function.py hold them."""

from minorm.graph.context import Context, once_differentiable
from minorm.graph.custom_function import Function

__all__ = ["Context", "Function", "once_differentiable"]
