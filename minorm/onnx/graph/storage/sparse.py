"""Make a model's sparse tensors dense, both initializers and Constants."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from minorm.onnx.graph import tensors
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.node_rewriter import graphs_of
from minorm.onnx.graph.tensors import MAX_RANK, Budget


def densified(model: Any, folder: str | None, budget: Budget) -> Any:
    """Return the model itself if all its tensors are dense; else return a copy with dense tensors."""
    if not any(len(getattr(h, "sparse_initializer", ())) or any(map(_is_sparse, h.node)) for h in _holders(model)):
        return model
    copy = type(model)()
    copy.CopyFrom(model)
    for holder in _holders(copy):
        for sparse in getattr(holder, "sparse_initializer", ()):
            name = tensors.text(sparse.values.name, "the name of a sparse initializer")
            holder.initializer.append(_dense(sparse, f"sparse initializer {name!r}", folder, budget))
        if len(getattr(holder, "sparse_initializer", ())):
            del holder.sparse_initializer[:]
        for node in filter(_is_sparse, holder.node):
            [attribute] = node.attribute
            dense = _dense(
                attribute.sparse_tensor, f"the sparse value of {node.name or node.output[:1]}", folder, budget
            )
            attribute.Clear()
            attribute.name, attribute.type = "value", attribute.TENSOR
            attribute.t.CopyFrom(dense)
    return copy


def _holders(model: Any) -> Iterator[Any]:
    """Yield the graph, the graphs inside its nodes, and the functions."""
    pending = [model.graph, *model.functions]
    while pending:
        holder = pending.pop()
        yield holder
        pending += [graph for node in holder.node for _, graph in graphs_of(node)]


def _is_sparse(node: Any) -> bool:
    """Return whether a node is a Constant with only a sparse value."""
    return node.op_type == "Constant" and [a.name for a in node.attribute] == ["sparse_value"]


def _dense(sparse: Any, what: str, folder: str | None, budget: Budget) -> TensorProto:
    """Make the dense tensor of a SparseTensorProto; elements without a value are 0.

    A value's place is one index into the flattened tensor, or one index for each axis.
    """
    shape = tuple(sparse.dims)
    if any(n < 0 for n in shape) or len(shape) > MAX_RANK:
        raise LoadError(f"load: {what} has shape {shape}; expected at most {MAX_RANK} lengths of at least 0")
    values = tensors.read(sparse.values, f"the values of {what}", folder, budget)
    places = tensors.read(sparse.indices, f"the places of {what}", folder, budget)
    budget.take(math.prod(shape) * values.dtype.itemsize, what)
    if math.prod(max(n, 1) for n in shape) * values.dtype.itemsize >= 2**63:  # NumPy's limit, even with a 0
        raise LoadError(f"load: {what} has shape {shape}, whose lengths are too large")
    count = values.size
    flat = places.ndim == 1 and places.shape == (count,)
    if values.ndim != 1 or places.dtype != np.int64 or not (flat or places.shape == (count, len(shape))):
        raise LoadError(
            f"load: {what} has {values.dtype} values of shape {values.shape} and {places.dtype} places of shape "
            f"{places.shape}; expected int64 places: for each of {count} values, one place or one index per axis"
        )
    ends = np.array([math.prod(shape)] if flat else shape, np.int64)
    if count and not ((places >= 0) & (places < ends)).all():
        raise LoadError(
            f"load: {what} has shape {shape}, but places from {places.min()} to {places.max()}; expected places "
            "inside the shape"
        )
    dense = np.zeros(shape, values.dtype)
    dense[np.unravel_index(places, shape) if flat else tuple(places.T)] = values
    return numpy_helper.from_array(dense, sparse.values.name)
