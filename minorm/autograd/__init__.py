"""Gradients, as in PyTorch's `autograd`. Jacobians and Hessians are in `functional`.

The package minorm/graph has the code of everything but `functional`.
"""

from minorm.autograd import function, functional
from minorm.graph.context import once_differentiable
from minorm.graph.custom_function import Function
from minorm.graph.differentiation import Variable, backward, grad
from minorm.graph.grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled

__all__ = [
    "Function",
    "Variable",
    "backward",
    "enable_grad",
    "function",
    "functional",
    "grad",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "once_differentiable",
    "set_grad_enabled",
]
