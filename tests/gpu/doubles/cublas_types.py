"""Names of cuBLAS that its doubles share, and matrices as it reads them: columns one behind the other."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_GEMM_DEFAULT = -1
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32F_FAST_TF32 = 68, 70, 77
TYPES = {2: np.dtype(np.float16), 14: np.dtype(ml_dtypes.bfloat16), 0: np.dtype(np.float32), 1: np.dtype(np.float64)}
HANDLE = 0xB1A5
TAKEN = {  # types of the inputs and of the result, by the type computed in
    CUBLAS_COMPUTE_32F: {(2, 2), (2, 0), (14, 14), (14, 0), (0, 0)},
    CUBLAS_COMPUTE_32F_FAST_TF32: {(0, 0)},
    CUBLAS_COMPUTE_64F: {(1, 1)},
}


def matrix_at(address: int, kind: int, offset: int, step: int, rows: int, columns: int) -> Any:
    """A view of rows x columns, each column `step` elements behind the last."""
    dtype = TYPES[kind]
    memory = at(address + offset * dtype.itemsize, dtype, ((columns - 1) * step + rows,))
    return np.lib.stride_tricks.as_strided(memory, (rows, columns), (dtype.itemsize, step * dtype.itemsize))


def at(address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)
