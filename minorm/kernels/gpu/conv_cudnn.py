"""Convolution by cuDNN, where nvidia-cudnn-frontend is installed: a graph of one node for each set of shapes.

This file is written from cuDNN's documentation. The frontend (1.12) finds its graphs valid; none has run on a device
yet. Each function gives None where cuDNN is not there, is switched off (`backends.cudnn.enabled`), or has no plan, and
conv.py then takes columns. Plans that add up in an order of their own are left out, and for float32 those that round to
fewer bits, unless TF32 is allowed: results are as repeatable and as exact as those by columns.

Images stay in the order they come in: channels last in, channels last out, which is what tensor cores read. The other
arrays of a convolution are brought into that order.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, NamedTuple

import cupy
import numpy as np

from minorm.devices import dtypes
from minorm.kernels import switches
from minorm.kernels.gpu.launch import is_aligned
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


def is_used(x: Any, padding: Pairs) -> bool:
    """Is cuDNN asked for convolutions of this type? It cuts no image off."""
    if cudnn is None or not switches.cudnn or x.dtype not in _TYPES:
        return False
    return all(pad >= 0 for pair in padding for pad in pair)


def _result(name: str, first: Any, second: Any, shape: Ints, windows: Windows, b: Any) -> Any:
    if not is_used(first, windows.padding):
        return None
    last = _is_channels_last(first)
    shapes = first.shape, second.shape, shape
    plan = _plan(name, first.dtype, first.data.device_id, *shapes, windows, last, switches.conv_tf32)
    if plan is None:
        return None
    first, second = _in_order(first, last), _in_order(second, last)
    out = _empty(shape, first.dtype, last)
    room = cupy.empty(plan.workspace, np.uint8)
    handle = _handle(first.data.device_id)
    cudnn.set_stream(handle=handle, stream=cupy.cuda.get_current_stream().ptr)
    addresses = [x.data.ptr for x in (first, second, out)]
    plan.graph.execute(dict(zip(plan.tensors, addresses, strict=True)), room.data.ptr, handle=handle)
    if b is not None:
        out += b.reshape(-1, *[1] * (len(shape) - 2))
    return out.copy(order="C") if last and name == "conv_wgrad" else out


def _is_channels_last(x: Any) -> bool:
    """Do the channels of a pixel lie side by side, and pixels and images behind one another?"""
    return bool(not x.flags.c_contiguous and _turned(x).flags.c_contiguous)


def _turned(x: Any) -> Any:
    """A view with the channels as the last axis."""
    return x.transpose(0, *range(2, x.ndim), 1)


def _empty(shape: Ints, dtype: Any, last: bool) -> Any:
    if not last:
        return cupy.empty(shape, dtype)
    axes = len(shape)
    return cupy.empty((shape[0], *shape[2:], shape[1]), dtype).transpose(0, axes - 1, *range(1, axes - 1))


def _in_order(x: Any, last: bool) -> Any:
    """The array itself if its elements lie in this order from a multiple of 16 bytes on, else a copy."""
    if (_turned(x) if last else x).flags.c_contiguous and is_aligned(x):
        return x
    copy = _empty(x.shape, x.dtype, last)
    copy[...] = x
    return copy


@functools.lru_cache(maxsize=1024)
def _plan(
    name: str,
    dtype: Any,
    device: int,
    first: Ints,
    second: Ints,
    result: Ints,
    windows: Windows,
    last: bool,
    tf32: bool,
) -> Plan | None:
    """The graph of one convolution of dense arrays of these shapes; None where cuDNN has none."""
    shapes = _images(first), _images(second), _images(result)
    try:
        return _built(name, dtype, device, *shapes, _of_images(windows), last, tf32)
    except (RuntimeError, ImportError, cudnn.cudnnGraphNotSupportedError):
        return None


def _built(
    name: str,
    dtype: Any,
    device: int,
    first: Ints,
    second: Ints,
    result: Ints,
    windows: Windows,
    last: bool,
    tf32: bool,
) -> Plan:
    kind = getattr(cudnn.data_type, _TYPES[dtype])
    wide = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide, handle=_handle(device)
    )
    inputs = {"conv_fprop": ("image", "weight"), "conv_dgrad": ("loss", "filter"), "conv_wgrad": ("image", "loss")}
    a, b = (
        graph.tensor(name=label, dim=list(shape), stride=_steps(shape, last), data_type=kind)
        for label, shape in zip(("first", "second"), (first, second), strict=True)
    )
    out = getattr(graph, name)(
        **dict(zip(inputs[name], (a, b), strict=True)),
        pre_padding=[low for low, _ in windows.padding],
        post_padding=[high for _, high in windows.padding],
        stride=list(windows.stride),
        dilation=list(windows.dilation),
    )
    out.set_output(True).set_data_type(kind).set_dim(list(result)).set_stride(_steps(result, last))
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    note = cudnn.numerical_note
    fewer_bits = [note.TENSOR_CORE, note.DOWN_CONVERT_INPUTS] if dtype == dtypes.float32 and not tf32 else []
    graph.deselect_numeric_notes([note.NONDETERMINISTIC, note.REDUCED_PRECISION_REDUCTION, *fewer_bits])
    graph.check_support()
    graph.build_plans()
    return Plan(graph, (a, b, out), graph.get_workspace_size())


def _handle(device: int) -> Any:
    """cuDNN's handle of a device, which is the current one; threads that share one would change each other's stream."""
    return _handle_of(device, threading.get_ident())


@functools.cache
def _handle_of(device: int, thread: int) -> Any:  # noqa: ARG001
    return cudnn.create_handle()


def _images(shape: Ints) -> Ints:
    """Signals as images of one row: cuDNN has no convolution along one axis."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape


def _of_images(windows: Windows) -> Windows:
    if len(windows.stride) > 1:
        return windows
    return Windows((1, *windows.stride), ((0, 0), *windows.padding), (1, *windows.dilation))


def _steps(shape: Ints, last: bool) -> list[int]:
    """The steps of a dense array, in elements: C order, or with the channels last."""
    order = [0, *range(2, len(shape)), 1] if last else list(range(len(shape)))
    steps, step = [0] * len(shape), 1
    for axis in reversed(order):
        steps[axis] = step
        step *= shape[axis]
    return steps
