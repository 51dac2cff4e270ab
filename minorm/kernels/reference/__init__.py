"""The reference backend: the formulas of all kernels in NumPy."""

from minorm.kernels.reference import (
    chain,
    conv,
    copying,
    elementwise,
    indexing,
    integers,
    matmul,
    memory,
    norm,
    pool,
    random,
    recurrent,
    sums,
    update,
)
