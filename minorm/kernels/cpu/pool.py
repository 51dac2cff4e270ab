"""Pooling on the CPU: the reference, until the kernel is there."""

from __future__ import annotations

from minorm.kernels.reference.pool import avg_backward, avg_forward, max_backward, max_forward, output_shape

__all__ = ["avg_backward", "avg_forward", "max_backward", "max_forward", "output_shape"]
