"""Layers that ONNX import and export know by their functions: each as a file, and back.

The checker and onnxruntime judge every file at two batch sizes (the fixture `proved`); what is loaded again computes
the same.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import minorm as mn
import minorm.onnx
from minorm import nn

IMAGE, SIGNAL, ROWS = (2, 4, 6, 6), (2, 4, 10), (2, 6)


class Outputs(nn.Module):
    """Returns the result of a recurrent layer after each step."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x)[0]


class Attention(nn.Module):
    """Self-attention with its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(10, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x)


CASES: dict[str, tuple[Any, tuple[int, ...], str]] = {  # layer, shape of its input, an operator of the file
    **{
        name: (lambda name=name: getattr(nn, name)(), ROWS, operator)
        for name, operator in {
            "SELU": "Selu",
            "CELU": "Celu",
            "Mish": "Mish",
            "LogSigmoid": "Softplus",
            "Softsign": "Softsign",
            "Tanhshrink": "Tanh",
            "Hardtanh": "Where",
            "Hardshrink": "Where",
            "Softshrink": "Where",
            "GLU": "Sigmoid",
        }.items()
    },
    "PReLU": (lambda: nn.PReLU(4), IMAGE, "PRelu"),
    "Threshold": (lambda: nn.Threshold(0.1, 2.0), ROWS, "Where"),
    "Softmin": (lambda: nn.Softmin(1), ROWS, "Softmax"),
    "RReLU": (lambda: nn.RReLU(0.125, 0.375), ROWS, "LeakyRelu"),
    "ConstantPad2d": (lambda: nn.ConstantPad2d((1, 2, 0, 3), 0.5), IMAGE, "Pad"),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(2), IMAGE, "Gather"),
    "ReplicationPad1d": (lambda: nn.ReplicationPad1d((1, 3)), SIGNAL, "Gather"),
    "CircularPad2d": (lambda: nn.CircularPad2d(1), IMAGE, "Gather"),
    "Upsample nearest": (lambda: nn.Upsample(scale_factor=2), IMAGE, "Resize"),
    "Upsample bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE, "Resize"),
    "Upsample bicubic": (lambda: nn.Upsample((9, 4), mode="bicubic", align_corners=True), IMAGE, "Resize"),
    "Upsample nearest-exact": (lambda: nn.Upsample((4, 9), mode="nearest-exact"), IMAGE, "Resize"),
    "Upsample area": (lambda: nn.Upsample((3, 2), mode="area"), IMAGE, "AveragePool"),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), IMAGE, "Transpose"),
    "PixelUnshuffle": (lambda: nn.PixelUnshuffle(2), IMAGE, "Transpose"),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(2), IMAGE, "Transpose"),
    "Unfold": (lambda: nn.Unfold(3, padding=1, stride=2), IMAGE, "Gather"),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d((3, 4)), IMAGE, "Gather"),
    "LPPool2d": (lambda: nn.LPPool2d(2, 2), IMAGE, "AveragePool"),
    "Dropout2d": (nn.Dropout2d, IMAGE, "Identity"),
    "AlphaDropout": (nn.AlphaDropout, ROWS, "Identity"),
    "StochasticDepth": (lambda: nn.StochasticDepth(0.5, "row"), IMAGE, "Identity"),
    "LSTM": (lambda: Outputs(nn.LSTM(10, 5, batch_first=True)), SIGNAL, "LSTM"),
    "LSTM of two layers": (lambda: Outputs(nn.LSTM(10, 5, 2, batch_first=True, bidirectional=True)), SIGNAL, "LSTM"),
    "GRU": (lambda: Outputs(nn.GRU(10, 5, batch_first=True)), SIGNAL, "GRU"),
    "RNN": (lambda: Outputs(nn.RNN(10, 5, nonlinearity="relu", batch_first=True)), SIGNAL, "RNN"),
    "MultiheadAttention": (Attention, SIGNAL, "Softmax"),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(10, 2, 16, batch_first=True), SIGNAL, "Softmax"),
    "CrossMapLRN2d": (lambda: nn.CrossMapLRN2d(3), IMAGE, "LRN"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_layer_as_a_file_and_back(name: str, proved: Any, rng: np.random.Generator) -> None:
    make, shape, operator = CASES[name]
    model = make().eval()
    x = mn.tensor(rng.standard_normal(shape).astype(np.float32))
    proto = proved(model, x)
    assert operator in {node.op_type for node in proto.graph.node}
    loaded = minorm.onnx.load(proto.SerializeToString())
    results = [list(y) if isinstance(y, tuple) else [y] for y in (model(x), loaded.eval()(x))]
    for mine, again in zip(*results, strict=True):
        np.testing.assert_allclose(again.array, mine.array, rtol=1e-5, atol=1e-6)


def test_embedding_reads_rows(rng: np.random.Generator) -> None:
    model = nn.Embedding(7, 3, padding_idx=0)
    x = mn.tensor(rng.integers(0, 7, (2, 5)))
    file = io.BytesIO()
    minorm.onnx.export(model, x, file)
    np.testing.assert_allclose(minorm.onnx.load(file.getvalue())(x).array, model(x).array)
