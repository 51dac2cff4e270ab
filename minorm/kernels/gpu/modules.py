"""The modules of the gpu backend. Functions without kernels here come from the reference, which runs on CuPy too."""

from minorm.kernels.gpu import (
    clipping,
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
    "clipping", "conv", "copying", "elementwise", "indexing", "integers", "matmul", "memory", "norm", "pool", "random",
    "recurrent", "sums", "update",
]  # fmt: skip
