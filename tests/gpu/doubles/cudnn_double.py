"""A double of the module cudnn (nvidia-cudnn-frontend 1.12): graphs of a convolution, run by the reference.

It takes the calls, names and order of steps of the documentation. It has plans where cuDNN 9 has kernels ready for an
H200: for images in one order, weights in either, and a bias of their type behind a forward pass. It refuses sums behind
a gradient, for which cuDNN compiles kernels.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from types import SimpleNamespace
from typing import Any, ClassVar

import cupy_graphs
import ml_dtypes
import numpy as np
from cupy_cuda import Current, Event, transfers

from minorm.kernels.reference import conv

TYPES = {"HALF": np.dtype(np.float16), "BFLOAT16": np.dtype(ml_dtypes.bfloat16), "FLOAT": np.dtype(np.float32)}
data_type = SimpleNamespace(**{name: name for name in TYPES})
heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
numerical_note = SimpleNamespace(
    NONDETERMINISTIC="nd", TENSOR_CORE="tc", DOWN_CONVERT_INPUTS="dci", REDUCED_PRECISION_REDUCTION="rpr"
)
STEPS = ["validate", "build_operation_graph", "create_execution_plans", "check_support", "build_plans"]
executed: list[str] = []  # the operation of each graph that ran
tried: list[int] = []  # the numbers of plans that were chosen by number
streams: list[int] = []  # that handles were told
layouts: list[tuple[bool, bool]] = []  # of each graph that ran: are its images channels last? its weights?
strides: list[tuple[bool, ...]] = []  # of each graph that ran: has it the strides of channels last, for all three?
notes: list[list[str]] = []  # what its plans must not do
_uids = itertools.count(1)


class cudnnGraphNotSupportedError(Exception):
    """Its own kind of exception, no RuntimeError."""


class Refused:
    """The cases for which this cuDNN has no plan; a test may add to them."""

    batch = 13  # images, whatever else
    biased: ClassVar[set[int]] = set()  # channels of a result with a bias
    mixed = False  # weights in another order than images
    last = False  # images with the channels last


class Plans:
    """The plans that can be tried: their number, the refused ones, and the milliseconds of each."""

    count = 3
    refused: ClassVar[set[int]] = {0}
    milliseconds: ClassVar[list[int]] = [1, 3, 2]


class Tensor:
    def __init__(self, dim: Any = None, stride: Any = None, data_type: Any = None) -> None:
        self.dim, self.stride, self.data_type, self.output = dim, stride, data_type, False
        self.uid = 0

    def set_output(self, value: bool) -> Tensor:
        self.output = value
        return self

    def set_data_type(self, value: str) -> Tensor:
        self.data_type = value
        return self

    def set_dim(self, value: list[int]) -> Tensor:
        self.dim = value
        return self

    def set_stride(self, value: list[int]) -> Tensor:
        self.stride = value
        return self

    def get_uid(self) -> int:
        assert self.uid, "the graph is not built"
        return self.uid

    def at(self, address: int) -> np.ndarray:
        """The elements there: in C order, or with the channels last, which is all that this double can read."""
        assert type(address) is int
        assert address % 16 == 0
        dtype, size = TYPES[self.data_type], int(np.prod(self.dim))
        memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(address)
        order = [0, *range(2, len(self.dim)), 1] if self.is_channels_last() else range(len(self.dim))
        stored = np.frombuffer(memory, dtype).reshape([self.dim[axis] for axis in order])
        array: np.ndarray = stored.transpose(np.argsort(order))
        assert [s for s, n in zip(array.strides, self.dim, strict=True) if n > 1] == [
            s * dtype.itemsize for s, n in zip(self.stride, self.dim, strict=True) if n > 1
        ]
        return array

    def is_channels_last(self) -> bool:
        """And not in C order as well."""
        steps = np.empty(self.dim, np.int8).strides
        return any(n > 1 and a != b for n, a, b in zip(self.dim, self.stride, steps, strict=True))


def has_last_strides(tensor: Tensor) -> bool:
    """Are its strides those of channels last, also where its elements lie in C order as well?"""
    order = [0, *range(2, len(tensor.dim)), 1]
    step, wanted = 1, [0] * len(order)
    for axis in reversed(order):
        wanted[axis], step = step, step * tensor.dim[axis]
    return list(tensor.stride) == wanted


class pygraph:
    def __init__(self, *, io_data_type: str, intermediate_data_type: str, compute_data_type: str, handle: Any) -> None:
        assert intermediate_data_type == compute_data_type == "FLOAT"
        assert io_data_type in TYPES
        assert handle is not None
        self.done: list[str] = []
        self.deselected: list[str] = []

    def tensor(self, *, name: str, dim: list[int], stride: list[int], data_type: str) -> Tensor:
        assert name
        return Tensor(dim, stride, data_type)

    def conv_fprop(self, *, image: Tensor, weight: Tensor, **how: Any) -> Tensor:
        return self._node("fprop", image, weight, **how)

    def conv_dgrad(self, *, loss: Tensor, filter: Tensor, **how: Any) -> Tensor:
        return self._node("dgrad", loss, filter, **how)

    def conv_wgrad(self, *, image: Tensor, loss: Tensor, **how: Any) -> Tensor:
        return self._node("wgrad", image, loss, **how)

    def bias(self, *, name: str, input: Tensor, bias: Tensor) -> Tensor:
        assert name
        assert input is self.out
        self.inputs, self.out = (*self.inputs, bias), Tensor()
        return self.out

    def _node(
        self, name: str, a: Tensor, b: Tensor, *, pre_padding: Any, post_padding: Any, stride: Any, dilation: Any
    ) -> Tensor:
        assert len(a.dim) in (4, 5)
        assert min(*pre_padding, *post_padding) >= 0
        self.name, self.inputs, self.out = name, (a, b), Tensor()
        self.how = tuple(stride), tuple(zip(pre_padding, post_padding, strict=True)), tuple(dilation)
        return self.out

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (*self.inputs[:2], self.out, *self.inputs[2:])

    def images_and_weights(self) -> tuple[bool, bool]:
        """Are they channels last? Images of one order all are."""
        parts = list(self.tensors[:3])
        weights = parts.pop(2 if self.name == "wgrad" else 1)
        clear = {part.is_channels_last() for part in parts if part.dim[1] > 1 and np.prod(part.dim[2:]) > 1}
        if len(clear) > 1:
            raise cudnnGraphNotSupportedError("images of two orders")
        return clear == {True}, weights.is_channels_last()

    def _step(self, name: str) -> None:
        assert STEPS.index(name) == len(self.done)
        self.done.append(name)

    def validate(self) -> None:
        assert self.out.output
        self._step("validate")

    def build_operation_graph(self) -> None:
        self._step("build_operation_graph")
        for tensor in self.tensors:
            tensor.uid = next(_uids)

    def create_execution_plans(self, modes: list[str]) -> None:
        assert modes == ["A", "FALLBACK"]
        self._step("create_execution_plans")
        if len(self.inputs) > 2 and self.name != "fprop":
            raise cudnnGraphNotSupportedError("no engine has a kernel ready for a sum behind a gradient")

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        assert self.done[-1] == "create_execution_plans"
        self.deselected = notes

    def check_support(self) -> None:
        self._step("check_support")
        assert "nd" in self.deselected
        images, weights = self.images_and_weights()
        if self.out.dim[0] == Refused.batch:
            raise cudnnGraphNotSupportedError("no plan for a batch of 13")
        if (Refused.last and images) or (Refused.mixed and images != weights):
            raise cudnnGraphNotSupportedError("no plan for this order")
        for bias in self.inputs[2:]:
            assert bias.data_type == self.out.data_type
            assert bias.dim == [1, self.out.dim[1], *[1] * (len(self.out.dim) - 2)]
            if self.out.dim[1] in Refused.biased:
                raise cudnnGraphNotSupportedError("no plan with a bias")

    def build_plans(self) -> None:
        self._step("build_plans")

    def get_execution_plan_count(self) -> int:
        return Plans.count

    def build_plan_at_index(self, index: int) -> None:
        assert self.done == STEPS
        if index in Plans.refused:
            raise cudnnGraphNotSupportedError("a plan that is left out")

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return 0 if self.name == "fprop" else 64 * (index + 1)

    def execute_plan_at_index(self, addresses: dict[int, int], workspace: int, index: int, *, handle: Any) -> None:
        assert index not in Plans.refused
        tried.append(index)
        Event.recorded += Plans.milliseconds[index]
        self.execute(addresses, workspace, handle=handle)

    def get_workspace_size(self) -> int:
        return 0 if self.name == "fprop" else 64

    def execute(self, addresses: dict[int, int], workspace: int, *, handle: Any) -> None:
        assert self.done == STEPS
        assert all(type(key) is type(value) is int for key, value in addresses.items())
        assert handle == "handle"
        assert type(workspace) is int
        assert bool(workspace) == bool(self.get_workspace_size())
        used_memory = cupy_graphs.memory_at((*addresses.values(), workspace), Current)
        cupy_graphs.recorded(functools.partial(self._run, used_memory), Current)(addresses)

    def _run(self, used_memory: Any, addresses: dict[int, int]) -> None:
        """`used_memory`: a graph that replays this keeps the arrays, of which cuDNN gets addresses alone."""
        assert set(addresses) == {tensor.uid for tensor in self.tensors}
        a, b, out, *bias = (tensor.at(addresses[tensor.uid]) for tensor in self.tensors)
        channels = {"fprop": lambda: a.shape[1] // b.shape[1], "dgrad": lambda: out.shape[1] // b.shape[1]}
        groups = channels.get(self.name, lambda: a.shape[1] // out.shape[1])()
        executed.append(self.name + "+bias" * len(bias))
        layouts.append(self.images_and_weights())
        strides.append(tuple(map(has_last_strides, self.tensors[:3])))
        notes.append(self.deselected)
        transfers.launches["cudnn"] += 1
        if self.name == "fprop":
            out[...] = conv.forward(a, b, bias[0].reshape(-1) if bias else None, *self.how, groups)
        elif self.name == "dgrad":
            out[...] = conv.grad_input(a, b, out.shape, *self.how, groups)
        else:
            out[...] = conv.grad_weight(b, a, out.shape, *self.how, groups)[0]


def create_handle() -> str:
    return "handle"


def set_stream(*, handle: Any, stream: int) -> None:
    assert handle == "handle"
    streams.append(stream)
