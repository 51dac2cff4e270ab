"""Backend cpu."""

from minorm.kernels.cpu import conv, elementwise, memory, norm, pool, update
