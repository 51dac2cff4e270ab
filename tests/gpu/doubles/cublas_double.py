"""A double of cupy.cuda.cublas: general products of matrices in host memory, by address, as cuBLAS has them.

It takes the arguments of CuPy 14.2, columns first as in cuBLAS, and refuses types and steps that cuBLAS refuses.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import cupy_graphs
import numpy as np
from cublas_types import (
    CUBLAS_COMPUTE_32F,
    CUBLAS_COMPUTE_32F_FAST_TF32,
    CUBLAS_COMPUTE_64F,
    CUBLAS_GEMM_DEFAULT,
    CUBLAS_OP_N,
    CUBLAS_OP_T,
    HANDLE,
    TAKEN,
    at,
    matrix_at,
)
from cupy_cuda import Current, transfers

__all__ = [
    "CUBLAS_COMPUTE_32F", "CUBLAS_COMPUTE_32F_FAST_TF32", "CUBLAS_COMPUTE_64F", "CUBLAS_GEMM_DEFAULT", "CUBLAS_OP_N",
    "CUBLAS_OP_T", "gemmEx", "gemmStridedBatchedEx",
]  # fmt: skip

used: list[int] = []  # the type computed in of each product


class CUBLASError(RuntimeError):
    """The exception that CuPy raises for a status that is not success."""


def gemmEx(
    handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int, lda: int, B: int,
    Btype: int, ldb: int, beta: int, C: int, Ctype: int, ldc: int, computeType: int, algo: int,
) -> None:  # fmt: skip
    """C = alpha * op(A) op(B) + beta * C, all of them columns one behind the other."""
    gemmStridedBatchedEx(
        handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype, ldb, 0, beta, C, Ctype, ldc, 0, 1,
        computeType, algo,
    )  # fmt: skip


def gemmStridedBatchedEx(
    handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int, lda: int,
    strideA: int, B: int, Btype: int, ldb: int, strideB: int, beta: int, C: int, Ctype: int, ldc: int, strideC: int,
    batchCount: int, computeType: int, algo: int,
) -> None:  # fmt: skip
    """The same `batchCount` times, each so many elements further on."""
    if Current.capture is not None:
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
    _product(
        handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB, beta, C, Ctype, ldc,
        strideC, batchCount, computeType, algo,
    )  # fmt: skip


class Library:
    """libcublas as ctypes has it: numbers come as the C types that they are."""

    @staticmethod
    def cublasGemmEx(*args: Any) -> int:
        kinds = [ctypes.c_void_p, *[ctypes.c_int] * 5, ctypes.c_void_p, *_MATRIX, *_MATRIX, ctypes.c_void_p, *_MATRIX]
        h, ta, tb, m, n, k, one, a, ta_, sa, b, tb_, sb, add, c, tc, sc, how, algo = _values(args, kinds)
        _product(h, ta, tb, m, n, k, one, a, ta_, sa, 0, b, tb_, sb, 0, add, c, tc, sc, 0, 1, how, algo)
        return 0

    @staticmethod
    def cublasGemmStridedBatchedEx(*args: Any) -> int:
        stack = [*_MATRIX, ctypes.c_longlong]
        kinds = [ctypes.c_void_p, *[ctypes.c_int] * 5, ctypes.c_void_p, *stack, *stack, ctypes.c_void_p, *stack]
        _product(*_values(args, [*kinds, ctypes.c_int]))
        return 0

    @staticmethod
    def cublasSetStream_v2(handle: Any, stream: Any) -> int:
        assert (handle.value, stream.value) == (HANDLE, Current.streams[Current.index])
        return 0

    @staticmethod
    def cublasSetWorkspace_v2(handle: Any, memory: Any, size: Any) -> int:
        assert handle.value == HANDLE
        assert memory.value
        assert size.value >= 4 << 20
        return 0


_MATRIX = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]


def _values(args: Any, kinds: list[Any]) -> list[Any]:
    assert [type(a) for a in args] == [*kinds, ctypes.c_int, ctypes.c_int]
    return [a.value for a in args]


def _product(*args: Any) -> None:
    """The product, now; and while a stream is captured written down, with the arrays whose addresses it has."""
    used_memory = cupy_graphs.memory_at((args[7], args[11], args[16]), Current)
    cupy_graphs.recorded(functools.partial(_run, used_memory), Current)(*args)


def _run(
    used_memory: Any, handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int,
    lda: int, strideA: int, B: int, Btype: int, ldb: int, strideB: int, beta: int, C: int, Ctype: int, ldc: int,
    strideC: int, batchCount: int, computeType: int, algo: int,
) -> None:  # fmt: skip
    """`used_memory`: a graph that replays this keeps the arrays, of which a product gets addresses alone."""
    numbers = [transa, transb, m, n, k, lda, ldb, ldc, strideA, strideB, strideC, batchCount, alpha, A, B, beta, C]
    assert all(type(number) is int for number in numbers)
    assert (handle, algo) == (HANDLE, CUBLAS_GEMM_DEFAULT)
    if Atype != Btype or (Atype, Ctype) not in TAKEN[computeType]:
        raise CUBLASError("CUBLAS_STATUS_NOT_SUPPORTED")
    if min(m, n, k, batchCount) < 1 or lda < (k if transa else m) or ldb < (n if transb else k) or ldc < m:
        raise CUBLASError("CUBLAS_STATUS_INVALID_VALUE")
    compute: Any = np.float64 if computeType == CUBLAS_COMPUTE_64F else np.float32
    one, add = (at(address, np.dtype(compute), (1,))[0] for address in (alpha, beta))
    for i in range(batchCount):
        a = matrix_at(A, Atype, i * strideA, lda, *((k, m) if transa else (m, k))).astype(compute)
        b = matrix_at(B, Btype, i * strideB, ldb, *((n, k) if transb else (k, n))).astype(compute)
        c = matrix_at(C, Ctype, i * strideC, ldc, m, n)
        with np.errstate(all="ignore"):
            result = one * ((a.T if transa else a) @ (b.T if transb else b))
            c[...] = (result if add == 0 else result + add * c.astype(compute)).astype(c.dtype)
    used.append(computeType)
    transfers.launches["gemm"] += 1
