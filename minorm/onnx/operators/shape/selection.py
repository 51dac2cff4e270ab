"""Read and write TopK, OneHot, Hardmax, GatherND, Trilu, CumSum and CumProd."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, lowers, reads, writes
from minorm.onnx.graph.sizes import Size
from minorm.onnx.operators.shape.shape import transpose
from minorm.ops.operands import axis_of
from minorm.ops.reduction import CumProd, CumSum, TopPlaces
from minorm.tensor.combining import cat, where
from minorm.tensor.tensor import Tensor

# TopK. 10: k is an input. 11: the smallest, integers. Always sorted.


@reads("TopK", since=1)
def read_top_k_1(node: Node) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    return lambda x: _top(node, x, node["k"])


@reads("TopK", since=10, fixed=(1,))
def read_top_k_10(node: Node) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return lambda x, k: _top(node, x, int(k.item()))


def _top(node: Node, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    axis = axis_of("top", node["axis"], x)
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(f"k is {k}; expected 0 to {x.shape[axis]}, the length of axis {axis}; x has shape {x.shape}")
    node.fits((2, *x.shape), dtypes.int64)  # the order and the sorted values, as weights are not asked for elsewhere
    places = TopPlaces.apply(x, count=k, axis=axis, largest=bool(node.get("largest", 1)))
    return x.gather(axis, places), places


@writes(TopPlaces, "TopK", since=10)
def write_top_places(g: Graph, x: Value, count: int, axis: int, largest: bool) -> Value:
    shape = (*x.known_shape[:axis], count, *x.known_shape[axis + 1 :])
    _, places = g.add(
        "TopK",
        x,
        g.constant([count], np.int64, "k"),
        outputs=2,
        shape=(shape, shape),
        dtype=(x.dtype, dtypes.int64),
        axis=axis,
        largest=None if largest else 0,
    )
    return places


# Ones at places, 0 elsewhere


@reads("OneHot", since=9, fixed=(0, 1))  # 11: indices may count from the end
def read_one_hot(node: Node) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def one_hot(indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
        if depth.numel() != 1 or not 0 <= depth.item() < 2**31:
            came = depth.item() if depth.numel() == 1 else f"of shape {depth.shape}"
            raise ValueError(f"depth is {came}; expected one number of at least 0")
        n = int(depth.item())
        node.fits((*indices.shape, n), np.int64)
        axis = node["axis"] if node["axis"] >= 0 else node["axis"] + indices.ndim + 1
        wanted = indices.to(dtypes.int64).unsqueeze(axis)
        wanted = where(wanted < 0, wanted + n, wanted)
        numbers = Tensor(np.arange(n).reshape(-1, *(1,) * (indices.ndim - axis))).to(indices.device)
        return where(wanted == numbers, values[1], values[0])

    return one_hot


@reads("Hardmax", since=1, fixed=EVERY)  # before 13 the axes from `axis` on count as one
def read_hardmax(node: Node) -> Callable[[Tensor], Tensor]:
    def hardmax(x: Tensor) -> Tensor:
        axis = axis_of("hardmax", node["axis"], x)
        if node.since < 13:
            rows = x.reshape(*x.shape[:axis], math.prod(x.shape[axis:]))
            return _first_largest(rows, rows.ndim - 1).reshape(x.shape)
        return _first_largest(x, axis)

    return hardmax


def _first_largest(x: Tensor, axis: int) -> Tensor:
    numbers = Tensor(np.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - axis - 1))).to(x.device)
    return (x.argmax(axis, True) == numbers).to(x.dtype)


# By place


@reads("GatherND", since=11, fixed=(1,))  # 12: batch_dims
def read_gather_nd(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    batch = node.get("batch_dims", 0)

    def gather(x: Tensor, indices: Tensor) -> Tensor:
        depth = indices.shape[-1] if indices.ndim else 0
        if not 0 <= batch <= min(indices.ndim - 1, x.ndim - depth) or x.shape[:batch] != indices.shape[:batch]:
            raise ValueError(
                f"batch_dims is {batch}, indices have shape {indices.shape}, data has shape {x.shape}; expected equal "
                "first batch_dims axes, and coordinates for at most the other axes of data"
            )
        node.fits((*indices.shape[:-1], *x.shape[batch + depth :]), x.dtype)
        places = [indices.array[..., i] for i in range(depth)]
        rank = indices.ndim - 1
        rows = [np.arange(n).reshape(-1, *(1,) * (rank - i - 1)) for i, n in enumerate(x.shape[:batch])]
        return x[(*rows, *places)] if rows or places else x

    return gather


@reads("Trilu", since=14, fixed=(1,))
def read_trilu(node: Node) -> Callable[..., Tensor]:
    upper = bool(node["upper"])

    def triangle(x: Tensor, k: Tensor | None = None) -> Tensor:
        if x.ndim < 2:
            raise ValueError(f"x has shape {x.shape}; expected matrices")
        rows, columns = x.shape[-2:]
        shift = max(-rows, min(columns, 0 if k is None else int(k.item())))
        kept = np.tri(rows, columns, shift - 1 if upper else shift, dtype=np.bool_)
        return where(Tensor(~kept if upper else kept).to(x.device), x, Tensor(np.zeros((), x.dtype)).to(x.device))

    return triangle


@reads("CumSum", since=11, fixed=(1,))
def read_cumsum(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    exclusive, reverse = bool(node["exclusive"]), bool(node["reverse"])

    def cumsum(x: Tensor, axis: Tensor) -> Tensor:
        return CumSum.apply(x, axis=axis_of("cumsum", int(axis.item()), x), exclusive=exclusive, reverse=reverse)

    return cumsum


@lowers(CumSum)
def lower_cumsum(g: Graph, x: Value, axis: int, exclusive: bool, reverse: bool) -> Value:
    """Multiply by a triangular matrix of ones along the axis; integers are computed in float64."""
    n = x.known_shape[axis]
    if isinstance(n, Size) or n > 4096:
        raise RuleNotApplicable("a cumulative sum along a free or long axis needs CumSum (opset 11)")
    order = [i for i in range(x.ndim) if i != axis] + [axis]
    wide = g.cast(x, dtypes.compute_type(x.dtype) if dtypes.is_float(x.dtype) else dtypes.float64)
    ones = np.triu(np.ones((n, n)), 1 if exclusive else 0)
    kernel = g.constant(ones.T.copy() if reverse else ones, wide.dtype, "triangle")
    moved = transpose(g, wide, order)
    y = g.add("MatMul", moved, kernel, shape=moved.shape)
    return g.cast(transpose(g, y, [int(i) for i in np.argsort(order)]), x.dtype)


@writes(CumSum, "CumSum", since=11)
def write_cumsum(g: Graph, x: Value, axis: int, exclusive: bool, reverse: bool) -> Value:
    return g.add(
        "CumSum",
        x,
        g.constant(axis, np.int64, "axis"),
        shape=x.known_shape,
        exclusive=int(exclusive),
        reverse=int(reverse),
    )


@reads("CumProd", since=26, fixed=(1,))
def read_cumprod(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    exclusive, reverse = bool(node["exclusive"]), bool(node["reverse"])

    def cumprod(x: Tensor, axis: Tensor) -> Tensor:
        dim = axis_of("cumprod", int(axis.item()), x)
        y = x.flip(dim) if reverse else x
        if exclusive:  # the first product is empty
            n = y.shape[dim]
            y = cat([y.new_ones(y.narrow(dim, 0, min(1, n)).shape), y.narrow(dim, 0, max(0, n - 1))], dim)
        y = CumProd.apply(y, axis=dim)
        return y.flip(dim) if reverse else y

    return cumprod


@writes(CumProd, "CumProd", since=26)
def write_cumprod(g: Graph, x: Value, axis: int) -> Value:
    return g.add("CumProd", x, g.constant(axis, np.int64, "axis"), shape=x.known_shape)


@lowers(CumProd)
def lower_cumprod(g: Graph, x: Value, axis: int) -> Value:
    raise RuleNotApplicable("CumProd exists from opset 26 on")
