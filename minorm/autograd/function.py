"""What a custom Function is written with, at PyTorch's path; minorm/graph/context.py and custom_function.py hold it."""

from minorm.graph.context import Context, once_differentiable
from minorm.graph.custom_function import Function

__all__ = ["Context", "Function", "once_differentiable"]
