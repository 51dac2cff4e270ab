"""Backend reference."""

from minorm.kernels.reference import conv, elementwise, memory, pool, update
