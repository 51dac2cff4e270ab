"""A double of the module cudnn (nvidia-cudnn-frontend): graphs of one convolution, run by the reference in host memory.

It takes the calls, names and order of steps of the documentation and nothing else. That says that conv_cudnn.py keeps
to them; whether cuDNN does too only a device can tell.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from minorm.kernels.reference import conv

TYPES = {"HALF": np.dtype(np.float16), "BFLOAT16": np.dtype(ml_dtypes.bfloat16), "FLOAT": np.dtype(np.float32)}
data_type = SimpleNamespace(**{name: name for name in TYPES})
heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
numerical_note = SimpleNamespace(
    NONDETERMINISTIC="nd", TENSOR_CORE="tc", DOWN_CONVERT_INPUTS="dci", REDUCED_PRECISION_REDUCTION="rpr"
)
STEPS = ["validate", "build_operation_graph", "create_execution_plans", "check_support", "build_plans"]
executed: list[str] = []  # the operation of each graph that ran, and the stream
streams: list[int] = []
layouts: list[set[bool]] = []  # of each graph that ran: are its arrays channels last?
notes: list[list[str]] = []  # what its plans must not do


class cudnnGraphNotSupportedError(Exception):
    """Its own kind of exception, no RuntimeError."""


class Tensor:
    def __init__(self, dim: Any = None, stride: Any = None, data_type: Any = None) -> None:
        self.dim, self.stride, self.data_type, self.output = dim, stride, data_type, False

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
        return bool(self.stride[1] == 1 and self.dim[1] > 1)


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

    def _node(
        self, name: str, a: Tensor, b: Tensor, *, pre_padding: Any, post_padding: Any, stride: Any, dilation: Any
    ) -> Tensor:
        assert len(a.dim) in (4, 5)
        self.name, self.inputs, self.out = name, (a, b), Tensor()
        self.how = tuple(stride), tuple(zip(pre_padding, post_padding, strict=True)), tuple(dilation)
        return self.out

    def _step(self, name: str) -> None:
        assert STEPS.index(name) == len(self.done)
        self.done.append(name)

    def validate(self) -> None:
        assert self.out.output
        self._step("validate")

    def build_operation_graph(self) -> None:
        self._step("build_operation_graph")

    def create_execution_plans(self, modes: list[str]) -> None:
        assert modes == ["A", "FALLBACK"]
        self._step("create_execution_plans")

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        assert self.done[-1] == "create_execution_plans"
        self.deselected = notes

    def check_support(self) -> None:
        self._step("check_support")
        assert "nd" in self.deselected
        if self.out.dim[0] == 13:
            raise cudnnGraphNotSupportedError("no plan for a batch of 13")

    def build_plans(self) -> None:
        self._step("build_plans")

    def get_workspace_size(self) -> int:
        return 0 if self.name == "fprop" else 64

    def execute(self, addresses: dict[Tensor, int], workspace: int, *, handle: Any) -> None:
        assert self.done == STEPS
        assert handle == "handle"
        assert type(workspace) is int
        a, b, out = (tensor.at(addresses[tensor]) for tensor in (*self.inputs, self.out))
        channels = {"fprop": lambda: a.shape[1] // b.shape[1], "dgrad": lambda: out.shape[1] // b.shape[1]}
        groups = channels.get(self.name, lambda: a.shape[1] // out.shape[1])()
        executed.append(self.name)
        layouts.append({tensor.is_channels_last() for tensor in (*self.inputs, self.out) if tensor.dim[1] > 1})
        notes.append(self.deselected)
        if self.name == "fprop":
            out[...] = conv.forward(a, b, None, *self.how, groups)
        elif self.name == "dgrad":
            out[...] = conv.grad_input(a, b, out.shape, *self.how, groups)
        else:
            out[...] = conv.grad_weight(b, a, out.shape, *self.how, groups)[0]


def create_handle() -> str:
    return "handle"


def set_stream(*, handle: Any, stream: int) -> None:
    assert handle == "handle"
    streams.append(stream)
