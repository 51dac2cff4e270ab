"""GroupNormalization: version 18 has one scale per *group* and is withdrawn; version 21 has one scale per channel.

Before 21, x is reshaped to (N, G, everything else), and an InstanceNormalization normalizes each group as a channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnx import TensorProto

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.node_layers import Written
from minorm.onnx.graph.node_rewriter import Kind, NodeRewriter
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import converts, lowers, reads, writes
from minorm.onnx.graph.sizes import product
from minorm.onnx.operators.composing import checked_count, shape_of, standardized, stretched, unsqueeze
from minorm.onnx.operators.composing import reshape as stack
from minorm.onnx.operators.norm.instance_norm import instance
from minorm.onnx.operators.norm.masks import unmasked
from minorm.onnx.operators.norm.recognised import GroupNorm
from minorm.onnx.operators.norm.statistics import affine, cast_all, computed, is_usual, ones, standardize, zeros
from minorm.onnx.operators.precision import stash_type, widest
from minorm.onnx.operators.shape.shape import channels, expand, reshape, reshape_as
from minorm.tensor.tensor import Tensor


@writes(F.group_norm, "GroupNormalization", since=21)
@unmasked
def write_21(
    g: Graph, x: Value, num_groups: int, weight: Value | None, bias: Value | None, eps: float, compute_dtype: Any
) -> Value:
    if x.ndim < 3 or x.dtype == dtypes.float64 or not is_usual(x, compute_dtype, weight, bias):
        raise RuleNotApplicable(
            "GroupNormalization takes (N, C, ...) and one type for all inputs, and computes in float32"
        )
    size = int(x.known_shape[1])
    scale = ones(g, (size,), x) if weight is None else _per_channel(g, weight, size)
    shift = zeros(g, (size,), x) if bias is None else _per_channel(g, bias, size)
    return g.add("GroupNormalization", x, scale, shift, shape=x.shape, num_groups=num_groups, epsilon=eps)


def _per_channel(g: Graph, parameter: Value, size: int) -> Value:
    """Repeat (G) numbers to (C): each number for all channels of its group."""
    groups = int(parameter.known_shape[0])
    if groups == size:
        return parameter
    return reshape(g, expand(g, reshape(g, parameter, (groups, 1)), (groups, size // groups)), (size,))


@lowers(F.group_norm)
@unmasked
def lower(
    g: Graph, x: Value, num_groups: int, weight: Value | None, bias: Value | None, eps: float, compute_dtype: Any
) -> Value:
    if is_usual(x, compute_dtype, weight, bias):
        return group(g, x, num_groups, weight, bias, eps)
    data, scale, shift = cast_all(g, computed(x, compute_dtype), x, weight, bias)
    return g.cast(group(g, data, num_groups, scale, shift, eps), x.dtype)


def group(g: Graph, x: Value, num_groups: int, scale: Value | None, bias: Value | None, eps: float) -> Value:
    """Write a GroupNorm as InstanceNormalization; scale and bias have one number per group or per channel."""
    groups = reshape(g, x, (x.known_shape[0], num_groups, product(x.known_shape[1:]) // num_groups))
    per_group = all(p is None or p.shape == (num_groups,) for p in (scale, bias))
    if x.dtype == dtypes.float64:  # no runtime has an InstanceNormalization of float64
        y = standardize(g, groups, (2,), eps)
        y = affine(g, y, *[None if p is None else channels(g, groups, p) for p in (scale, bias)]) if per_group else y
    else:
        y = instance(g, groups, scale if per_group else None, bias if per_group else None, eps)
    y = reshape_as(g, y, x)
    if per_group:
        return y
    scale, bias = (None if p is None else channels(g, x, p) for p in (scale, bias))
    return affine(g, y, scale, bias)


@reads("GroupNormalization", since=18)
def read_18(node: Node) -> Callable[[Tensor, Tensor, Tensor], Tensor] | GroupNorm:
    if isinstance(node.described, Written):
        return GroupNorm(node["epsilon"], node.described)
    groups = node["num_groups"]
    stash = stash_type(node) if node.since >= 21 else dtypes.float32

    def group_norm(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        numbers, what = (groups, "group") if node.since == 18 else (x.shape[1] if x.ndim > 1 else 0, "channel")
        for name, p in (("scale", scale), ("bias", bias)):
            if p.shape != (numbers,):
                raise ValueError(
                    f"{name} has shape {p.shape}; expected ({numbers},): version {node.since} has one number per {what}"
                    f"; x.shape is {x.shape}"
                )
        return F.group_norm(x, groups, scale, bias, node["epsilon"], compute_dtype=widest(x, stash=stash))

    return group_norm


# To other versions


@converts("GroupNormalization", 18, 21)
def one_a_channel(d: NodeRewriter) -> None:
    """Turn scale and bias with one number per group into scale and bias with one number per channel."""
    groups = checked_count(d.get("num_groups"), "num_groups")
    size = d.length(d.input(0), 1) // groups
    if size == 1:
        return
    for place, name in ((1, "scale"), (2, "bias")):
        column = stack(d, d.input(place), [groups, 1])
        wide = d.emit("Expand", column, d.integers([groups, size], f"{name}_lengths"), kind=Kind(d.kind(column).elem))
        d.feed(place, stack(d, wide, [-1]))


def _by_instances(d: NodeRewriter, per_group: bool) -> None:
    """Write GroupNormalization as an InstanceNormalization of x in the shape (N, G, everything else).

    For float64, write the formula instead. Version 18 of GroupNormalization is never written, because it is withdrawn.
    """
    x, groups, eps = d.input(0), checked_count(d.get("num_groups"), "num_groups"), d.get("epsilon", 1e-5)
    elem, rank = d.elem(x), d.rank(x)
    rows = stack(d, x, [0, groups, -1])
    scale, bias = d.input(1), d.input(2)
    if elem == TensorProto.DOUBLE:
        y = standardized(d, rows, [2], eps)[0]
    else:
        ones, zeros = (d.constant([number] * groups, elem, name) for number, name in ((1, "ones"), (0, "zeros")))
        y = d.emit("InstanceNormalization", rows, ones, zeros, epsilon=eps, kind=d.kind(rows))
    if per_group:
        factor, shift = (unsqueeze(d, p, [1], 2) for p in (scale, bias))
        y = d.emit("Add", d.emit("Mul", y, factor), shift)
        d.replace("Reshape", y, shape_of(d, x), kind=d.kind(x))
    else:
        y = d.emit("Reshape", y, shape_of(d, x), kind=d.kind(x))
        d.replace("Add", d.emit("Mul", y, stretched(d, scale, rank)), stretched(d, bias, rank))
    d.node = None


@converts("GroupNormalization", 21, 18)
def from_21(d: NodeRewriter) -> None:
    _by_instances(d, per_group=False)


@converts("GroupNormalization", 18, 0)
def from_18(d: NodeRewriter) -> None:
    _by_instances(d, per_group=True)
