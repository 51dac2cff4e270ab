"""Tensor, its methods, and functions of Tensors."""
