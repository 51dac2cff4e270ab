"""Read Shape, Size, ConstantOfShape, Range and EyeLike, which make tensors without a gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node, integers
from minorm.onnx.graph.registry import EVERY, reads
from minorm.onnx.graph.sizes import Length, Size
from minorm.onnx.graph.tensors import MAX_RANK, element_type
from minorm.onnx.operators.shape.shape import reshape
from minorm.tensor.tensor import Tensor


@reads("Shape", since=1, fixed=EVERY)  # 15: a part of it
def read_shape(node: Node) -> Callable[[Tensor], Tensor]:
    part = slice(node["start"], node["end"]) if node.since >= 15 else slice(None)
    return lambda x: Tensor(np.array(x.shape[part], dtypes.int64))


@reads("Size", since=1, fixed=EVERY)
def read_size(node: Node) -> Callable[[Tensor], Tensor]:
    return lambda x: Tensor(np.array(x.numel(), dtypes.int64))


@reads("ConstantOfShape", since=9, fixed=EVERY)
def read_constant_of_shape(node: Node) -> Callable[[Tensor], Tensor]:
    value = np.zeros(1, dtypes.float32) if node["value"] is None else node["value"]
    if value.size != 1:
        raise ValueError(f"value has shape {value.shape}; expected one element")

    def constant(shape: Tensor) -> Tensor:
        lengths = integers(shape, "shape", MAX_RANK)
        if any(n < 0 for n in lengths):
            raise ValueError(f"the shape is {lengths}; expected lengths of at least 0")
        node.fits(lengths, value.dtype)
        return Tensor(np.full(lengths, value.reshape(()), value.dtype))

    return constant


@reads("Range", since=11, fixed=EVERY)  # 27: 16-bit floats, counted in the type that stash_type says
def read_range(node: Node) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    stash = node["stash_type"] if node.since >= 27 else 1
    if stash not in (1, 11):
        raise ValueError(f"stash_type is {stash}; expected 1 (float32) or 11 (float64)")

    def numbers(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
        first, last, step = (x.item() for x in (start, limit, delta))
        if not (step != 0 and all(map(math.isfinite, (first, last, step)))):
            raise ValueError(f"start is {first}, limit {last}, delta {step}; expected numbers, delta not 0")
        whole = isinstance(step, int)
        count = max(0, -((first - last) // step) if whole else math.ceil((last - first) / step))
        node.fits((count,), dtypes.float64)
        narrow = start.dtype.itemsize == 2 and stash == 1
        wide = dtypes.int64 if whole else dtypes.float32 if narrow else dtypes.float64
        return Tensor((np.arange(count, dtype=wide) * wide.type(step) + wide.type(first)).astype(start.dtype))

    return numbers


@reads("EyeLike", since=9, fixed=EVERY)
def read_eye_like(node: Node) -> Callable[[Tensor], Tensor]:
    """Make a tensor in the shape of a matrix, with ones on a diagonal and zeros elsewhere."""
    dtype = None if node["dtype"] is None else element_type(node["dtype"], "dtype")

    def eye(x: Tensor) -> Tensor:
        if x.ndim != 2:
            raise ValueError(f"x has shape {x.shape}; expected a matrix")
        kind = x.dtype if dtype is None else dtype
        node.fits(x.shape, kind)
        shift = max(-x.shape[0], min(x.shape[1], node["k"]))
        return Tensor(np.eye(x.shape[0], x.shape[1], shift, dtype=kind))

    return eye


def count(g: Graph, length: Length, dtype: Any) -> Value:
    """Write 0, 1, 2 ... up to a length, which may depend on a free axis."""
    if not isinstance(length, Size):
        return g.constant(np.arange(length, dtype=dtype))
    if not g.has("Range"):
        raise RuleNotApplicable("Range exists from opset 11 on")
    end = reshape(g, g.length(length), ())
    zero, one = g.constant(0, np.int64, "zero"), g.constant(1, np.int64, "one")
    return g.cast(g.add("Range", zero, end, one, shape=(length,)), dtype)
