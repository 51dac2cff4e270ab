"""Places of PyTorch's files: each submodule has its parameters there too, and trains at its own rate as PyTorch's."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import optim

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

import minorm.onnx as mo  # noqa: E402
from tests.onnx.families import FAMILIES  # noqa: E402

tnn = torch.nn


class Block(tnn.Module):
    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = tnn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn1 = tnn.BatchNorm2d(width)
        self.conv2 = tnn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = tnn.BatchNorm2d(width)
        self.relu = tnn.ReLU()
        self.shortcut = tnn.Sequential(tnn.Conv2d(width, width, 1, stride, bias=False), tnn.BatchNorm2d(width))

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.shortcut(x))


class Residual(tnn.Module):
    """As those that people take from libraries: stem, layers of blocks, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu = tnn.Conv2d(3, 4, 3, 2, 1, bias=False), tnn.BatchNorm2d(4), tnn.ReLU()
        self.layer1 = tnn.Sequential(Block(4, 1), Block(4, 1))
        self.layer2 = tnn.Sequential(Block(4, 2), Block(4, 1))
        self.fc = tnn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        x = self.layer2(self.layer1(self.relu(self.bn1(self.conv1(x)))))
        return self.fc(x.mean((2, 3)))


class Attention(tnn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = tnn.LayerNorm(width), tnn.Linear(width, 3 * width), tnn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.out(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)


class Words(tnn.Module):
    """Blocks in a ModuleList, which the exporter does not name, and linear layers, whose weights it transposes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = tnn.Linear(6, 8)
        self.blocks = tnn.ModuleList([Attention(8) for _ in range(2)])
        self.mlp = tnn.Sequential(tnn.Sequential(tnn.Linear(8, 8), tnn.GELU()), tnn.Linear(8, 3))

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.mlp(x)


def made(kind: Any, *shape: int) -> tuple[Any, Any]:
    """With weights as of training: no two are equal."""
    torch.manual_seed(len(shape))
    model = kind()
    with torch.no_grad():
        for tensor in (*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())):
            tensor += 0.1 * torch.rand_like(tensor)
    return model.double().eval(), torch.randn(*shape).double()


# The initial state of a recurrent layer is the outer module's, but has lost its name, and only the layer's node reads
# it.
BEGINNINGS = {"learned_states": {"gru": 8}, "plain_learned_state": {"cell": 8}}
NETS = {"residual": (Residual, 2, 3, 12, 12), "words": (Words, 2, 5, 6)}


def written(model: Any, x: Any, newer: bool, folded: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if newer:
            pytest.importorskip("onnxscript")
            return torch.onnx.export(model, (x,), dynamo=True, optimize=folded, verbose=False).model_proto
        file, mode = io.BytesIO(), torch.onnx.TrainingMode
        torch.onnx.export(model, (x,), file, dynamo=False, training=mode.EVAL if folded else mode.PRESERVE)
    return onnx.load_from_string(file.getvalue())


def size(module: Any) -> int:
    return sum(int(np.prod(p.shape)) for p in module.parameters())


@pytest.mark.parametrize("newer", [False, True], ids=["script", "dynamo"])
@pytest.mark.parametrize("name", NETS)
def test_every_module_has_its_parameters(name: str, newer: bool) -> None:
    net, x = made(NETS[name][0], *NETS[name][1:])
    model = mo.load(written(net, x, newer, folded=False))
    modules = {path: size(module) for path, module in net.named_modules() if path and size(module)}
    assert {path: size(model.get_submodule(path)) for path in modules} == modules
    assert size(model) == size(net)
    assert len(model.state_dict()) == len({key for key, _ in (*model.named_parameters(), *model.named_buffers())})


# Elements that it takes from a module: it reshapes the weight and names it after a node, which lies in no module.
RENAMED = {"standardized": {"conv": -108}}


@pytest.mark.parametrize("newer", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["script", "dynamo"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_module_of_every_family_has_its_parameters(name: str, newer: bool) -> None:
    torch.manual_seed(sum(map(ord, name)))
    net, x = FAMILIES[name]()
    with torch.no_grad():
        for p in net.parameters():
            p += 0.1 * torch.randn_like(p)
    net = net.double().eval()
    model = mo.load(written(net, x.double() if x.is_floating_point() else x, newer, folded=False))
    modules = {path: size(module) for path, module in net.named_modules() if path and size(module)}
    others = BEGINNINGS if newer else BEGINNINGS | RENAMED
    modules |= {path: modules[path] + more for path, more in others.get(name, {}).items()}
    assert {path: size(model.get_submodule(path)) for path in modules} == modules


@pytest.mark.parametrize("newer", [False, True], ids=["script", "dynamo"])
def test_also_where_batch_norm_was_folded(newer: bool) -> None:
    net, x = made(*NETS["residual"])
    model = mo.load(written(net, x, newer, folded=True))
    convolutions = {path: module for path, module in net.named_modules() if isinstance(module, tnn.Conv2d)}
    for path, module in convolutions.items():
        assert size(model.get_submodule(path)) == size(module) + module.out_channels  # a bias now
    blocks = [f"layer{layer}.{number}" for layer in (1, 2) for number in (0, 1)]
    assert {size(model.get_submodule(path)) for path in blocks} == {2 * (4 * 36 + 4) + 4 * 4 + 4}
    assert sum(size(model.get_submodule(path)) for path in ("conv1", "layer1", "layer2", "fc")) == size(model)
    model.get_submodule("layer1").freeze()
    trained = sum(int(np.prod(p.shape)) for p in model.parameters() if p.requires_grad)
    assert trained == size(model) - size(model.get_submodule("layer1"))


@pytest.mark.parametrize("name", NETS)
def test_learning_rates_by_layer_are_those_of_pytorch(name: str) -> None:
    net, x = made(NETS[name][0], *NETS[name][1:])
    model = mo.load(written(net, x, newer=False, folded=False))
    model.eval()
    paths = [path for path, _ in net.named_children() if size(net.get_submodule(path))]
    rates = {path: 0.1 / (1 + place) for place, path in enumerate(paths)}
    groups = [{"params": model.get_submodule(path).parameters(), "lr": rate} for path, rate in rates.items()]
    ours = optim.SGD(groups, lr=1.0)
    (model(mn.Tensor(x.numpy())) ** 2).sum().backward()
    ours.step()
    theirs = torch.optim.SGD([{"params": net.get_submodule(path).parameters(), "lr": r} for path, r in rates.items()])
    (net(x) ** 2).sum().backward()
    theirs.step()
    for path in paths:
        mine = sorted(float(p.array.sum()) for p in model.get_submodule(path).parameters())
        np.testing.assert_allclose(
            mine, sorted(float(p.detach().sum()) for p in net.get_submodule(path).parameters()), rtol=1e-9
        )
