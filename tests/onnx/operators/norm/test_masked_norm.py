"""Normalizations with a mask as a file: in onnxruntime at other lengths and far from 0, and read back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn, optim

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.onnx.graph import versions  # noqa: E402
from minorm.onnx.graph.errors import ExportError  # noqa: E402

OPSETS = sorted({13, 17, 18, 21, 23, versions.DEFAULTS[-1], versions.NEWEST})
AXES = {"x": {0: "batch", 2: "length"}, "mask": {0: "batch", 2: "length"}}


class Masked(nn.Module):
    """A layer that is called with a mask."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: mn.Tensor, mask: mn.Tensor) -> mn.Tensor:
        return self.layer(x, mask)


LAYERS = {
    "batch": lambda: nn.BatchNorm1d(6),
    "batch alone": lambda: nn.BatchNorm1d(6, affine=False, track_running_stats=False),
    "places": lambda: nn.BatchNorm1d((6, 4)),
    "images": lambda: nn.BatchNorm2d(6),
    "instance": lambda: nn.InstanceNorm1d(6, affine=True),
    "instance, running": lambda: nn.InstanceNorm1d(6, affine=True, track_running_stats=True),
    "group": lambda: nn.GroupNorm(3, 6),
    "one group": lambda: nn.GroupNorm(1, 6),
    "a number a group": lambda: nn.GroupNorm(3, 6, per_group=True),
    "layer": lambda: nn.LayerNorm(4),
    "layer of two axes": lambda: nn.LayerNorm((6, 4), bias=False),
    "rms": lambda: nn.RMSNorm(4),
    "mean variance": lambda: nn.MeanVarianceNorm((0, 2)),
}
SHAPES = {"images": (3, 6, 4, 5)}
FIXED = ("places", "layer", "layer of two axes", "rms")  # the length is in their parameters


def numbers(shape: Any, offset: float = 0.0, seed: int = 0, dtype: Any = np.float32) -> Any:
    """x, NaN where the mask is False, and the mask: a prefix of each sample, of one of them nothing."""
    rng = np.random.default_rng(seed)
    lengths = np.append(rng.integers(1, shape[2] + 1, shape[0] - 1), 0)
    mask = (np.arange(shape[2]) < lengths[:, None]).reshape(shape[0], 1, shape[2], *[1] * (len(shape) - 3))
    x = (rng.standard_normal(shape) + offset).astype(dtype)
    return np.where(mask, x, np.nan).astype(dtype), mask


def export(model: Any, shape: Any, opset: int, name: str = "", **options: Any) -> Any:
    x, mask = (mn.Tensor(a) for a in numbers(shape))
    axes = {key: {0: "batch"} for key in AXES} if name in FIXED else AXES
    return mo.export(
        model, (x, mask), None, opset_version=opset, input_names=["x", "mask"], dynamic_axes=axes, **options
    )


def session(proto: Any) -> Any:
    return ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


def close(got: Any, want: Any, bound: float = 5e-6) -> None:
    np.testing.assert_allclose(got, want, atol=bound * (1 + np.abs(want).max(initial=0)), rtol=0)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", LAYERS)
def test_onnxruntime_agrees_at_other_lengths_and_far_from_0(lived_in: Any, name: str, opset: int) -> None:
    shape = SHAPES.get(name, (3, 6, 4))
    model = Masked(lived_in(LAYERS[name]())).eval()
    proto = export(model, shape, opset, name)
    assert [value.name for value in proto.graph.input] == ["x", "mask"]
    if opset > versions.DEFAULTS[-1]:
        return
    run = session(proto)
    for batch, length in ((3, 4), (2, 4), (5, 4 if name in FIXED else 9)):
        for offset in (0, 1e4):
            x, mask = numbers((batch, 6, length, *shape[3:]), offset)
            [y] = run.run(None, {"x": x, "mask": mask})
            want = model(mn.Tensor(x), mn.Tensor(mask)).numpy()
            scale = 1 if name not in ("batch", "places", "images", "instance, running") else 1 + offset
            assert np.abs(y - want).max() <= 5e-6 * scale
            assert not y[~np.broadcast_to(mask, y.shape)].any()


