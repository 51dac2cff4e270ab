"""Small networks as exporters write them, whose nodes make room for layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper as h

FLOAT = np.float32


def drawn(*shape: int) -> Any:
    """Return numbers that look trained, the same for the same shape."""
    return np.random.default_rng(sum(shape)).normal(0, 0.5, shape).astype(FLOAT)


def classifier(graph_of: Any, **more: Any) -> Any:
    """Build a file as PyTorch's older exporter writes it: conv, norm, pool, and a head `fc` of 7 classes."""
    nodes = [
        h.make_node("Conv", ["x", "conv.weight"], ["/conv/Conv_output_0"], name="/conv/Conv"),
        h.make_node(
            "BatchNormalization",
            ["/conv/Conv_output_0", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"],
            ["/bn/BatchNormalization_output_0"],
            name="/bn/BatchNormalization",
        ),
        h.make_node("Relu", ["/bn/BatchNormalization_output_0"], ["/Relu_output_0"], name="/Relu"),
        h.make_node("GlobalAveragePool", ["/Relu_output_0"], ["/pool_output_0"], name="/pool/GlobalAveragePool"),
        h.make_node("Flatten", ["/pool_output_0"], ["/Flatten_output_0"], name="/Flatten"),
        h.make_node("Gemm", ["/Flatten_output_0", "fc.weight", "fc.bias"], ["y"], name="/fc/Gemm", transB=1),
    ]
    held = {
        "conv.weight": drawn(4, 3, 1, 1),
        "bn.weight": drawn(4),
        "bn.bias": drawn(4),
        "bn.running_mean": drawn(4),
        "bn.running_var": np.abs(drawn(4)) + 1,
        "fc.weight": drawn(7, 4),
        "fc.bias": drawn(7),
    }
    return graph_of(nodes, {"x": (FLOAT, ["batch", 3, 5, 5])}, ["y"], held, **more)


def plain(graph_of: Any) -> Any:
    """Build a file as tools without modules write it: products and sums, and tensors named after their operation."""
    nodes = [
        h.make_node("MatMul", ["x", "first.w_0"], ["t0"], name="MatMul.0"),
        h.make_node("Add", ["t0", "first.b_0"], ["t1"], name="Add.0"),
        h.make_node("Relu", ["t1"], ["t2"], name="Relu.0"),
        h.make_node("MatMul", ["t2", "31"], ["t3"], name="MatMul.1"),
        h.make_node("Add", ["t3", "32"], ["t4"], name="Add.1"),
        h.make_node("Softmax", ["t4"], ["scores"], name="Softmax.0"),
    ]
    held = {"first.w_0": drawn(3, 4), "first.b_0": drawn(4), "31": drawn(4, 6), "32": drawn(6)}
    return graph_of(nodes, {"x": (FLOAT, ["n", 3])}, ["scores"], held)
