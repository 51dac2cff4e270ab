"""Matrix products by cuBLAS. It reads 16-bit floats directly, adds up in float32, and rounds results once.

    a @ b                         a stack of matrices times one matrix is one product; two stacks are one call
    product(a, b, out)            `out` has b's type; for 16-bit floats it may be float32, then nothing is rounded
    product(a, b, out, add=True)  added to `out`

float32 is computed in float32, unless TF32 is allowed (kernels/switches.py); CuPy's CUPY_TF32 has no effect here. All
runs on one device, stream and version give the same bits.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import cupy
import numpy as np

from minorm.devices import capture, driver, dtypes
from minorm.kernels import switches
from minorm.kernels.gpu import copying, cublas_lt, elementwise, memory
from minorm.kernels.gpu.cublas import Captured
from minorm.kernels.gpu.operands import plain
from minorm.kernels.gpu.sums import sum_to

Array = Any
_FACTORS = {kind: np.arange(2, dtype=kind) for kind in (np.float32, np.float64)}  # 0 and 1, in the host's memory
_NAMES = {dtypes.float16: "16F", dtypes.bfloat16: "16BF", dtypes.float32: "32F", dtypes.float64: "64F"}


def matmul(a: Array, b: Array) -> Array:
    if not _is_covered(a, b):
        return cupy.matmul(a, b)
    if b.ndim == 1:
        y = matmul(a, b[:, None])
        return y.reshape(y.shape[:-1])
    if a.ndim == 1:
        y = matmul(a[None], b)
        return y.reshape(y.shape[:-2] + y.shape[-1:])
    if b.ndim == 2:
        y = memory.empty((*a.shape[:-1], b.shape[1]), a.dtype)
        product(_matrix(a), b, _matrix(y))
        return y
    stacks = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    y = memory.empty((*stacks, a.shape[-2], b.shape[-1]), a.dtype)
    product(_stack(a, stacks), _stack(b, stacks), y.reshape(-1, *y.shape[-2:]))
    return y


def linear(x: Array, w: Array, b: Array = None) -> Array:
    """Return x @ w.T + b, in one kernel if cuBLASLt has an algorithm. Otherwise 16-bit results are rounded twice."""
    if b is not None and _is_covered(x, w) and b.dtype == x.dtype:
        y = memory.empty((*x.shape[:-1], w.shape[0]), x.dtype)
        if _with_vector(_matrix(x), w.T, _matrix(y), plain(b), cublas_lt.ADD_BIAS):
            return y
    y = matmul(x, w.T)
    if b is None:
        return y
    if b.dtype != y.dtype:
        return y + b
    elementwise.accumulate(y, b)
    return y


def _matrix(x: Array) -> Array:
    """Return x as a matrix, with all axes but the last as one."""
    return x if x.ndim == 2 else copying.reshaped(x, (prod(x.shape[:-1]), x.shape[-1]))


def linear_grads(dy: Array, x: Array, bias: bool) -> tuple[Array, Array]:
    """Return dw = dy.T @ x, and db, the sum of dy's rows. If cuBLASLt has an algorithm, one kernel computes both."""
    if bias and _is_covered(dy, x):
        dw, db = memory.empty((dy.shape[1], x.shape[1]), x.dtype), memory.empty((dy.shape[1],), x.dtype)
        if _with_vector(dy.T, x, dw, db, cublas_lt.ADD_UP_ROWS):
            return dw, db
    return matmul(dy.T, x), sum_to(dy, dy.shape[1:]) if bias else None


def _with_vector(a: Array, b: Array, out: Array, vector: Array, epilogue: int) -> bool:
    """Multiply two matrices by cublas_lt.py, with an epilogue for `vector`. Return False if there is no plan."""
    device = a.data.device_id
    if min(*a.shape, *b.shape) == 1 or (a.dtype == dtypes.bfloat16 and not _has_bfloat16(device)):
        return False  # cuBLAS multiplies vectors, as in PyTorch
    _cublas()
    (a, turn_a, step_a), (b, turn_b, step_b) = _operand(a), _operand(b)
    compute, of_kind, wide = _types(a.dtype, switches.matmul_tf32)
    handle = cupy.cuda.device.get_cublas_handle()
    addresses = b.data.ptr, a.data.ptr, out.data.ptr, vector.data.ptr
    asked = cublas_lt.Question(
        (out.shape[1], out.shape[0], a.shape[1]),
        cublas_lt.Matrix(of_kind, turn_b, step_b),
        cublas_lt.Matrix(of_kind, turn_a, step_a),
        of_kind,
        compute,
        _types(np.dtype(wide), False)[1],
        epilogue,
        tuple(map(cublas_lt.alignment, addresses)),
    )
    plan = cublas_lt.plan(asked, device, handle)
    if plan is None:
        return False
    zero = _FACTORS[wide].ctypes.data
    plan.run(handle, zero + _FACTORS[wide].itemsize, zero, a.data.ptr, b.data.ptr, out.data.ptr, vector.data.ptr)
    return True


