"""Backend reference."""

from minorm.kernels.reference import conv, elementwise, memory, norm, pool, update
