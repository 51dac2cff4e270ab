"""Matrix products by cuBLASLt. The same kernel also adds a bias to the rows, or computes the sums of a's rows.

    product(a, b, out, bias, ADD_BIAS)      out = a @ b + bias, rounded once
    product(a, b, out, sums, ADD_UP_ROWS)   out = a @ b and sums = a.sum(axis=1)

A call returns False and computes nothing if the library is missing or has no algorithm. The algorithm is the first
choice of the library's heuristics. This choice is kept, and it depends only on shapes, types and steps. CuPy has no
binding of these functions, so ctypes calls them. This works in a CUDA graph as well, since scratch memory is an
argument.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import weakref
from typing import Any, NamedTuple

import cupy

from minorm.devices import dtypes
from minorm.kernels.gpu import memory

ADD_BIAS, ADD_UP_ROWS = 4, 512  # CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADB
SCRATCH = 32 << 20  # the most bytes for an algorithm; NVIDIA recommends this for the largest devices
ALIGNED = 256  # bytes; algorithms do not use a larger alignment

_TURN_A, _TURN_B, _EPILOGUE, _BIAS = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
_MOST_SCRATCH, _ALIGNMENTS = 1, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t; alignments: A, B, C, D

_address, _int, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_SIGNATURES = {
    "cublasLtMatmulDescCreate": (_address, _int, _int),
    "cublasLtMatmulDescSetAttribute": (_address, _int, _address, _size),
    "cublasLtMatmulDescDestroy": (_address,),
    "cublasLtMatrixLayoutCreate": (_address, _int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatrixLayoutDestroy": (_address,),
    "cublasLtMatmulPreferenceCreate": (_address,),
    "cublasLtMatmulPreferenceSetAttribute": (_address, _int, _address, _size),
    "cublasLtMatmulPreferenceDestroy": (_address,),
    "cublasLtMatmulAlgoGetHeuristic": (*[_address] * 7, _int, _address, _address),
    "cublasLtMatmul": (*[_address] * 14, _size, _address),
}


class Matrix(NamedTuple):
    """A matrix as cuBLAS describes it: its type, whether it is transposed, and the step from one line to the next."""

    kind: int
    turned: int
    step: int


class Question(NamedTuple):
    """The key of a plan. cuBLAS reads matrices by columns, so the product is out^T = b^T a^T."""

    sizes: tuple[int, int, int]  # columns and rows of the result, and the length of the sums
    first: Matrix  # b
    second: Matrix  # a
    result: int  # the type of the result
    compute: int
    scale: int  # the type of the factors
    epilogue: int
    alignments: tuple[int, ...]  # alignments of first, second, result and bias, in bytes


class Heuristic(ctypes.Structure):
    """The struct cublasLtMatmulHeuristicResult_t of cuBLASLt."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("scratch", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Plan:
    """A product of certain shapes: its descriptors and its algorithm."""

    def __init__(self, asked: Question, handle: int) -> None:
        columns, rows, length = asked.sizes
        first, second = asked.first, asked.second
        self.description = _created(self, "MatmulDesc", asked.compute, asked.scale)
        for attribute, value in ((_TURN_A, first.turned), (_TURN_B, second.turned), (_EPILOGUE, asked.epilogue)):
            _set("MatmulDesc", self.description, attribute, ctypes.c_int32(value))
        self._bias = ctypes.c_void_p(asked.alignments[3])  # an address, from which the heuristics read the alignment
        _set("MatmulDesc", self.description, _BIAS, self._bias)
        shapes = (columns, length), (length, rows)
        self.layouts = [
            _created(self, "MatrixLayout", matrix.kind, *(shape[::-1] if matrix.turned else shape), matrix.step)
            for matrix, shape in zip((first, second), shapes, strict=True)
        ]
        self.layouts.append(_created(self, "MatrixLayout", asked.result, columns, rows, columns))
        self.found = _first_algorithm(self, asked, handle)

    def run(self, handle: int, one: int, zero: int, a: int, b: int, out: int, bias: int) -> None:
        """Start the product on the current stream. `one` and `zero` are the addresses of the factors 1 and 0 on the
        host, and the other arguments are addresses of arrays.
        """
        if self._bias.value != bias:
            self._bias.value = bias
            _set("MatmulDesc", self.description, _BIAS, self._bias)
        first, second, result = self.layouts
        scratch = memory.empty((self.found.scratch,), dtypes.uint8) if self.found.scratch else None
        room = 0 if scratch is None else scratch.data.ptr
        stream = cupy.cuda.get_current_stream().ptr
        _checked(
            "cublasLtMatmul", handle, self.description, one, b, first, a, second, zero, out, result, out, result,
            ctypes.addressof(self.found), room, self.found.scratch, stream,
        )  # fmt: skip


