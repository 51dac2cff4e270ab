"""Convolution by cuDNN, where nvidia-cudnn-frontend is installed: a graph for each set of shapes, with a bias in it.

Each function gives None where cuDNN is not there, is switched off (`backends.cudnn.enabled`), or has no plan, and
conv.py then takes columns. Plans that add up in an order of their own are left out, and for float32 those that round to
fewer bits, unless TF32 is allowed: results are as repeatable and as exact as those by columns.

Images come out with the channels last in 16 bits, and in float32 where TF32 is allowed: that is what tensor cores read.
Others keep the order they come in. Arrays that lie otherwise are turned; `laid_out` does it once for both passes.
Weights and their gradient stay in the order of the parameter: where it is not that of the images cuDNN itself turns
them, in a kernel that is as small as they are.

Where channels are last, a bias is added in the graph of a forward pass: cuDNN has each of its kernels there in a form
with a bias. In rows it follows behind, since the kernels that cuDNN prefers for float32 have no such form. So does what
is added to the gradient of images: in a graph cuDNN would compile a kernel for it, a second for each set of shapes.

Of several plans cuDNN's own first choice is taken, or with `backends.cudnn.benchmark` the fastest of the first ten.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import cupy

from minorm.devices import capture, dtypes
from minorm.kernels import switches
from minorm.kernels.gpu import channels_last, copying, elementwise, launch, memory
from minorm.kernels.gpu.channels_last import empty, in_order, lies, only_last, strides_of
from minorm.kernels.gpu.operands import plain

try:
    import cudnn
except (ImportError, OSError):  # the second where the frontend is there without cuDNN itself
    cudnn = None

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

TRIED = 10  # plans that are tried out

_TYPES = {dtypes.float16: "HALF", dtypes.bfloat16: "BFLOAT16", dtypes.float32: "FLOAT"}
_INPUTS = {"conv_fprop": ("image", "weight"), "conv_dgrad": ("loss", "filter"), "conv_wgrad": ("image", "loss")}
_WEIGHTS = {"conv_fprop": 1, "conv_dgrad": 1, "conv_wgrad": 2}  # which of first, second and result they are


class Windows(NamedTuple):
    """How a kernel goes over an image, one number an axis."""

    stride: Ints
    padding: Pairs
    dilation: Ints


class Asked(NamedTuple):
    """What is asked of cuDNN: there is a graph for each."""

    name: str  # of the node
    dtype: Any
    device: int
    shapes: tuple[Ints, Ints, Ints]  # of first, second and result
    strides: tuple[Ints, Ints]  # of first and second, in bytes
    windows: tuple[Ints, Pairs, Ints]
    bias: bool
    weights_last: bool  # where weights are the result: are their channels to lie last?
    tf32: bool
    tried: bool  # are its plans tried out?


class Call(NamedTuple):
    """A graph that is ready to run, and what its arrays are to be.

    last        are the channels of first, second and result to lie last?
    turned      do first and second lie otherwise?
    strides     of the result, in bytes; None in C order
    bias        is it added in the graph?
    uids        by which the graph knows first, second, result, and the bias
    workspace   bytes it needs besides
    plan        the number of its plan; None is cuDNN's choice
    """

    graph: Any
    last: tuple[bool, bool, bool]
    turned: tuple[bool, ...]
    strides: Ints | None
    bias: bool
    uids: tuple[int, ...]
    workspace: int
    plan: int | None


def forward(x: Any, w: Any, b: Any, y_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Any:
    """y = W * x + b; channels of w tell the groups, for cuDNN too."""
    return _result("conv_fprop", x, w, y_shape, (stride, padding, dilation), b)


def grad_input(dy: Any, w: Any, x_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, b: Any) -> Any:
    """dx = W^T * dy + b."""
    return _result("conv_dgrad", dy, w, x_shape, (stride, padding, dilation), b)


def grad_weight(
    dy: Any, x: Any, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, last: bool = False
) -> Any:
    """dW = dy * x, in C order, or with the channels last."""
    return _result("conv_wgrad", x, dy, w_shape, (stride, padding, dilation), None, last)


def is_used(dtype: Any, padding: Pairs = ()) -> bool:
    """Is cuDNN asked for convolutions of this type? It cuts no image off."""
    if cudnn is None or not switches.cudnn or dtype not in _TYPES:
        return False
    return all(pad >= 0 for pair in padding for pad in pair)


def laid_out(x: Any, dtype: Any) -> Any:
    """Images or weights cast to the type of a convolution, in the order in which it reads them: itself if it is so."""
    if x.ndim < 3 or not x.size or not is_used(dtype) or not _prefers_last(dtype, switches.conv_tf32):
        return copying.as_type(x, dtype)
    return channels_last.in_order(x, True) if x.dtype == dtype else channels_last.cast(x, dtype)


def _prefers_last(dtype: Any, tf32: bool) -> bool:
    """Do tensor cores compute it? They read channels last."""
    return bool(dtype.itemsize == 2 or (tf32 and dtype == dtypes.float32))


def _result(name: str, first: Any, second: Any, shape: Ints, windows: Any, b: Any, weights_last: bool = False) -> Any:
    if cudnn is None or not switches.cudnn:
        return None
    device = first.data.device_id
    shapes, strides = (first.shape, second.shape, shape), (first.strides, second.strides)
    biased = b is not None
    settings = switches.conv_tf32, switches.cudnn_benchmark
    call = _call(Asked(name, first.dtype, device, shapes, strides, windows, biased, weights_last, *settings))
    if call is None:
        return None
    if call.turned[0] or not launch.is_aligned(first):
        first = in_order(first, call.last[0])
    if call.turned[1] or not launch.is_aligned(second):
        second = in_order(second, call.last[1])
    out = empty(shape, first.dtype, call.strides)
    given = [first, second, out, _aligned(b, first.dtype)] if call.bias else [first, second, out]
    room = memory.empty((call.workspace,), dtypes.uint8) if call.workspace else None
    addresses = {uid: x.data.ptr for uid, x in zip(call.uids, given, strict=True)}
    _execute(call.graph, call.plan, addresses, 0 if room is None else room.data.ptr, _handle(device))
    if b is not None and not call.bias:
        elementwise.accumulate(out, copying.as_type(b, out.dtype).reshape(-1, *[1] * (out.ndim - 2)))
    return out


def _execute(graph: Any, plan: int | None, addresses: dict[int, int], room: int, handle: Any) -> None:
    if plan is None:
        graph.execute(addresses, room, handle=handle)
    else:
        graph.execute_plan_at_index(addresses, room, plan, handle=handle)


def _aligned(b: Any, dtype: Any) -> Any:
    b = plain(copying.as_type(b, dtype))
    return b if launch.is_aligned(b) else copying.copy(b)


# Graphs


@functools.lru_cache(maxsize=4096)
def _call(asked: Asked) -> Call | None:
    """How arrays of these shapes and steps are convolved; None where cuDNN has no plan."""
    name, dtype, result = asked.name, asked.dtype, asked.shapes[2]
    if not is_used(dtype, asked.windows[1]):
        return None
    given = list(zip(asked.shapes, asked.strides, strict=False))  # of first and second
    images = _prefers_last(dtype, asked.tf32) or only_last(*given[0], dtype.itemsize)
    weights = only_last(*given[1], dtype.itemsize) if _WEIGHTS[name] == 1 else asked.weights_last
    with_bias = (True, False) if asked.bias and name == "conv_fprop" else (False,)
    for last, bias in itertools.product(_orders(_WEIGHTS[name], images, weights), with_bias):
        if bias and not last[0]:
            continue
        try:
            graph, uids = _built(asked, last, bias)
        except (RuntimeError, ImportError, cudnn.cudnnGraphNotSupportedError):
            continue
        turned = tuple(not lies(*array, dtype.itemsize, order) for array, order in zip(given, last, strict=False))
        strides = strides_of(result, dtype.itemsize, True)
        in_rows = not last[2] or lies(result, strides, dtype.itemsize, False)
        plan = _fastest(graph, asked, uids) if asked.tried and capture.recording() is None else None
        room = graph.get_workspace_size() if plan is None else graph.get_workspace_size_plan_at_index(plan)
        return Call(graph, last, turned, None if in_rows else strides, bias, uids, room, plan)
    return None


def _orders(weights_at: int, images: bool, weights: bool) -> Iterator[tuple[bool, bool, bool]]:
    """Are the channels of first, second and result last? First what is wanted, then what else cuDNN may take."""
    found = []
    for order in (images, not images):
        for of_weights in (weights, order):
            last = [order] * 3
            last[weights_at] = of_weights
            found.append(tuple(last))
    yield from dict.fromkeys(found)  # type: ignore[misc]


def _built(asked: Asked, last: tuple[bool, bool, bool], biased: bool) -> tuple[Any, tuple[int, ...]]:
    """The graph, and by which numbers it knows first, second, result and bias."""
    kind, wide = getattr(cudnn.data_type, _TYPES[asked.dtype]), cudnn.data_type.FLOAT
    windows, shapes = _of_images(Windows(*asked.windows)), [_images(shape) for shape in asked.shapes]
    graph = cudnn.pygraph(
        io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide, handle=_handle(asked.device)
    )

    def tensor(label: str, shape: Ints, order: bool) -> Any:
        return graph.tensor(name=label, dim=list(shape), stride=list(strides_of(shape, 1, order)), data_type=kind)

    tensors = [tensor(label, shapes[i], last[i]) for i, label in enumerate(("first", "second"))]
    out = getattr(graph, asked.name)(
        **dict(zip(_INPUTS[asked.name], tensors, strict=True)),
        pre_padding=[low for low, _ in windows.padding],
        post_padding=[high for _, high in windows.padding],
        stride=list(windows.stride),
        dilation=list(windows.dilation),
    )
    if biased:
        row = (1, shapes[2][1], *[1] * len(windows.stride))
        bias = [tensor("bias", row, last[2])]
        out = graph.bias(name="biased", input=out, bias=bias[0])
    else:
        bias = []
    out.set_output(True).set_data_type(kind).set_dim(list(shapes[2])).set_stride(
        list(strides_of(shapes[2], 1, last[2]))
    )
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    note = cudnn.numerical_note
    full = asked.dtype == dtypes.float32 and not asked.tf32
    fewer_bits = [note.TENSOR_CORE, note.DOWN_CONVERT_INPUTS] if full else []
    graph.deselect_numeric_notes([note.NONDETERMINISTIC, note.REDUCED_PRECISION_REDUCTION, *fewer_bits])
    graph.check_support()
    graph.build_plans()
    return graph, tuple(t.get_uid() for t in (*tensors, out, *bias))


def _fastest(graph: Any, asked: Asked, uids: tuple[int, ...]) -> int | None:
    """The number of the plan that takes least time, the best of three runs each; None where none can be tried."""
    shapes = (*asked.shapes, asked.shapes[2][1:2])[: len(uids)]
    arrays = [copying.full(shape, 0, asked.dtype) for shape in shapes]
    addresses, handle = {uid: x.data.ptr for uid, x in zip(uids, arrays, strict=True)}, _handle(asked.device)
    times = {}
    for plan in range(min(TRIED, graph.get_execution_plan_count())):
        try:
            graph.build_plan_at_index(plan)
            size = graph.get_workspace_size_plan_at_index(plan)
            room = memory.empty((size,), dtypes.uint8) if size else None
            address = 0 if room is None else room.data.ptr
            times[plan] = min(_timed(graph, plan, addresses, address, handle) for _ in range(4))
        except (RuntimeError, MemoryError, cudnn.cudnnGraphNotSupportedError):
            continue  # a plan that is left out, or too large
    return min(times, key=times.__getitem__) if times else None


def _timed(graph: Any, plan: int, addresses: dict[int, int], room: int, handle: Any) -> float:
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    _execute(graph, plan, addresses, room, handle)
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end))


def _images(shape: Ints) -> Ints:
    """Signals as images of one row: cuDNN has no convolution along one axis."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape


def _of_images(windows: Windows) -> Windows:
    if len(windows.stride) > 1:
        return windows
    return Windows((1, *windows.stride), ((0, 0), *windows.padding), (1, *windows.dilation))


# Handles


class _Handle:
    """What cuDNN knows of a device and a thread, and the stream that it has been told."""

    def __init__(self) -> None:
        self.address, self.stream = cudnn.create_handle(), None


class _Handles(threading.local):
    """Threads that share a handle would change each other's stream."""

    def __init__(self) -> None:
        self.of_device: dict[int, _Handle] = {}


_handles = _Handles()


def _handle(device: int) -> Any:
    """cuDNN's handle of a device, which is the current one, for the current stream."""
    handle = _handles.of_device.get(device)
    if handle is None:
        handle = _handles.of_device[device] = _Handle()
    stream = cupy.cuda.get_current_stream().ptr
    if handle.stream != stream:
        cudnn.set_stream(handle=handle.address, stream=stream)
        handle.stream = stream
    return handle.address
