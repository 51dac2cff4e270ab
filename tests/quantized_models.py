"""Small models for the tests of quantization, and a few steps of training."""

from __future__ import annotations

from typing import Any

import numpy as np

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm import quantization as Q


def trained(model: nn.Module, x: mn.Tensor, qconfig: Any = None, steps: int = 3, freeze: bool = True) -> Any:
    """Prepare a model with prepare_qat and train it a few steps to a fixed target; the last with frozen statistics."""
    qat = Q.prepare_qat(model, x, qconfig)
    optimizer = mn.optim.SGD(qat.parameters(), lr=0.02)
    for step in range(steps):
        if freeze and step == steps - 1:
            Q.freeze_bn_stats(qat)
        loss = ((qat(x) - 0.5) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return qat.eval()


def images(*shape: int, seed: int = 0) -> mn.Tensor:
    return mn.tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


class Inverted(nn.Module):
    """MobileNet's block: wide inside, depthwise, and a residual sum."""

    def __init__(self, channels: int, activation: Any) -> None:
        super().__init__()
        wide = 2 * channels
        self.body = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            activation(),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            activation(),
            nn.Conv2d(wide, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return x + self.body(x)


def mobilenet(activation: Any) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        activation(),
        Inverted(8, activation),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


class Joined(nn.Module):
    """Two branches that are concatenated, and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 5, 1), nn.Conv2d(9, 4, 1)
        self.gate, self.d = nn.Linear(4, 4), nn.Conv2d(4, 2, 1)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        y = self.c(mn.cat([self.a(x).relu(), self.b(x)], 1))
        return self.d(y * F.hardsigmoid(self.gate(y.mean((2, 3)))).reshape(-1, 4, 1, 1))


class InPlace(nn.Module):
    """A residual sum in place."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 1)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        y = self.a(x)
        y += self.b(x)
        return y.relu()


class Tokens(nn.Module):
    """Linear layers on three axes, and a LayerNorm that stays float."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 8)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return x + self.b(F.gelu(self.norm(self.a(x))))


def zoo() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Return models by name, each with the shape of its input."""
    square = (6, 3, 8, 8)
    return {
        "relu6": (mobilenet(nn.ReLU6), square),
        "hardswish": (mobilenet(nn.Hardswish), square),
        "joined": (Joined(), square),
        "in place": (InPlace(), square),
        "tokens": (Tokens(), (3, 5, 8)),
        "pooling": (
            nn.Sequential(
                nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 1), nn.AvgPool2d(2), nn.Flatten(),
                nn.Dropout(0.2), nn.Linear(4, 3),
            ),
            square,
        ),
        "group norm": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 4, 1)), square),
        "one axis": (
            nn.Sequential(
                nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(), nn.Conv1d(4, 4, 3, dilation=2, groups=2)
            ),
            (4, 3, 9),
        ),
        "three axes": (
            nn.Sequential(nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.Conv3d(4, 4, 1)),
            (2, 3, 4, 4, 4),
        ),
        "norm first": (nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3)), square),
        "linear and norm": (nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)), (8, 5)),
    }  # fmt: skip
