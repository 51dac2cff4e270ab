"""Read and write LRN (versions 1 and 13) and LpNormalization (versions 1 and 22).

An LRN with an even window is written as a formula, because ONNX's window is the mirror image of PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import lowers, reads, writes
from minorm.onnx.operators.math.arithmetic import clip
from minorm.onnx.operators.math.reduction import reduce
from minorm.onnx.operators.norm.statistics import wide
from minorm.tensor.tensor import Tensor


@writes(F.local_response_norm, "LRN", since=1)
def write_lrn_1(g: Graph, x: Value, size: int, alpha: float, beta: float, k: float) -> Value:
    if size % 2 == 0 or x.dtype != dtypes.float32 or x.ndim != 4:
        raise RuleNotApplicable(
            "LRN is used only for float32 images and an odd size"
        )  # onnxruntime takes exactly four axes
    return g.add("LRN", x, shape=x.shape, size=size, alpha=float(alpha), beta=float(beta), bias=float(k))


@lowers(F.local_response_norm)
def lower_lrn(g: Graph, x: Value, size: int, alpha: float, beta: float, k: float) -> Value:
    """Write the formula; a 1x1 convolution, whose weight is a band of ones, computes the sums over channels."""
    channels, compute = int(x.known_shape[1]), wide(g, x)
    offset = np.arange(channels)[None, :] - np.arange(channels)[:, None]  # of input channel to output channel
    band = ((offset >= -(size // 2)) & (offset <= (size - 1) // 2)) * (alpha / size)
    squares = g.add("Mul", compute, compute)
    if x.ndim == 2:
        energy = g.add("MatMul", squares, g.constant(band.T, compute.dtype, "window"), shape=x.shape)
    else:
        kernel = band.reshape(channels, channels, *(1,) * (x.ndim - 2))
        energy = g.add("Conv", squares, g.constant(kernel, compute.dtype, "window"), shape=x.shape)
    D = g.add("Add", energy, g.scalar(k, compute))
    return g.cast(g.add("Div", compute, g.add("Pow", D, g.scalar(beta, compute))), x.dtype)


STEPS = 8  # an element of a window takes as long as this many multiplications


@reads("LRN", since=1)  # of size - 1 other channels, the smaller half is before, the larger after
def read_lrn(node: Node) -> Callable[[Tensor], Tensor]:
    size, alpha, beta, bias = (node[name] for name in ("size", "alpha", "beta", "bias"))

    def normalize(x: Tensor) -> Tensor:
        node.check_work(STEPS, x.numel(), min(size, x.shape[1] if x.ndim > 1 else 1))
        if size % 2:
            return F.local_response_norm(x, size, alpha, beta, bias)
        return F.local_response_norm(x.flip(1), size, alpha, beta, bias).flip(1)

    return normalize


@writes(F.normalize, "LpNormalization", since=1)
def write_lp_1(g: Graph, x: Value, p: float, dim: int, eps: float) -> Value:
    if p not in (1, 2) or x.dtype != dtypes.float32 or eps > 1e-12:
        raise RuleNotApplicable("LpNormalization is used only for float32, p=1 or p=2, and a negligible eps")
    return g.add("LpNormalization", x, shape=x.shape, axis=dim % x.ndim, p=int(p))


@lowers(F.normalize)
def lower_lp(g: Graph, x: Value, p: float, dim: int, eps: float) -> Value:
    compute = wide(g, x)
    powers = g.add("Pow", g.add("Abs", compute), g.scalar(p, compute))
    norm = g.add("Pow", reduce(g, "ReduceSum", powers, [dim % x.ndim]), g.scalar(1 / p, compute))
    return g.cast(g.add("Div", compute, clip(g, norm, eps, None)), x.dtype)


@reads("LpNormalization", since=1)
def read_lp(node: Node) -> Callable[[Tensor], Tensor]:
    p, axis = node["p"], node["axis"]
    if p not in (1, 2):
        raise ValueError(f"p is {p}; expected 1 or 2")
    return lambda x: F.normalize(x, p, axis, eps=0)