@pytest.mark.parametrize("opset", [13, versions.DEFAULTS[-1]])
@pytest.mark.parametrize("name", LAYERS)
def test_read_back_it_is_the_same_and_trains(lived_in: Any, name: str, opset: int) -> None:
    shape = SHAPES.get(name, (3, 6, 4))
    model = Masked(lived_in(LAYERS[name]())).eval()
    back = mo.load(export(model, shape, opset, name))
    assert {key for key, _ in back.named_parameters()} == {key for key, _ in model.named_parameters()}
    want_buffers = {key for key, _ in model.named_buffers() if "running" in key}
    assert {key for key, _ in back.named_buffers()} == want_buffers
    x, mask = (mn.Tensor(a) for a in numbers((4, 6, 4, *shape[3:]), 2, seed=1))
    dy = mn.Tensor(np.random.default_rng(2).standard_normal(x.shape).astype(np.float32))
    gradients = []
    for one in (model, back):
        one.zero_grad()
        data = mn.Tensor(x.numpy().copy(), True)
        y = one(data, mask)
        y.backward(dy)
        gradients.append([y.numpy(), data.grad.numpy(), *(p.grad.numpy() for _, p in sorted(one.named_parameters()))])
    for got, want in zip(*gradients, strict=True):
        close(got, want, 1e-5)
    before = [tensor.numpy().copy() for tensor in back.buffers()]
    np.testing.assert_array_equal(back.train()(x, mask).numpy(), back.eval()(x, mask).numpy())
    for tensor, value in zip(back.buffers(), before, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), value)
    if not list(back.parameters()):
        return
    optimizer = optim.SGD(back.parameters(), 0.003)
    target = dy * mn.Tensor(mask.numpy().astype(np.float32))
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = ((back(x, mask) - target) ** 2).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    y = session(mo.export(back, None, None)).run(None, {"x": x.numpy(), "mask": mask.numpy()})[0]
    close(y, back(x, mask).numpy())


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("momentum", [0.9, None])
@pytest.mark.parametrize("name", ["batch", "places", "instance, running"])
def test_training_form(lived_in: Any, name: str, momentum: Any, unbiased: bool) -> None:
    """The running statistics are outputs; a channel without elements, and a batch without any, change nothing."""
    layer = lived_in(LAYERS[name]())
    layer.momentum, layer.unbiased_running_var = momentum, unbiased
    model = Masked(layer).train()
    x, mask = numbers((5, 6, 4), 3, seed=3)
    mask = np.repeat(mask, 6, 1)
    mask[:, 2] = False
    proto = mo.export(
        model, (mn.Tensor(x), mn.Tensor(mask)), None, opset_version=17, input_names=["x", "mask"], training=True
    )
    run = session(proto)
    outputs = [value.name for value in proto.graph.output]
    for wide in (mask, np.zeros_like(mask)):
        before = {key: value.numpy().copy() for key, value in model.state_dict().items()}
        found = dict(zip(outputs, run.run(None, {"x": x, "mask": wide}), strict=True))
        back = mo.load(proto).train()
        got = back(mn.Tensor(x), mn.Tensor(wide))
        y = model(mn.Tensor(x), mn.Tensor(wide))
        close(found.pop(outputs[0]), y.numpy())
        close(got.numpy(), y.numpy())
        after = model.state_dict()
        assert any(key.endswith("running_mean.updated") for key in found)
        for key, value in found.items():
            close(value, after[key.removesuffix(".updated")].numpy())
        for key, value in back.named_buffers():
            close(value.numpy(), after[key].numpy())
        if not wide.any():
            for key, value in before.items():
                np.testing.assert_array_equal(value, after[key].numpy())
        model.load_state_dict({key: mn.Tensor(value) for key, value in before.items()})


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("name", ["batch", "group", "layer", "rms"])
def test_other_types(lived_in: Any, name: str, dtype: Any) -> None:
    model = Masked(lived_in(LAYERS[name]()).to(dtype)).eval()
    x, mask = numbers((3, 6, 4), dtype=dtype)
    proto = mo.export(model, (mn.Tensor(x), mn.Tensor(mask)), None, opset_version=17, input_names=["x", "mask"])
    [y] = session(proto).run(None, {"x": x, "mask": mask})
    close(y, model(mn.Tensor(x), mn.Tensor(mask)).numpy(), 2e-3 if dtype == np.float16 else 1e-12)


def test_compute_dtype(lived_in: Any) -> None:
    model = Masked(lived_in(nn.LayerNorm(4, compute_dtype=mn.float64)))
    x, mask = numbers((3, 6, 4), 1e4)
    proto = mo.export(model, (mn.Tensor(x), mn.Tensor(mask)), None, opset_version=17, input_names=["x", "mask"])
    [y] = session(proto).run(None, {"x": x, "mask": mask})
    close(y, model(mn.Tensor(x), mn.Tensor(mask)).numpy(), 2e-7)


def test_a_mask_that_the_model_makes() -> None:
    """Of lengths, by a comparison, as models of padded texts do."""

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(4)

        def forward(self, x: mn.Tensor, lengths: mn.Tensor) -> mn.Tensor:
            positions = mn.arange(x.shape[1]).reshape(1, -1, 1)
            return self.norm(x, positions < lengths.reshape(-1, 1, 1))

    model = Padded()
    x, lengths = mn.randn(2, 5, 4), mn.tensor([3, 5])
    proto = mo.export(
        model, (x, lengths), None, opset_version=17, input_names=["x", "lengths"],
        dynamic_axes={"x": {0: "batch", 1: "length"}, "lengths": {0: "batch"}},
    )  # fmt: skip
    x, lengths = mn.randn(3, 8, 4), mn.tensor([8, 0, 1])
    [y] = session(proto).run(None, {"x": x.numpy(), "lengths": lengths.numpy()})
    close(y, model(x, lengths).numpy())


@pytest.mark.parametrize("opset", [7, 12])
@pytest.mark.parametrize("name", LAYERS)
def test_before_13_it_is_a_named_error(name: str, opset: int) -> None:
    with pytest.raises(ExportError, match=rf"a mask is written from opset 13 on; the model's opset is {opset}"):
        export(Masked(LAYERS[name]()), SHAPES.get(name, (3, 6, 4)), opset, name)


def test_without_a_mask_the_operators_are_written_as_before() -> None:
    x = mn.randn(3, 6, 4)
    for call, operator in (
        (lambda x: F.layer_norm(x, 4), "LayerNormalization"),
        (F.instance_norm, "InstanceNormalization"),
        (lambda x: F.mean_variance_norm(x, (2,)), "MeanVarianceNormalization"),
    ):

        class Model(nn.Module):
            forward = staticmethod(call)

        assert operator in {node.op_type for node in mo.export(Model(), (x,), None, opset_version=17).graph.node}
