"""Convolution by cuDNN, where nvidia-cudnn-frontend is installed: a graph of one node for each set of shapes.

This file is written from cuDNN's documentation. The frontend (1.12) finds its graphs valid; none has run on a device
yet. Each function gives None where cuDNN is not there or has no plan, and conv.py then takes columns. Plans that add up
in an order of their own are left out, and for float32 those that round to fewer bits (TF32): results are as repeatable
and as exact as those by columns.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import cupy
import numpy as np

from minorm import dtypes
from minorm.kernels.gpu.launch import is_aligned
from minorm.kernels.gpu.operands import plain
from minorm.kernels.reference.conv import output_shape

try:
    import cudnn
except (ImportError, OSError):  # the second where the frontend is there without cuDNN itself
    cudnn = None

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

_TYPES = {dtypes.float16: "HALF", dtypes.bfloat16: "BFLOAT16", dtypes.float32: "FLOAT"}


class Windows(NamedTuple):
    """How a kernel goes over an image, one number an axis."""

    stride: Ints
    padding: Pairs
    dilation: Ints


class Plan(NamedTuple):
    """A graph ready to run: its two inputs and its output, and the bytes it needs besides."""

    graph: Any
    tensors: tuple[Any, Any, Any]
    workspace: int


def forward(x: Any, w: Any, b: Any, stride: Ints, padding: Pairs, dilation: Ints) -> Any:
    """y = W * x + b; channels of w tell the groups, for cuDNN too."""
    out = output_shape(x.shape[2:], w.shape[2:], stride, padding, dilation)
    return _result("conv_fprop", x, w, (x.shape[0], w.shape[0], *out), Windows(stride, padding, dilation), b)


def grad_input(dy: Any, w: Any, x_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, b: Any) -> Any:
    """dx = W^T * dy + b."""
    return _result("conv_dgrad", dy, w, x_shape, Windows(stride, padding, dilation), b)


def grad_weight(dy: Any, x: Any, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Any:
    """dW = dy * x."""
    return _result("conv_wgrad", x, dy, w_shape, Windows(stride, padding, dilation), None)


def _result(name: str, first: Any, second: Any, shape: Ints, windows: Windows, b: Any) -> Any:
    if cudnn is None or first.dtype not in _TYPES or any(pad < 0 for pair in windows.padding for pad in pair):
        return None
    plan = _plan(name, first.dtype, first.data.device_id, first.shape, second.shape, shape, windows)
    if plan is None:
        return None
    first, second = (x if is_aligned(x) else x.copy() for x in (plain(first), plain(second)))
    out = cupy.empty(shape, first.dtype)
    room = cupy.empty(plan.workspace, np.uint8)
    handle = _handle(first.data.device_id)
    cudnn.set_stream(handle=handle, stream=cupy.cuda.get_current_stream().ptr)
    addresses = [x.data.ptr for x in (first, second, out)]
    plan.graph.execute(dict(zip(plan.tensors, addresses, strict=True)), room.data.ptr, handle=handle)
    if b is not None:
        out += b.reshape(-1, *[1] * (len(shape) - 2))
    return out


@functools.lru_cache(maxsize=1024)
def _plan(name: str, dtype: Any, device: int, first: Ints, second: Ints, result: Ints, windows: Windows) -> Plan | None:
    """The graph of one convolution of dense arrays of these shapes; None where cuDNN has none."""
    try:
        return _built(name, dtype, device, _images(first), _images(second), _images(result), _of_images(windows))
    except (RuntimeError, ImportError, cudnn.cudnnGraphNotSupportedError):
        return None


def _built(name: str, dtype: Any, device: int, first: Ints, second: Ints, result: Ints, windows: Windows) -> Plan:
    kind = getattr(cudnn.data_type, _TYPES[dtype])
    wide = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide, handle=_handle(device)
    )
    inputs = {"conv_fprop": ("image", "weight"), "conv_dgrad": ("loss", "filter"), "conv_wgrad": ("image", "loss")}
    a, b = (
        graph.tensor(name=label, dim=list(shape), stride=_steps(shape), data_type=kind)
        for label, shape in zip(("first", "second"), (first, second), strict=True)
    )
    out = getattr(graph, name)(
        **dict(zip(inputs[name], (a, b), strict=True)),
        pre_padding=[low for low, _ in windows.padding],
        post_padding=[high for _, high in windows.padding],
        stride=list(windows.stride),
        dilation=list(windows.dilation),
    )
    out.set_output(True).set_data_type(kind).set_dim(list(result)).set_stride(_steps(result))
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    note = cudnn.numerical_note
    fewer_bits = [note.TENSOR_CORE, note.DOWN_CONVERT_INPUTS] if dtype == dtypes.float32 else []
    graph.deselect_numeric_notes([note.NONDETERMINISTIC, note.REDUCED_PRECISION_REDUCTION, *fewer_bits])
    graph.check_support()
    graph.build_plans()
    return Plan(graph, (a, b, out), graph.get_workspace_size())


@functools.cache
def _handle(device: int) -> Any:
    """cuDNN's handle of a device, which is the current one."""
    del device
    return cudnn.create_handle()


def _images(shape: Ints) -> Ints:
    """Signals as images of one row: cuDNN has no convolution along one axis."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape


def _of_images(windows: Windows) -> Windows:
    if len(windows.stride) > 1:
        return windows
    return Windows((1, *windows.stride), ((0, 0), *windows.padding), (1, *windows.dilation))


def _steps(shape: Ints) -> list[int]:
    """The steps of an array in C order, in elements."""
    steps = [1]
    for length in reversed(shape[1:]):
        steps.append(steps[-1] * length)
    return steps[::-1]
