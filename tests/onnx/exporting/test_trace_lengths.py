"""Free heights and widths through whole networks: each file is right at three sizes, or the error says why not."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn

onnx = pytest.importorskip("onnx")

from minorm.onnx.checking import verification  # noqa: E402
from minorm.onnx.exporting import trace_lengths  # noqa: E402
from minorm.onnx.exporting.translating import translate  # noqa: E402

FREE = {"x": {0: "N", 2: "H", 3: "W"}}


def images(size: int, width: int | None = None) -> mn.Tensor:
    shape = (2, 3, size, width or size)
    return mn.tensor(np.random.default_rng(1).normal(size=shape).astype(np.float32))


def block(before: int, after: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())


def pyramid(levels: int) -> nn.Module:
    return nn.Sequential(*(block(6 if level else 3, 6, 2) for level in range(levels)))


class UNet(nn.Module):
    """Skip connections; what they join is made equal as `fit` says."""

    def __init__(self, fit: str = "", levels: int = 3) -> None:
        super().__init__()
        self.fit = fit
        widths = [4 * 2**i for i in range(levels + 1)]
        self.down = nn.ModuleList([block(a, b) for a, b in zip([3, *widths], widths, strict=False)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, 2) for a, b in itertools.pairwise(widths)])
        self.join = nn.ModuleList([block(2 * a, a) for a in widths[:-1]])

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        skips: list[mn.Tensor] = []
        for layer in self.down:
            if skips:
                x = F.max_pool2d(x, 2, ceil_mode=self.fit == "cut")
            x = layer(x)
            skips.append(x)
        for up, join, skip in reversed([*zip(self.up, self.join, skips, strict=False)]):
            x = up(x)
            h, w = skip.shape[2:]
            if self.fit == "cut":
                x = x[:, :, :h, :w]
            if self.fit == "pad":
                dy, dx = h - x.shape[2], w - x.shape[3]
                x = mn.pad(x, (dx // 2, dx - dx // 2, dy // 2, dy - dy // 2))
            x = join(mn.cat([skip, x], 1))
        return x


class Same(nn.Module):
    """Convolutions whose padding is that of TensorFlow's SAME, computed in Python; by pad, or by the layer itself."""

    def __init__(self, kernel: int = 3, inside: bool = False, pool: bool = False) -> None:
        super().__init__()
        self.kernel, self.inside, self.pool = kernel, inside, pool
        self.convs = nn.ModuleList([nn.Conv2d(n, 4, kernel, 2) for n in (3, 4, 4)])

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        for conv in self.convs:
            total = [max((-(-n // 2) - 1) * 2 + self.kernel - n, 0) for n in x.shape[2:]]
            pairs = tuple((n // 2, n - n // 2) for n in total)
            if self.pool:
                x = F.max_pool2d(x, self.kernel, 2, pairs)
            elif self.inside:
                x = F.conv2d(x, conv.weight, conv.bias, 2, pairs)
            else:
                x = conv(mn.pad(x, (*pairs[1], *pairs[0])))
        return x


class Windows(nn.Module):
    """Attention's windows: squares of seven by seven move to the batch axis, and back."""

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        n, c, h, w = x.shape
        y = x.permute(0, 2, 3, 1).reshape(n, h // 7, 7, w // 7, 7, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, c)
        y = F.softmax(y @ y.mT, -1) @ y
        return y.reshape(n, h // 7, w // 7, 7, 7, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)


class Tokens(nn.Module):
    """Patches, a class token, attention, and the map of what came of the patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 8, 8)
        self.token = nn.Parameter(mn.randn(1, 1, 8))

    def forward(self, x: mn.Tensor) -> tuple[mn.Tensor, mn.Tensor]:
        y = self.patches(x)
        n, c, h, w = y.shape
        y = mn.cat([self.token.expand(n, -1, -1), y.flatten(2).transpose(1, 2)], 1)
        y = F.softmax(y @ y.mT, -1) @ y
        return y[:, 0], y[:, 1:].transpose(1, 2).reshape(n, c, h, w)


def doubled(x: mn.Tensor) -> mn.Tensor:
    n, c, h, w = x.shape
    return x.reshape(n, c, h, 1, w, 1).expand(n, c, h, 2, w, 2).reshape(n, c, 2 * h, 2 * w)


class Features(nn.Module):
    """A pyramid whose levels are enlarged, cut to the level above and added."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList([pyramid(2), block(6, 6, 2), block(6, 6, 2)])

    def forward(self, x: mn.Tensor) -> list[mn.Tensor]:
        found: list[mn.Tensor] = []
        for level in self.levels:
            x = level(x)
            found.append(x)
        return [a + doubled(b)[:, :, : a.shape[2], : a.shape[3]] for a, b in itertools.pairwise(found)]


HEAD = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
FAMILIES: dict[str, tuple[Any, mn.Tensor]] = {
    "stride-32": (pyramid(5), images(32)),
    "stride-64-of-8": (pyramid(6), images(8)),
    "stride-128": (pyramid(7), images(40, 24)),
    "global-average": (nn.Sequential(pyramid(5), *HEAD), images(16)),
    "global-maximum": (lambda x: F.relu(x).amax((2, 3)), images(8)),
    "u-net-padded": (UNet("pad"), images(32)),
    "u-net-cut": (UNet("cut"), images(24)),
    "same": (Same(), images(32)),
    "same-5-inside": (Same(5, inside=True), images(32, 64)),
    "same-pooled": (Same(pool=True), images(32)),
    "tokens": (Tokens(), images(32)),
    "features": (Features(), images(64)),
    "ceil": (nn.Sequential(nn.MaxPool2d(3, 2, ceil_mode=True), nn.AvgPool2d(2, 2, ceil_mode=True)), images(16)),
    "halves": (lambda x: mn.cat([x[:, :, : x.shape[2] // 2], x[:, :, x.shape[2] // 2 :] * 2], 2), images(16)),
    "positions": (lambda x: x + mn.arange(x.shape[2]).reshape(-1, 1).to(x.dtype) / x.shape[2], images(16)),
    "cropped": (lambda x: x[:, :, x.shape[2] // 4 : x.shape[2] - x.shape[2] // 4, : -(x.shape[3] // 4)], images(16)),
    "strided-and-cut": (
        lambda x: F.avg_pool2d(mn.cat([x, x[:, :, 1:]], 2), 2, 3)[:, :, : ((2 * x.shape[2] - 3) // 3 + 1) // 2 + 1],
        images(24, 8),
    ),
    "numbers": (lambda x: x * float(x.shape[2]) / x.shape[3], images(16)),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_free_axis_keeps_its_identity(family: str) -> None:
    """The file is compared at the example's lengths and at two others, one of them a prime."""
    pytest.importorskip("onnxruntime")
    model, x = FAMILIES[family]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # every size is taken
        proto = mo.export(model, x, None, dynamic_axes=FREE, verify=True)
    for output in proto.graph.output:
        lengths_ = [d.dim_param or d.dim_value for d in output.type.tensor_type.shape.dim]
        assert lengths_[0] == "N"
        assert all(isinstance(n, str) for n in lengths_[2:])


@pytest.mark.parametrize("family", ["u-net-padded", "same-5-inside", "same-pooled", "features", "positions"])
def test_at_the_oldest_opset_that_has_range_and_pads_as_inputs(family: str) -> None:
    pytest.importorskip("onnxruntime")
    model, x = FAMILIES[family]
    mo.export(model, x, None, dynamic_axes=FREE, opset_version=11, verify=True)
    if family != "features":
        with pytest.raises(mo.ExportError, match=r"'H'|Range exists from opset 11 on"):
            mo.export(model, x, None, dynamic_axes=FREE, opset_version=9)


@pytest.mark.parametrize(("model", "x"), [(UNet(), images(32)), (Windows(), images(28))], ids=["u-net", "windows"])
def test_multiples_alone_are_compared_where_a_model_takes_no_other(model: Any, x: mn.Tensor) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.warns(
        UserWarning, match=r"export: the model does not run with x \(3, 3, .*, so the comparison uses x \(3, 3, "
    ):
        proto = mo.export(model, x, None, dynamic_axes=FREE, verify=True)
    assert all(d.dim_param for d in proto.graph.output[0].type.tensor_type.shape.dim[2:3])


def test_the_window_of_an_old_classifier_is_found_to_move() -> None:
    """7x7 at a length of 224, and 8x8 at 256, are both averaged to one; a longer run shows that they need not be."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 32, 1), nn.AvgPool2d(7))
    translated = translate(model, images(224, 32 * 7), opset_version=None, training=False, dynamic_axes=FREE)
    dims = translated.proto.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_param for d in dims[2:]] == ["dim_0", "dim_1"]
    assert all(max(own) >= 512 for own in translated.example.symbols.others[1:])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            nn.AdaptiveAvgPool2d(2),
            r"the operation depends on the length of the free axis 'H': it is AvgPool at length 8, but Ada",
        ),
        (
            lambda x: F.relu(x) if x.shape[3] % 2 else F.tanh(x),
            "the operation depends on the length of the free axis 'W': it is tanh at length 8, but relu at length 97",
        ),
        (
            nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.Flatten(), nn.Linear(192, 2)),
            r"the model runs only with length 8 of the axis 'H'; tried with 64, 16, 40, 4, 7: linear: x has",
        ),
        (
            lambda x: x * min(x.shape[2], 100),
            r"Mul: b: needs the length 8 or 64 or 97 or 100 at run time, but no tensor has this length; .* 'H'",
        ),
        (
            lambda x: mn.pad(x, (0, 0, 0, x.shape[2] % 11)),
            r"Pad\(x \(2, 3, 8, 8\)\): needs the length 8 or 9 or 6.* depends on the free axis 'H'",
        ),
        (
            lambda x: x + mn.tensor(np.linspace(0, 1, x.shape[3], dtype=np.float32)),
            r"the constant Add: b, of shape depends on the length of the free axis 'W': it is \(8,\) at length 8,",
        ),
        (
            lambda x: x * mn.tensor([1.0, x.shape[2], 2.0]).reshape(3, 1, 1),
            r"the constant Reshape: x of shape \(3,\) depends on the length of the free axis 'H': it is one at",
        ),
        (
            lambda x: F.avg_pool2d(x, x.shape[2] // 2),
            r"AvgPool\(x \(2, 3, 8, 8\)\): needs a fixed length, .*it is 4 or 8 or .* depends on the free axis 'H'",
        ),
    ],
)
def test_where_an_axis_cannot_stay_free_the_error_says_which_and_where(model: Any, message: str) -> None:
    with pytest.raises(mo.ExportError, match=message):
        mo.export(model, images(8), None, dynamic_axes=FREE)


def test_lengths_that_are_too_short_for_a_model_or_too_long() -> None:
    """Positions end at 16: shorter sequences take the place of longer ones."""
    table = nn.Parameter(mn.randn(16, 3))
    inputs = mn.ones(2, 16, 3)
    translated = translate(
        lambda x: x + table[: x.shape[1]], inputs, opset_version=None, training=False, dynamic_axes={"x": {1: "T"}}
    )
    assert translated.example.symbols.others == ((8, 15, 13),)


def test_a_model_that_insists_on_multiples_is_run_at_multiples() -> None:
    def model(x: mn.Tensor) -> mn.Tensor:
        assert x.shape[2] % 8 == 0
        return x + 1

    translated = translate(model, images(24), opset_version=None, training=False, dynamic_axes={"x": {2: "H"}})
    assert translated.example.symbols.others == ((64,),)


def test_odd_lengths_stay_odd_when_they_are_halved() -> None:
    for length in (8, 64, 100, 224, 300):
        for rest in (1, -1):
            n = trace_lengths._odd(length, rest)[0]
            for _ in range(5):
                assert n % 2
                n = -(-n // 2) if rest == 1 else n // 2


def moved(x: Any) -> Any:
    return x.roll((1, -3, 70), (2, 3, 3)) + x.roll(5).roll(0, 1)


POSITIONS = {
    **{f"Conv2d {mode}": nn.Conv2d(3, 2, 3, padding=(2, 1), padding_mode=mode)
       for mode in ("reflect", "replicate", "circular")},
    "ReflectionPad2d": nn.ReflectionPad2d((1, 2, 0, 3)),
    "ReflectionPad2d that cuts": nn.ReflectionPad2d((2, -1, -1, 2)),
    "ReplicationPad2d": nn.ReplicationPad2d((1, 0, 0, 3)),
    "ReplicationPad2d that cuts": nn.ReplicationPad2d((-1, 2, 3, -2)),
    "CircularPad2d": nn.CircularPad2d((1, 2, 0, 3)),
    "CircularPad2d that cuts": nn.CircularPad2d((2, -1, -2, 2)),
    "std": lambda x: x.std((2, 3)),
    "std, correction 2": lambda x: x.std((1, 3), correction=2),
    "var": lambda x: (x - x.mean((2, 3), keepdim=True)) / x.var((1, 2, 3), keepdim=True).sqrt(),
    "roll": moved,
}  # fmt: skip


def in_pytorch(name: str, model: Any, x: Any) -> Any:
    """Compute the same with PyTorch; return None for modules with weights."""
    torch = pytest.importorskip("torch")
    t = torch.tensor(x)
    if isinstance(model, nn.Conv2d):
        return None
    if "Pad2d" in name:
        return getattr(torch.nn, type(model).__name__)(model.padding)(t).numpy()
    if name == "roll":
        return (t.roll((1, -3, 70), (2, 3, 3)) + t.roll(5).roll(0, 1)).numpy()
    if name.startswith("std"):
        return t.std((2, 3) if name == "std" else (1, 3), correction=1 if name == "std" else 2).numpy()
    return ((t - t.mean((2, 3), keepdim=True)) / t.var((1, 2, 3), keepdim=True).sqrt()).numpy()


@pytest.mark.parametrize("opset", [11, 17, 19])
@pytest.mark.parametrize("name", POSITIONS)
def test_copies_around_deviations_and_rolls_of_free_height_and_width(name: str, opset: int) -> None:
    pytest.importorskip("onnxruntime")
    model = POSITIONS[name]
    proto = mo.export(model, images(8), None, opset_version=opset, input_names=["x"], dynamic_axes=FREE)
    session, loaded = verification.start(proto), mo.load(proto)
    for size in ((8, 8), (5, 7), (9, 6)):
        x = images(*size).array
        want = in_pytorch(name, model, x)
        want = model(mn.tensor(x)).array if want is None else want
        np.testing.assert_allclose(verification.run(session, {"x": x})[0], want, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(loaded(mn.tensor(x)).array, want, rtol=1e-5, atol=1e-5)


def test_the_error_names_the_layer() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Unfold(3)))
    with pytest.raises(mo.ExportError, match=r"the layer is '1\.0', a Unfold; leave that axis out of dynamic_axes"):
        mo.export(model, images(8), None, input_names=["x"], dynamic_axes=FREE)
    with pytest.raises(mo.ExportError, match="the layer is the Unfold; leave"):
        mo.export(nn.Unfold(3), images(8), None, input_names=["x"], dynamic_axes=FREE)
