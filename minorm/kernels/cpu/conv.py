"""Convolution on the CPU: the reference, until the kernel is there."""

from __future__ import annotations

from minorm.kernels.reference.conv import forward, grad_bias, grad_input, grad_weight, output_shape

__all__ = ["forward", "grad_bias", "grad_input", "grad_weight", "output_shape"]
