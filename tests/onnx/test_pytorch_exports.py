"""Models that PyTorch wrote, by both of its exporters: outputs, gradients and training equal PyTorch's."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.tensor.tensor import Tensor  # noqa: E402

tnn, tF = torch.nn, torch.nn.functional


class Net(tnn.Module):
    """A convolutional network with a bit of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = tnn.Conv2d(3, 8, 3, 2, 1), tnn.BatchNorm2d(8)
        self.mix, self.groups = tnn.Conv2d(8, 8, 3, 1, 1, groups=4), tnn.GroupNorm(2, 8)
        self.pool, self.back = tnn.MaxPool2d(3, 2, 1), tnn.ConvTranspose2d(8, 6, 2, 2)
        self.act, self.up = tnn.PReLU(6), tnn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.head = tnn.Linear(6, 5)

    def forward(self, x: Any) -> Any:
        x = tF.hardswish(self.norm(self.stem(x)))
        x = self.up(self.act(self.back(self.pool(x + self.groups(self.mix(x))))))
        x = tF.pad(x, (1, 1, 2, 0), mode="reflect")
        x = tF.pixel_unshuffle(tF.pixel_shuffle(torch.cat([x, x[:, :2]], 1), 2)[..., :4, :4], 2)
        return self.head(x.mean((2, 3))[:, :6])


class Transformer(tnn.Module):
    """A vision transformer of one block."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = tnn.Conv2d(3, 16, 4, 4), tnn.Parameter(torch.randn(1, 1, 16))
        self.places, self.qkv, self.out = tnn.Parameter(torch.randn(1, 17, 16)), tnn.Linear(16, 48), tnn.Linear(16, 16)
        self.norm, self.head = tnn.LayerNorm(16), tnn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        n = x.shape[0]
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(n, -1, -1), x], 1) + self.places
        q, k, v = self.qkv(x).reshape(n, 17, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = tF.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, 17, 16)
        return self.head(self.norm(tF.gelu(x + self.out(y)))[:, 0])


def written(model: Any, x: Any, dynamo: bool, optimise: bool, free: bool, training: bool = False) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            pytest.importorskip("onnxscript")
            shapes = {"x": {0: torch.export.Dim("batch")}} if free else None
            program = torch.onnx.export(
                model, (x,), dynamo=True, optimize=optimise, dynamic_shapes=shapes, verbose=False
            )
            return program.model_proto
        file = io.BytesIO()
        mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
        torch.onnx.export(
            model, (x,), file, dynamo=False, do_constant_folding=optimise, opset_version=17, input_names=["x"],
            dynamic_axes={"x": {0: "batch"}} if free else None, training=mode,
        )  # fmt: skip
        return onnx.load_from_string(file.getvalue())


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize("optimise", [False, True], ids=["plain", "optimised"])
@pytest.mark.parametrize("dynamo", [False, True], ids=["script", "dynamo"])
@pytest.mark.parametrize("kind", [Net, Transformer])
def test_outputs(kind: Any, dynamo: bool, optimise: bool, free: bool) -> None:
    torch.manual_seed(0)
    model, x = kind().eval(), torch.randn(2, 3, 16, 16)
    proto = written(model, x, dynamo, optimise, free)
    loaded = mo.load(proto)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch in (x, torch.randn(5, 3, 16, 16)) if free else (x,):
        [want] = session.run(None, {proto.graph.input[0].name: batch.numpy()})
        y = loaded(Tensor(batch.numpy()))
        np.testing.assert_allclose(y.array, want, rtol=1e-4, atol=1e-4)
    y.sum().backward()
    assert all(p.grad is not None for p in loaded.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = mo.load(mo.export(loaded, (Tensor(batch.numpy()),), None))
    np.testing.assert_allclose(again(Tensor(batch.numpy())).array, y.array, rtol=1e-5, atol=1e-5)
    assert (again.input_names, again.output_names) == (loaded.input_names, loaded.output_names)
    assert set(again.state_dict()) == set(loaded.state_dict())


@pytest.mark.parametrize("training", [False, True])
def test_converted_to_other_opsets_onnxruntime_computes_the_same(training: bool) -> None:
    proto = written(Net().train(training), torch.randn(2, 3, 16, 16), False, True, free=True, training=training)
    for opset in (9, 22):
        new = mo.convert(proto, opset_version=opset, verify=True)
        names = [[entry.name for entry in getattr(m.graph, part)] for part in ("input", "output") for m in (proto, new)]
        assert names[0] == names[1]
        assert names[2] == names[3]
        held = {name for name, _ in mo.load(proto).named_parameters()}
        assert held <= {tensor.name for tensor in new.graph.initializer}


def test_training_goes_on_as_in_pytorch() -> None:
    torch.manual_seed(1)
    model, x = Net(), torch.randn(4, 3, 16, 16)
    loaded = mo.load(written(model, x, dynamo=False, optimise=False, free=True, training=True))
    names = dict(model.named_parameters())
    assert set(names) == {name for name, _ in loaded.named_parameters()}
    again = mo.load(mo.export(loaded, Tensor(x.numpy()), opset_version=9, training=None))
    assert (again.output_names, set(again.state_dict())) == (loaded.output_names, set(loaded.state_dict()))
    assert again.get_submodule("norm").training
    optimizer = mn.optim.SGD(loaded.parameters(), lr=0.05)
    theirs = torch.optim.SGD(model.parameters(), lr=0.05)
    model.train()
    for _ in range(3):
        x, labels = torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,))
        want = tF.cross_entropy(model(x), labels)
        theirs.zero_grad()
        want.backward()
        loss = F.cross_entropy(loaded(Tensor(x.numpy())), Tensor(labels.numpy()))
        optimizer.zero_grad()
        loss.backward()
        assert abs(loss.item() - want.item()) <= 1e-3 * abs(want.item())
        for name, p in loaded.named_parameters():
            expected = names[name].grad.numpy()
            assert np.abs(p.grad.array - expected).max() <= 1e-3 * max(np.abs(expected).max(), 1e-3), name
        theirs.step()
        optimizer.step()