def plan(asked: Question, device: int, handle: int) -> Plan | None:
    """Return a plan, or None if cuBLASLt has no algorithm. Each device and thread has separate plans, since a run
    changes its plan.
    """
    return _plan(asked, device, handle, threading.get_ident())


@functools.lru_cache(maxsize=1024)
def _plan(asked: Question, device: int, handle: int, thread: int) -> Plan | None:  # noqa: ARG001
    if _library() is None:
        return None
    try:
        return Plan(asked, handle)
    except RuntimeError:  # the status: this product is not supported with this epilogue
        return None


def alignment(address: int) -> int:
    """Return the largest power of 2 that divides an address, up to 256."""
    return min(address & -address, ALIGNED)


def _first_algorithm(plan: Plan, asked: Question, handle: int) -> Heuristic:
    """Return the algorithm that the library's heuristics rank first."""
    preference = _created(plan, "MatmulPreference")
    _set("MatmulPreference", preference, _MOST_SCRATCH, ctypes.c_size_t(SCRATCH))
    first, second, result, _ = asked.alignments
    for attribute, value in zip(_ALIGNMENTS, (first, second, result, result), strict=True):
        _set("MatmulPreference", preference, attribute, ctypes.c_uint32(value))
    found, count = Heuristic(), ctypes.c_int(0)
    a, b, c = plan.layouts
    _checked(
        "cublasLtMatmulAlgoGetHeuristic", handle, plan.description, a, b, c, c, preference, 1,
        ctypes.addressof(found), ctypes.addressof(count),
    )  # fmt: skip
    if count.value < 1 or found.state:
        raise RuntimeError(f"matmul: cuBLASLt has no algorithm: {count.value} found, status {found.state}")
    return found


def _created(owner: Any, what: str, *args: int) -> int:
    """Create a descriptor that is destroyed together with its owner."""
    made = ctypes.c_void_p()
    _checked(f"cublasLt{what}Create", ctypes.addressof(made), *args)
    address = int(made.value or 0)
    weakref.finalize(owner, _checked, f"cublasLt{what}Destroy", address).atexit = False
    return address


def _set(what: str, descriptor: int, attribute: int, value: Any) -> None:
    _checked(f"cublasLt{what}SetAttribute", descriptor, attribute, ctypes.addressof(value), ctypes.sizeof(value))


def _checked(name: str, *args: int) -> None:
    given = [kind(value) for kind, value in zip(_SIGNATURES[name], args, strict=True)]
    status = getattr(_library(), name)(*given)
    if status:
        raise RuntimeError(f"matmul: {name} failed with status {status}; expected status 0")


@functools.cache
def _library() -> Any:
    """Return the library that cuBLAS has loaded, found by its file name, or None if it is missing."""
    version = cupy.cuda.runtime.runtimeGetVersion() // 1000
    try:
        return ctypes.CDLL(f"cublasLt64_{version}.dll" if sys.platform == "win32" else f"libcublasLt.so.{version}")
    except OSError:
        return None
