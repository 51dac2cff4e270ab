"""Networks of ordinary size load, run and train with the default max_bytes: the guard counts what is really multiplied.

Oracle: PyTorch, which wrote the files.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

import minorm.onnx as mo  # noqa: E402  after importorskip

tn, functional = torch.nn, torch.nn.functional


class Patches(tn.Module):  # type: ignore[misc]
    """An image as a sequence of patches: (N, 3, 224, 224) to (N, patches, width)."""

    def __init__(self, side: int, width: int) -> None:
        super().__init__()
        self.project = tn.Conv2d(3, width, side, side)

    def forward(self, x: Any) -> Any:
        return self.project(x).flatten(2).transpose(1, 2)


class VisionTransformer(tn.Module):  # type: ignore[misc]
    def __init__(self, side: int, width: int, heads: int) -> None:
        super().__init__()
        self.patches, self.heads = Patches(side, width), heads
        self.place = tn.Parameter(torch.randn(1, (224 // side) ** 2, width) * 0.02)
        self.before, self.after = tn.LayerNorm(width), tn.LayerNorm(width)
        self.queries, self.out = tn.Linear(width, 3 * width), tn.Linear(width, width)
        self.up, self.down = tn.Linear(width, 4 * width), tn.Linear(4 * width, width)
        self.classes = tn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        x = self.patches(x) + self.place
        n, length, width = x.shape
        split = self.queries(self.before(x)).reshape(n, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, length, width))
        return self.classes((x + self.down(functional.gelu(self.up(self.after(x))))).mean(1))


class Mixer(tn.Module):  # type: ignore[misc]
    def __init__(self, side: int, width: int) -> None:
        super().__init__()
        self.patches, length = Patches(side, width), (224 // side) ** 2
        self.before, self.after = tn.LayerNorm(width), tn.LayerNorm(width)
        self.along = tn.Sequential(tn.Linear(length, width // 2), tn.GELU(), tn.Linear(width // 2, length))
        self.across = tn.Sequential(tn.Linear(width, 4 * width), tn.GELU(), tn.Linear(4 * width, width))
        self.classes = tn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        x = self.patches(x)
        x = x + self.along(self.before(x).transpose(1, 2)).transpose(1, 2)
        return self.classes((x + self.across(self.after(x))).mean(1))


class Pyramid(tn.Module):  # type: ignore[misc]
    """Dilated convolutions of 2048 channels side by side, as DeepLabV3 ends."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = tn.Sequential(tn.Conv2d(3, 64, 7, 2, 3), tn.ReLU(), tn.Conv2d(64, 2048, 3, 4, 1), tn.ReLU())
        self.arms = tn.ModuleList(tn.Conv2d(2048, 64, 3, padding=d, dilation=d, bias=False) for d in (12, 24, 36))
        self.norm, self.out = tn.BatchNorm2d(192), tn.ConvTranspose2d(192, 5, 16, 8, 4)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        return self.out(self.norm(torch.cat([arm(x) for arm in self.arms], 1)).relu())


class LargeAverage(tn.Module):  # type: ignore[misc]
    """A classifier whose last average is over as many pixels as there are channels, of which 7 x 7 are there."""

    def __init__(self) -> None:
        super().__init__()
        self.features = tn.Sequential(tn.Conv2d(3, 1280, 32, 32), tn.SiLU(), tn.AvgPool2d(1280, ceil_mode=True))
        self.classes = tn.Linear(1280, 10)

    def forward(self, x: Any) -> Any:
        return self.classes(self.features(x).reshape(x.shape[0], 1280))


NETS = {
    "patches of 32": lambda: VisionTransformer(32, 768, 12),
    "patches of 16": lambda: VisionTransformer(16, 384, 6),
    "mixer": lambda: Mixer(16, 512),
    "dilated": Pyramid,
    "average": LargeAverage,
}


@pytest.mark.parametrize("name", NETS)
def test_networks_of_strangers(name: str) -> None:
    torch.manual_seed(0)
    net = NETS[name]().eval()
    x = torch.randn(1, 3, 224, 224)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        free = {"x": {0: "n"}}
        torch.onnx.export(net, (x,), file, opset_version=17, dynamo=False, input_names=["x"], dynamic_axes=free)
    model = mo.load(file.getvalue())
    y, expected = model(mn.Tensor(x.numpy())), net(x)
    scale = expected.abs().max().item()
    np.testing.assert_allclose(y.array, expected.detach().numpy(), rtol=0, atol=1e-4 * scale)
    (y * y).mean().backward()
    (expected * expected).mean().backward()
    wanted = sum(float((p.grad.double() ** 2).sum()) for p in net.parameters())
    got = sum(float((p.grad.array.astype(np.float64) ** 2).sum()) for p in model.parameters() if p.grad is not None)
    np.testing.assert_allclose(got, wanted, rtol=1e-3)


class Recurrence(tn.Module):  # type: ignore[misc]
    """A cell of a dozen operations over a long sequence: to be scripted, so that it is a Loop."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.x, self.h, self.norm = tn.Linear(width, 3 * width), tn.Linear(width, 3 * width), tn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(x[0])
        for t in range(x.size(0)):
            given, kept = self.x(x[t]).chunk(3, 1), self.h(h).chunk(3, 1)
            z, r = torch.sigmoid(given[0] + kept[0]), torch.sigmoid(given[1] + kept[1])
            h = self.norm(z * h + (1 - z) * torch.tanh(given[2] + r * kept[2]))
        return h


def test_a_loop_over_a_long_sequence_trains() -> None:
    # In float64: a rounding in the first of 600 steps grows until the last, in float32 to a thousandth of the gradient.
    torch.manual_seed(0)
    net, x = Recurrence(64).double(), torch.randn(600, 4, 64, dtype=torch.float64)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(torch.jit.script(net), (x,), file, opset_version=17, dynamo=False)
    model = mo.load(file.getvalue())
    y, expected = model(mn.Tensor(x.numpy())), net(x)
    np.testing.assert_allclose(y.array, expected.detach().numpy(), rtol=0, atol=1e-10)
    (y * y * y).mean().backward()
    (expected * expected * expected).mean().backward()
    theirs = dict(net.named_parameters())
    for name, p in model.named_parameters():
        if name in theirs and theirs[name].shape == p.shape:
            want = theirs[name].grad.numpy()
            np.testing.assert_allclose(p.grad.array, want, rtol=0, atol=1e-9 * abs(want).max(), err_msg=name)
    assert sum(p.array.size for p in model.parameters()) == sum(p.numel() for p in net.parameters())
