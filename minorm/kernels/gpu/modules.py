"""The modules of the gpu backend. Families without kernels here use the reference, which CuPy can run."""

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
