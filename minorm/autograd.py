"""PyTorch's place for the graph's own names; minorm/graph holds them."""

from minorm.graph.backward import Variable, backward, grad
from minorm.graph.grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from minorm.graph.graph import Function

__all__ = [
    "Function",
    "Variable",
    "backward",
    "enable_grad",
    "grad",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
]
