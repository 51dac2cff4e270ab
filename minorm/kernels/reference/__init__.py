"""Backend reference."""

from minorm.kernels.reference import (
    chain,
    conv,
    elementwise,
    indexing,
    matmul,
    memory,
    norm,
    pool,
    random,
    sums,
    update,
)
