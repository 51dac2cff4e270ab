"""The modules of backend gpu. A family without kernels here is the reference's, whose NumPy functions CuPy answers."""

from minorm.kernels.gpu import (
    conv,
    copying,
    elementwise,
    indexing,
    matmul,
    memory,
    norm,
    pool,
    random,
    recurrent,
    sums,
    update,
)
from minorm.kernels.reference import integers

__all__ = [
    "conv", "copying", "elementwise", "indexing", "integers", "matmul", "memory", "norm", "pool", "random", "recurrent",
    "sums", "update",
]  # fmt: skip
