"""Backend cpu."""

from minorm.kernels.cpu import conv, elementwise, matmul, memory, norm, pool, sums, update
from minorm.kernels.reference import indexing
