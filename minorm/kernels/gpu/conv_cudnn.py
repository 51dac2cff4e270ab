"""Convolution by cuDNN, if nvidia-cudnn-frontend is installed. Each set of shapes has one cuDNN graph.

A function returns None if cuDNN is missing, is switched off (`backends.cudnn.enabled`), or has no plan; conv.py then
calls conv_columns.py. Plans without a fixed order of addition are excluded. Plans that round float32 to fewer bits are
excluded too, unless TF32 is allowed. So cuDNN's results are as repeatable and as exact as those of conv_columns.py.

Tensor cores read images with the channels last. So resulting images have the channels last for 16-bit floats, and also
for float32 if TF32 is allowed. Other results keep the order of the input. Arrays in another order are transposed;
`laid_out` does this once for both passes. Weights and their gradient stay in the order of the parameter. Layers lay
their weights like the images (minorm/nn/weight_order.py). If the images have another order, cuDNN itself transposes the
weights in a small kernel.

With channels last, the forward graph itself adds the bias, since each of cuDNN's kernels can do this there. In C order
a separate kernel adds the bias, since the kernels that cuDNN prefers for float32 cannot. A separate kernel also adds
other gradients to the gradient of the images. If the graph did this addition, cuDNN would compile a kernel, which takes
one second for each set of shapes.

The plan is cuDNN's first choice. If `backends.cudnn.benchmark` is set, cuDNN's first ten plans are timed, and the
fastest is used.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cupy

from minorm.devices import capture, dtypes
from minorm.kernels import switches
from minorm.kernels.gpu import channels_last, copying, elementwise, launch, memory
from minorm.kernels.gpu.channels_last import empty, in_order, lies, only_last, strides_of
from minorm.kernels.gpu.operands import plain
from minorm.kernels.gpu.program import cached

try:
    import cudnn
except (ImportError, OSError):  # OSError: the frontend is installed, but cuDNN itself is missing
    cudnn = None

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

TRIED = 10  # the most plans that are timed

_TYPES = {dtypes.float16: "HALF", dtypes.bfloat16: "BFLOAT16", dtypes.float32: "FLOAT"}
_INPUTS = {"conv_fprop": ("image", "weight"), "conv_dgrad": ("loss", "filter"), "conv_wgrad": ("image", "loss")}
_WEIGHTS = {"conv_fprop": 1, "conv_dgrad": 1, "conv_wgrad": 2}  # 0, 1, 2: first, second, result


class Windows(NamedTuple):
    """The stride, padding and dilation of a convolution, each with one entry for each axis."""

    stride: Ints
    padding: Pairs
    dilation: Ints


class Asked(NamedTuple):
    """The key of a cuDNN graph: operation, type, shapes, steps and options."""

    name: str  # the name of the node
    dtype: Any
    device: int
    shapes: tuple[Ints, Ints, Ints]  # the shapes of first, second and result
    strides: tuple[Ints, Ints]  # the strides of first and second, in bytes
    windows: tuple[Ints, Pairs, Ints]
    bias: bool
    weights_last: bool  # True: the channels are last in weights that are the result
    tf32: bool
    tried: bool  # True: its plans are timed


class Call(NamedTuple):
    """A graph that is ready to run, and the form that its arrays need.

    last        three bools: are the channels of first, second and result last?
    turned      two bools: must first and second be transposed?
    strides     the strides of the result, in bytes; None if the result is in C order
    bias        True if the graph adds the bias
    uids        the graph's numbers for first, second, result, and the bias
    workspace   the bytes of scratch memory
    run         run(addresses by uid, address of the scratch memory, handle) starts the graph
    """

    run: Callable[[dict[int, int], int, int], None]
    last: tuple[bool, bool, bool]
    turned: tuple[bool, ...]
    strides: Ints | None
    bias: bool
    uids: tuple[int, ...]
    workspace: int


def forward(x: Any, w: Any, b: Any, y_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Any:
    """Return y = W * x + b. The number of groups is not an argument, since it follows from the shapes of x and w."""
    return _result("conv_fprop", x, w, y_shape, (stride, padding, dilation), b)


def grad_input(dy: Any, w: Any, x_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, b: Any) -> Any:
    """Return dx = W^T * dy + b."""
    return _result("conv_dgrad", dy, w, x_shape, (stride, padding, dilation), b)


def grad_weight(
    dy: Any, x: Any, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, last: bool = False
) -> Any:
    """Return dW = dy * x, in C order. With last=True, the channels of dW are last in memory."""
    return _result("conv_wgrad", x, dy, w_shape, (stride, padding, dilation), None, last)


def is_used(dtype: Any, padding: Pairs = ()) -> bool:
    """Return True if cuDNN computes convolutions of the type `dtype`. cuDNN is not used if a padding is negative."""
    if cudnn is None or not switches.cudnn or dtype not in _TYPES:
        return False
    return not padding or min(map(min, padding)) >= 0


def laid_out(x: Any, dtype: Any) -> Any:
    """Return x in the type and memory order that a convolution reads. If x already has both, return x itself."""
    if x.ndim < 3 or not x.size or not computes_last(dtype):
        return copying.as_type(x, dtype)
    return channels_last.in_order(x, True) if x.dtype == dtype else channels_last.cast(x, dtype)


def computes_last(dtype: Any) -> bool:
    """Return True if convolutions of the type `dtype` now read and write arrays with the channels last."""
    return is_used(dtype) and _prefers_last(dtype, switches.conv_tf32)


def _prefers_last(dtype: Any, tf32: bool) -> bool:
    """Return True if tensor cores compute the type `dtype`. Tensor cores read arrays with the channels last."""
    return bool(dtype.itemsize == 2 or (tf32 and dtype == dtypes.float32))


def _result(name: str, first: Any, second: Any, shape: Ints, windows: Any, b: Any, weights_last: bool = False) -> Any:
    if cudnn is None or not switches.cudnn:
        return None
    device = first.data.device_id
    shapes, strides = (first.shape, second.shape, shape), (first.strides, second.strides)
    biased = b is not None
    settings = switches.conv_tf32, switches.cudnn_benchmark
    call = _call(name, first.dtype, device, shapes, strides, windows, biased, weights_last, *settings)
    if call is None:
        return None
    if call.turned[0] or not launch.is_aligned(first):
        first = in_order(first, call.last[0])
    if call.turned[1] or not launch.is_aligned(second):
        second = in_order(second, call.last[1])
    out = empty(shape, first.dtype, call.strides)
    addresses = [first.data.ptr, second.data.ptr, out.data.ptr]
    if call.bias:
        bias = _aligned(b, first.dtype)
        addresses.append(bias.data.ptr)
    room = memory.scratch(call.workspace) if call.workspace else None
    call.run(dict(zip(call.uids, addresses, strict=True)), 0 if room is None else room.ptr, _handle(device))
    if b is not None and not call.bias:
        elementwise.accumulate(out, copying.as_type(b, out.dtype).reshape(-1, *[1] * (out.ndim - 2)))
    return out


def _run_of(graph: Any, plan: int | None = None) -> Callable[[dict[int, int], int, Any], None]:
    """Return the function that starts the graph's plan of this number, or cuDNN's choice if the number is None."""
    if plan is None:
        return lambda addresses, room, handle: graph.execute(addresses, room, handle=handle)
    return lambda addresses, room, handle: graph.execute_plan_at_index(addresses, room, plan, handle=handle)


def _aligned(b: Any, dtype: Any) -> Any:
    b = plain(copying.as_type(b, dtype))
    return b if launch.is_aligned(b) else copying.copy(b)


# Graphs


@cached
def _call(*question: Any) -> Call | None:
    """Return the graph for arrays of the shapes and strides in Asked(*question), or None if cuDNN has no plan."""
    asked = Asked(*question)
    name, dtype, result = asked.name, asked.dtype, asked.shapes[2]
    if not is_used(dtype, asked.windows[1]):
        return None
    given = list(zip(asked.shapes, asked.strides, strict=False))  # the shapes and strides of first and second
    images = _prefers_last(dtype, asked.tf32) or only_last(*given[0], dtype.itemsize)
    weights = _weights_last(asked, images)
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
        return Call(_run_of(graph, plan), last, turned, None if in_rows else strides, bias, uids, room)
    return None


def _weights_last(asked: Asked, images: bool) -> bool:
    """Return True if the graph is to have the channels of its weights last. `images` says whether images have.

    Some weights lie in both orders, for example with one tap or one channel. cuDNN decides by the strides that it is
    given, so such weights get the strides of the images' order.
    """
    itemsize = asked.dtype.itemsize
    if _WEIGHTS[asked.name] == 1:
        weights = asked.shapes[1], asked.strides[1]
        return lies(*weights, itemsize, True) and (images or not lies(*weights, itemsize, False))
    shape = asked.shapes[2]
    return asked.weights_last or (images and lies(shape, strides_of(shape, itemsize, True), itemsize, False))


def _orders(weights_at: int, images: bool, weights: bool) -> Iterator[tuple[bool, bool, bool]]:
    """Yield memory orders in the sequence in which they are tried, the preferred one first.

    A memory order is three bools, which say whether the channels of the first operand, the second operand and the
    result are last.
    """
    found = []
    for order in (images, not images):
        for of_weights in (weights, order):
            last = [order] * 3
            last[weights_at] = of_weights
            found.append(tuple(last))
    yield from dict.fromkeys(found)  # type: ignore[misc]


def _built(asked: Asked, last: tuple[bool, bool, bool], biased: bool) -> tuple[Any, tuple[int, ...]]:
    """Return the graph, and the graph's numbers for the first operand, the second operand, the result and the bias."""
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
    """Return the index of the plan whose quickest run is the shortest, or None if no plan can be timed."""
    shapes = (*asked.shapes, asked.shapes[2][1:2])[: len(uids)]
    arrays = [copying.full(shape, 0, asked.dtype) for shape in shapes]
    addresses, handle = {uid: x.data.ptr for uid, x in zip(uids, arrays, strict=True)}, _handle(asked.device)
    times = {}
    for plan in range(min(TRIED, graph.get_execution_plan_count())):
        try:
            graph.build_plan_at_index(plan)
            size = graph.get_workspace_size_plan_at_index(plan)
            room = memory.scratch(size) if size else None
            run = functools.partial(_run_of(graph, plan), addresses, 0 if room is None else room.ptr, handle)
            times[plan] = min(_timed(run) for _ in range(4))
        except (RuntimeError, MemoryError, cudnn.cudnnGraphNotSupportedError):
            continue  # the plan is excluded, or too large
    return min(times, key=times.__getitem__) if times else None


def _timed(run: Callable[[], None]) -> float:
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end))


def _images(shape: Ints) -> Ints:
    """Return the shape of signals (N, C, L) as images (N, C, 1, L), since cuDNN has no convolution along one axis."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape


def _of_images(windows: Windows) -> Windows:
    if len(windows.stride) > 1:
        return windows
    return Windows((1, *windows.stride), ((0, 0), *windows.padding), (1, *windows.dilation))


# Handles


class _Handle:
    """cuDNN's handle for one device and one thread, and the stream that the handle uses."""

    def __init__(self) -> None:
        self.address, self.stream = cudnn.create_handle(), None


class _Handles(threading.local):
    """The handles of one thread. If threads shared a handle, one thread would change the stream of another."""

    def __init__(self) -> None:
        self.of_device: dict[int, _Handle] = {}


_handles = _Handles()


def _handle(device: int) -> Any:
    """Return cuDNN's handle of the current device, for the current stream."""
    handle = _handles.of_device.get(device)
    if handle is None:
        handle = _handles.of_device[device] = _Handle()
    stream = cupy.cuda.get_current_stream().ptr
    if handle.stream != stream:
        cudnn.set_stream(handle=handle.address, stream=stream)
        handle.stream = stream
    return handle.address
