"""Whole networks: those of minorm.models, and one with attention, a class token and shared weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import models, nn

onnx = pytest.importorskip("onnx")


def images(channels: int, size: int) -> mn.Tensor:
    return mn.tensor(np.random.default_rng(1).normal(size=(2, channels, size, size)).astype(np.float32))


NETWORKS = [
    (models.digits_cnn, images(1, 8)),
    (models.lenet, images(1, 28)),
    (models.resnet20, images(3, 32)),
    (models.norms_cnn, images(3, 32)),
]


@pytest.mark.parametrize("opset", [7, 9, 12, 13, 17, 21, 26, 28])
@pytest.mark.parametrize(("build", "x"), NETWORKS, ids=lambda value: getattr(value, "__name__", ""))
def test_networks(proved: Any, operators: Any, build: Any, x: mn.Tensor, opset: int) -> None:
    model = build()
    for _ in range(2):
        model.train()(x)  # running statistics that are not those of a fresh model
    proto = proved(model, x, opset=opset, tolerance=2e-5)
    keys = [key for key in model.state_dict() if not key.endswith("num_batches_tracked")]
    assert set(keys) <= {t.name for t in proto.graph.initializer}
    batch_norms = sum(isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d)) for m in model.modules())
    assert operators(proto).count("BatchNormalization") == batch_norms
    dims = [d.dim_param or d.dim_value for d in proto.graph.output[0].type.tensor_type.shape.dim]
    assert dims == ["batch", 10]


@pytest.mark.parametrize(
    "name",
    [
        "mobilenet_v2",
        "vit_tiny",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("resnet18", "resnet34", "resnet50", "efficientnet_b0", "convnext_tiny")
        ),
    ],
)
def test_networks_with_torchvisions_keys(proved: Any, operators: Any, name: str) -> None:
    model, x = models.build(name, 3, 32, 10), images(3, 32)
    if name == "vit_tiny":
        nn.init.normal_(model.heads.head.weight)  # it begins as 0
    model.train()(x)  # running statistics that are not those of a fresh model
    proto = proved(model, x, tolerance=5e-5)
    keys = {key for key in model.state_dict() if not key.endswith("num_batches_tracked")}
    assert keys <= {t.name for t in proto.graph.initializer}
    assert operators(proto).count("BatchNormalization") == sum(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    assert not {"Dropout", "RandomUniformLike", "Bernoulli"} & set(operators(proto))
    dims = [d.dim_param or d.dim_value for d in proto.graph.output[0].type.tensor_type.shape.dim]
    assert dims == ["batch", 10]


@pytest.mark.parametrize(("build", "x"), NETWORKS, ids=lambda value: getattr(value, "__name__", ""))
def test_the_training_form_runs_and_gives_new_statistics(build: Any, x: mn.Tensor) -> None:
    pytest.importorskip("onnxruntime")
    model = build()
    proto = mo.export(model, x, None, training=True, verify=True)
    updated = {o.name.removesuffix(".updated") for o in proto.graph.output[1:]}
    assert updated == {key for key in model.state_dict() if "running" in key}


class Attention(nn.Module):
    """A small vision transformer: patches, a class token, one block of attention used twice."""

    def __init__(self, width: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(mn.randn(1, 1, width))
        self.places = nn.Parameter(mn.randn(1, 5, width))
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.RMSNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, 7)

    def attend(self, x: mn.Tensor) -> mn.Tensor:
        n, length, width = x.shape
        q, k, v = (
            part.reshape(n, length, self.heads, -1).permute(0, 2, 1, 3) for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        scores = F.softmax(q @ k.mT / (width / self.heads) ** 0.5, -1)
        return self.out((scores @ v).permute(0, 2, 1, 3).reshape(n, length, width))

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = mn.cat([self.token.expand(x.shape[0], -1, -1), y], 1) + self.places
        for _ in range(2):
            y = y + self.attend(y)
            y = y + self.mlp(y)
        return self.head(y[:, 0])


def test_a_small_vision_transformer(proved: Any, operators: Any, opset: int) -> None:
    model = Attention()
    proto = proved(model, images(3, 8), opset=opset, tolerance=2e-5)
    assert set(model.state_dict()) <= {t.name for t in proto.graph.initializer}
    assert operators(proto).count("LayerNormalization") == (2 if opset >= 17 else 0)
    assert operators(proto).count("RMSNormalization") == (2 if opset >= 23 else 0)


def test_a_network_and_its_loss_are_one_training_graph() -> None:
    pytest.importorskip("onnxruntime")

    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = models.digits_cnn()
            self.loss = nn.CrossEntropyLoss()

        def forward(self, image: mn.Tensor, label: mn.Tensor) -> mn.Tensor:
            return self.loss(self.net(image), label)

    args = (images(1, 8), mn.tensor([3, 7]))
    proto = mo.export(WithLoss(), args, None, training=True, verify=True)
    assert [i.name for i in proto.graph.input] == ["image", "label"]
    assert proto.graph.node[-1].op_type == "SoftmaxCrossEntropyLoss"
