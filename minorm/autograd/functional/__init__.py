"""Derivatives of functions: Jacobians, Hessians, and their products with vectors. A product does not compute the whole
matrix.
"""

from minorm.autograd.jacobians import hessian, jacobian
from minorm.autograd.vector_products import hvp, jvp, vhp, vjp

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
