"""Calls cuBLAS by ctypes during the capture of a CUDA graph, because CuPy refuses to do so.

cuBLAS itself can be captured if it runs on the captured stream, and if its scratch memory stays allocated as long as
the graph. After the capture, CuPy's next product sets cuBLAS's stream again, which also resets the scratch memory.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import cupy

from minorm.devices.capture import Recording

SCRATCH = 32 << 20  # bytes; NVIDIA recommends this for the largest devices

_address, _int, _long = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
_BEFORE = (_address, *[_int] * 5, _address)  # handle, two transposition flags, three sizes, alpha
_MATRIX = (_address, _int, _int)  # address, type, step from line to line
_AFTER = (_int, _int)  # the type of the computation, the algorithm
_KINDS = {
    "cublasGemmEx": (*_BEFORE, *_MATRIX, *_MATRIX, _address, *_MATRIX, *_AFTER),
    "cublasGemmStridedBatchedEx": (
        *(*_BEFORE, *_MATRIX, _long, *_MATRIX, _long, _address, *_MATRIX, _long, _int),
        *_AFTER,
    ),
    "cublasSetStream_v2": (_address, _address),
    "cublasSetWorkspace_v2": (_address, _address, ctypes.c_size_t),
}


class Captured:
    """Has gemmEx and gemmStridedBatchedEx as in cupy.cuda.cublas, for calls that a CUDA graph records."""

    def __init__(self, recording: Recording) -> None:
        self._scratch = recording.scratch(SCRATCH)

    def gemmEx(self, handle: int, *args: int) -> None:
        self._call("cublasGemmEx", handle, *args)

    def gemmStridedBatchedEx(self, handle: int, *args: int) -> None:
        self._call("cublasGemmStridedBatchedEx", handle, *args)

    def _call(self, name: str, handle: int, *args: int) -> None:
        _checked("cublasSetStream_v2", handle, cupy.cuda.get_current_stream().ptr)
        _checked("cublasSetWorkspace_v2", handle, self._scratch.data.ptr, SCRATCH)
        _checked(name, handle, *args)


def _checked(name: str, *args: int) -> None:
    given = [kind(value) for kind, value in zip(_KINDS[name], args, strict=True)]
    status = getattr(_library(), name)(*given)
    if status:
        raise RuntimeError(
            f"matmul: {name} failed with status {status} while a CUDA graph was captured; expected status 0"
        )


@functools.cache
def _library() -> Any:
    """Return the library that CuPy has loaded, found by its file name."""
    version = cupy.cuda.runtime.runtimeGetVersion() // 1000
    return ctypes.CDLL(f"cublas64_{version}.dll" if sys.platform == "win32" else f"libcublas.so.{version}")
