"""A double of the library cublasLt, as ctypes has it: products of matrices with a bias, or with sums of their rows.

Numbers of attributes, their sizes and what a status means are those of cublasLt.h. It refuses matrices that do not fit
each other, attributes of another size, and sums of rows in float64: for a bias PyTorch has all four types from it.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from typing import Any, ClassVar

import cupy_graphs
import numpy as np
from cublas_types import CUBLAS_COMPUTE_64F, HANDLE, TAKEN, TYPES, at, matrix_at
from cupy_cuda import Current, transfers

INVALID, UNSUPPORTED = 7, 15  # CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED
DESCRIPTION = {3: 4, 4: 4, 7: 4, 8: 8}  # TRANSA, TRANSB, EPILOGUE, BIAS_POINTER, and how many bytes they have
PREFERENCE = {1: 8, 5: 4, 6: 4, 7: 4, 8: 4}  # MAX_WORKSPACE_BYTES, MIN_ALIGNMENT_A_BYTES to _D_BYTES
DEFAULT, BIAS, BGRADB = 1, 4, 512
ALGORITHM = 0xA160
SCRATCH = 4096
refused: set[int] = set()  # epilogues that it has no algorithm for; a test may add some
used: list[tuple[int, int]] = []  # the epilogue of each product and the type that it is computed in
asked: list[int] = []  # the epilogue of each question for an algorithm


class LtLibrary:
    """Functions give a status; numbers come as the C types that they are."""

    made: ClassVar[dict[int, dict[Any, Any]]] = {}
    _numbers = itertools.count(0x1000, 16)

    @classmethod
    def _create(cls, to: Any, **fields: Any) -> int:
        number = next(cls._numbers)
        cls.made[number] = fields
        ctypes.c_void_p.from_address(to.value).value = number
        return 0

    @classmethod
    def _set(cls, descriptor: Any, attribute: Any, value: Any, size: Any, sizes: dict[int, int]) -> int:
        assert (type(attribute), type(size)) == (ctypes.c_int, ctypes.c_size_t)
        if sizes.get(attribute.value) != size.value:
            return INVALID
        content = (ctypes.c_char * size.value).from_address(value.value)
        cls.made[descriptor.value][attribute.value] = int.from_bytes(content.raw, "little")
        return 0

    @classmethod
    def cublasLtMatmulDescCreate(cls, to: Any, compute: Any, scale: Any) -> int:
        return cls._create(to, compute=compute.value, scale=scale.value)

    @classmethod
    def cublasLtMatmulDescSetAttribute(cls, *args: Any) -> int:
        return cls._set(*args, DESCRIPTION)

    @classmethod
    def cublasLtMatrixLayoutCreate(cls, to: Any, kind: Any, rows: Any, columns: Any, step: Any) -> int:
        assert (type(rows), type(columns), type(step)) == (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64)
        if min(rows.value, columns.value) < 1 or step.value < rows.value:
            return INVALID
        return cls._create(to, kind=kind.value, shape=(rows.value, columns.value), step=step.value)

    @classmethod
    def cublasLtMatmulPreferenceCreate(cls, to: Any) -> int:
        return cls._create(to)

    @classmethod
    def cublasLtMatmulPreferenceSetAttribute(cls, *args: Any) -> int:
        return cls._set(*args, PREFERENCE)

    @classmethod
    def _destroy(cls, descriptor: Any) -> int:
        del cls.made[descriptor.value]
        return 0

    cublasLtMatmulDescDestroy = cublasLtMatrixLayoutDestroy = cublasLtMatmulPreferenceDestroy = _destroy

    @classmethod
    def cublasLtMatmulAlgoGetHeuristic(
        cls, handle: Any, description: Any, a: Any, b: Any, c: Any, d: Any, preference: Any, wanted: Any, results: Any,
        count: Any,
    ) -> int:  # fmt: skip
        """One algorithm; its number tells the product for which it was chosen."""
        assert (handle.value, wanted.value) == (HANDLE, 1)
        what, *layouts = (cls.made[part.value] for part in (description, a, b, d))
        assert c.value == d.value
        epilogue = what.get(7, DEFAULT)
        asked.append(epilogue)
        ctypes.c_int.from_address(count.value).value = 0
        if not _fits(what, *layouts):
            return INVALID
        kinds = [layout["kind"] for layout in layouts]
        if kinds[0] != kinds[1] or (kinds[0], kinds[2]) not in TAKEN[what["compute"]] or epilogue in refused:
            return UNSUPPORTED
        if what["compute"] == CUBLAS_COMPUTE_64F and epilogue == BGRADB:
            return UNSUPPORTED
        assert epilogue in (DEFAULT, BIAS, BGRADB)
        promised = cls.made[preference.value]
        assert promised[1] >= SCRATCH
        words = (ctypes.c_uint64 * 8).from_address(results.value)
        words[:] = [ALGORITHM, description.value, *(promised[i] for i in PREFERENCE if i > 1), what[8], 0]
        ctypes.c_size_t.from_address(results.value + 64).value = SCRATCH if epilogue == BGRADB else 0
        ctypes.c_int.from_address(results.value + 72).value = 0
        ctypes.c_int.from_address(count.value).value = 1
        return 0

    @classmethod
    def cublasLtMatmul(
        cls: Any, handle: Any, description: Any, alpha: Any, A: Any, a: Any, B: Any, b: Any, beta: Any, C: Any, c: Any,
        D: Any, d: Any, algorithm: Any, scratch: Any, size: Any, stream: Any,
    ) -> int:  # fmt: skip
        """D = alpha * op(A) op(B) with its epilogue."""
        assert handle.value == HANDLE
        assert (C.value, c.value) == (D.value, d.value)
        assert (stream.value or 0) == Current.streams[Current.index]
        words = (ctypes.c_uint64 * 8).from_address(algorithm.value)
        assert (words[0], words[1]) == (ALGORITHM, description.value)
        what, *layouts = (dict(cls.made[part.value]) for part in (description, a, b, d))
        assert size.value == (SCRATCH if what[7] == BGRADB else 0)
        assert bool(scratch.value) == bool(size.value)
        addresses = A.value, B.value, D.value, what[8]
        assert not any(address % promised for address, promised in zip(addresses[:3], words[2:5], strict=True))
        assert not what[8] % min(words[6] & -words[6], 256)  # the bias lies as well as in the question
        compute: Any = np.float64 if what["compute"] == CUBLAS_COMPUTE_64F else np.float32
        factors = [at(address.value, np.dtype(compute), (1,))[0] for address in (alpha, beta)]
        assert factors == [1, 0]
        used_memory = cupy_graphs.memory_at((*addresses, scratch.value or 0), Current)
        cupy_graphs.recorded(functools.partial(_run, used_memory), Current)(what, layouts, addresses, compute)
        return 0

    @staticmethod
    def cublasLtCreate(*_: Any) -> int:
        raise AssertionError("cuBLAS's own handle will do")


def _fits(what: Any, a: Any, b: Any, d: Any) -> bool:
    """Do the shapes belong together?"""
    first, second = (layout["shape"][::-1] if what.get(turn) else layout["shape"] for layout, turn in ((a, 3), (b, 4)))
    return bool(first[1] == second[0] and d["shape"] == (first[0], second[1]))


def _run(used_memory: Any, what: Any, layouts: Any, addresses: Any, compute: Any) -> None:
    """`used_memory`: a graph that replays this keeps the arrays, of which a product gets addresses alone."""
    a, b, d = (
        matrix_at(address, layout["kind"], 0, layout["step"], *layout["shape"])
        for address, layout in zip(addresses, layouts, strict=False)
    )
    first, second = ((x.T if what[turn] else x).astype(compute) for x, turn in ((a, 3), (b, 4)))
    vector = at(addresses[3], TYPES[layouts[2]["kind"]], (d.shape[0] if what[7] == BIAS else d.shape[1],))
    with np.errstate(all="ignore"):
        result = first @ second
        if what[7] == BIAS:
            result += vector.astype(compute)[:, None]
        else:
            vector[...] = second.sum(axis=0, dtype=compute).astype(vector.dtype)
        d[...] = result.astype(d.dtype)
    used.append((what[7], what["compute"]))
    transfers.launches["gemm"] += 1