def _is_covered(a: Array, b: Array) -> bool:
    """Return True if a and b have the same float type, and at least one element each."""
    return a.dtype == b.dtype and a.dtype in _NAMES and a.size > 0 and b.size > 0


def product(a: Array, b: Array, out: Array, add: bool = False, tf32: bool | None = None) -> None:
    """Set out = a @ b, or with add=True, out += a @ b. The operands are matrices or stacks of equal length.

    `out` is in C order.
    """
    kind = a.dtype
    if kind == dtypes.bfloat16 and not _has_bfloat16(a.data.device_id):
        wide = memory.empty(out.shape, dtypes.float32)
        product(a.astype(dtypes.float32), b.astype(dtypes.float32), wide)
        out[...] = out + wide if add else wide
        return
    cublas = _cublas()
    (a, turn_a, step_a), (b, turn_b, step_b) = _operand(a), _operand(b)
    compute, of_kind, wide = _types(kind, switches.matmul_tf32 if tf32 is None else tf32)
    of_out = _types(out.dtype, False)[1]
    zero = _FACTORS[wide].ctypes.data
    one = zero + _FACTORS[wide].itemsize
    rows, columns = out.shape[-2:]
    handle, sizes = cupy.cuda.device.get_cublas_handle(), (columns, rows, a.shape[-1])
    how = compute, cublas.CUBLAS_GEMM_DEFAULT
    # cuBLAS reads matrices by columns, so it computes out^T = b^T a^T.
    first, second = (b.data.ptr, of_kind, step_b), (a.data.ptr, of_kind, step_a)
    result = one if add else zero, out.data.ptr, of_out, columns
    recording = capture.recording()
    calls: Any = cublas if recording is None else Captured(recording)
    if out.ndim == 2:
        calls.gemmEx(handle, turn_b, turn_a, *sizes, one, *first, *second, *result, *how)
    else:
        next_a, next_b = (x.strides[0] // x.itemsize for x in (a, b))
        stack = *first, next_b, *second, next_a, *result, rows * columns, out.shape[0]
        calls.gemmStridedBatchedEx(handle, turn_b, turn_a, *sizes, one, *stack, *how)


@functools.cache
def _types(kind: Any, tf32: bool) -> tuple[int, int, Any]:
    """Return cuBLAS's constants for the types of the computation and of the elements, and the type of the factors."""
    cublas, wide = _cublas(), np.float64 if kind == dtypes.float64 else np.float32
    compute = cublas.CUBLAS_COMPUTE_64F if wide is np.float64 else cublas.CUBLAS_COMPUTE_32F
    if tf32 and kind == dtypes.float32:
        compute = cublas.CUBLAS_COMPUTE_32F_FAST_TF32
    return compute, getattr(cupy.cuda.runtime, f"CUDA_R_{_NAMES[kind]}"), wide


@functools.cache
def _cublas() -> Any:
    """Return CuPy's module, which loads the library at first use."""
    try:
        return cupy.cuda.cublas
    except ImportError as error:
        error.add_note(f"minorm: products of matrices need cuBLAS: {driver.libraries()}")
        raise


def _operand(x: Array) -> tuple[Array, int, int]:
    """Return x or a copy that cuBLAS can read, whether it is transposed, and the step from one line to the next."""
    rows, columns = x.shape[-2:]
    down, along = x.strides[-2:]
    down, along = down // x.itemsize, along // x.itemsize
    if (along == 1 or columns == 1) and (down >= columns or rows == 1):
        return x, 0, max(1, columns if rows == 1 else down)
    if (down == 1 or rows == 1) and (along >= rows or columns == 1):
        return x, 1, max(1, rows if columns == 1 else along)
    return plain(x), 0, max(1, columns)


def _stack(x: Array, stacks: tuple[int, ...]) -> Array:
    """Return the matrices as one stack. A copy is made only if leading axes are broadcast or have gaps between them."""
    if x.shape[:-2] != stacks:
        x = cupy.broadcast_to(x, (*stacks, *x.shape[-2:]))
    return copying.reshaped(x, (prod(stacks), *x.shape[-2:]))


@functools.cache
def _has_bfloat16(device: int) -> bool:
    """Return True if cuBLAS multiplies bfloat16 on the GPU number `device`."""
    return int(cupy.cuda.Device(device).compute_capability) >= 80
