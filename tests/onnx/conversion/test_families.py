"""Networks of many kinds, written by both exporters of PyTorch with free batch, height and width, to older opsets and
newer ones: onnxruntime's results stay the same at sizes that were not traced."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.onnx.checking import verification  # noqa: E402

tnn, tF = torch.nn, torch.nn.functional


class Lambda(tnn.Module):
    def __init__(self, function: Callable[..., Any], *layers: Any) -> None:
        super().__init__()
        self.function, self.layers = function, tnn.ModuleList(layers)

    def forward(self, x: Any) -> Any:
        return self.function(x, *self.layers)


def same_padding(x: Any, conv: Any) -> Any:
    """TensorFlow's SAME: as many zeros as the length asks for."""
    h, w = x.shape[-2:]
    high, wide = (max((-(-n // 2) - 1) * 2 + 3 - n, 0) for n in (h, w))
    return conv(tF.pad(x, (wide // 2, wide - wide // 2, high // 2, high - high // 2)))


def attention(x: Any, patches: Any, qkv: Any, out: Any, norm: Any) -> Any:
    n = x.shape[0]
    x = patches(x).flatten(2).transpose(1, 2)
    q, k, v = qkv(norm(x)).reshape(n, -1, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
    y = ((q @ k.transpose(-1, -2)) * 8**-0.5).softmax(-1) @ v
    return x + out(y.transpose(1, 2).reshape(n, -1, 16))


class UNet(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.low = tnn.Conv2d(3, 8, 3, 2, 1), tnn.Conv2d(8, 8, 3, 2, 1)
        self.up = tnn.Conv2d(16, 4, 3, 1, 1)

    def forward(self, x: Any) -> Any:
        a = tF.relu(self.down(x))
        b = tF.silu(self.low(a))
        b = tF.interpolate(b, size=a.shape[-2:], mode="bilinear", align_corners=False)
        return tF.interpolate(self.up(torch.cat([a, b], 1)), size=x.shape[-2:], mode="nearest")


class Recurrent(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = tnn.LSTM(3, 5, bidirectional=True, batch_first=True), tnn.GRU(10, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        x = x.flatten(2).transpose(1, 2)
        return self.gru(self.lstm(x)[0])[0][:, -1]


class Choosing(tnn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            y = tF.softplus(x).mean((2, 3), keepdim=True)
        else:
            y = tF.pad(x, [1, 1]).amax((2, 3), keepdim=True)
        return y


class Looping(tnn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x[0])
        for i in range(x.shape[0]):
            y = y * 0.5 + x[i].clamp(min=-0.5).mean(0, keepdim=True)
        return y.unsqueeze(0)


def squeeze_excite(x: Any, down: Any, up: Any) -> Any:
    return x * tF.hardsigmoid(up(tF.relu6(down(tF.adaptive_avg_pool2d(x, 1))))) + tF.hardswish(x)


def split_shuffle(x: Any, conv: Any) -> Any:
    a, b = conv(x).chunk(2, 1)
    n, c, h, w = a.shape
    y = torch.stack([a, b], 2).view(n, c * 2, h, w)
    return y.roll(1, 3).cumsum(1)


FAMILIES: dict[str, Callable[[], Any]] = {
    "same": lambda: Lambda(same_padding, tnn.Conv2d(3, 4, 3, 2)),
    "ceil": lambda: Lambda(
        lambda x, a, b: b(a(x)), tnn.MaxPool2d(3, 2, ceil_mode=True), tnn.AvgPool2d(3, 2, 1, True, False)
    ),
    "reflect": lambda: Lambda(lambda x, c: c(tF.pad(x, (2, 1, 1, 2), "reflect")), tnn.Conv2d(3, 4, 3)),
    "unet": UNet,
    "shuffle": lambda: Lambda(lambda x, c: tF.pixel_unshuffle(tF.pixel_shuffle(c(x), 2), 2), tnn.Conv2d(3, 8, 1)),
    "attention": lambda: Lambda(
        attention, tnn.Conv2d(3, 16, 4, 4), tnn.Linear(16, 48), tnn.Linear(16, 16), tnn.LayerNorm(16)
    ),
    "norms": lambda: Lambda(
        lambda x, c, g, i, b: b(i(tF.gelu(g(c(x))))),
        tnn.Conv2d(3, 8, 3),
        tnn.GroupNorm(2, 8),
        tnn.InstanceNorm2d(8, affine=True),
        tnn.BatchNorm2d(8),
    ),
    "recurrent": Recurrent,
    "excite": lambda: Lambda(squeeze_excite, tnn.Conv2d(3, 2, 1), tnn.Conv2d(2, 3, 1)),
    "split": lambda: Lambda(split_shuffle, tnn.Conv2d(3, 8, 1)),
    "transposed": lambda: Lambda(
        lambda x, a, p: tF.elu(p(a(x))).std((2, 3)), tnn.ConvTranspose2d(3, 4, 4, 2, 1), tnn.PReLU(4)
    ),
    "ends": lambda: Lambda(lambda x: tF.log_softmax(x, 1)[..., 1::2, -3:].topk(2, 1, largest=False)[0]),
    "losses": lambda: Lambda(lambda x: (tF.mish(x) - tF.normalize(x, dim=1)).abs().pow(2).mean((1, 2)) + x.norm()),
    "masks": lambda: Lambda(lambda x: x.flatten(2).softmax(-1).triu(1).masked_fill(x.flatten(2) >= 0.3, 0.0).argmax(1)),
    "grid": lambda: Lambda(lambda x: x + torch.arange(x.shape[2]).view(-1, 1) + torch.ones_like(x) * x.shape[3]),
}
SCRIPTED = {"choosing": Choosing, "looping": Looping}


def exported(module: Any, opset: int, dynamo: bool) -> Any:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 24, 24)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            dims = {0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
            torch.onnx.export(
                module,
                (x,),
                file,
                dynamo=True,
                opset_version=opset,
                dynamic_shapes=((dims),),
                verbose=False,
                external_data=False,
                input_names=["x"],
            )
        else:
            axes = {"x": {0: "n", 2: "h", 3: "w"}}
            torch.onnx.export(
                module, (x,), file, dynamo=False, opset_version=opset, dynamic_axes=axes, input_names=["x"]
            )
    return onnx.load_from_string(file.getvalue())


def agree(old: Any, new: Any) -> None:
    """The same at three sizes, where the old one runs, which it must at the first."""
    a, b = verification.start(old), verification.start(new)
    assert not isinstance(b, str), b
    for number, shape in enumerate([(2, 3, 24, 24), (3, 3, 32, 48), (1, 3, 37, 43)]):
        x = np.random.default_rng(number).standard_normal(shape).astype(np.float32)
        try:
            want = verification.run(a, {"x": x})
        except Exception:  # noqa: BLE001  of onnxruntime, whose exceptions have no common class
            assert number
            continue
        got = verification.run(b, {"x": x})
        for p, q in zip(want, got, strict=True):
            assert p.shape == q.shape
            np.testing.assert_allclose(q, p, rtol=1e-4, atol=1e-5)


def networks() -> Any:
    for name in FAMILIES:
        for dynamo in (False,) if name == "recurrent" else (False, True):  # the newer exporter unrolls free lengths
            yield pytest.param(name, dynamo, id=f"{name}-{'dynamo' if dynamo else 'script'}")
    for name in SCRIPTED:
        yield pytest.param(name, False, id=f"{name}-script")


@pytest.mark.parametrize(("name", "dynamo"), list(networks()))
def test_a_network_to_other_opsets(name: str, dynamo: bool) -> None:
    module = torch.jit.script(SCRIPTED[name]().eval()) if name in SCRIPTED else FAMILIES[name]().eval()
    source = 18 if dynamo else 17
    old = exported(module, source, dynamo)
    for target in (13, 22):
        new = mo.convert(old, opset_version=target)
        assert new.opset_import[0].version == target
        assert [entry.name for entry in new.graph.input] == [entry.name for entry in old.graph.input]
        agree(old, new)
