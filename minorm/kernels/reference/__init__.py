"""Backend reference."""

from minorm.kernels.reference import conv, elementwise, indexing, matmul, memory, norm, pool, random, sums, update
