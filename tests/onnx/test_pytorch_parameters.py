"""PyTorch's own Parameters train in files that it wrote, element for element, and to the same values."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.tensor.tensor import Tensor  # noqa: E402
from tests.onnx.families import FAMILIES  # noqa: E402

WAYS = ["script", "script folded", "dynamo", "dynamo folded"]
SAMPLE = [
    "residual",
    "groups",
    "text",
    "modulated",
    "learned_states",
    "plain_recurrence",
]  # of the newer exporter, which takes seconds

# Parameters that the exporter's folding leaves out or writes twice, so that no reader can train them as PyTorch does:
# (family, way) -> how many elements more (or fewer) train, and why.
TIED = (56, "the tied weights are written a second time, transposed")
GATHERED = (-7, "the table is written as the 16 numbers gathered from it")
CHANGED = {
    ("tied_words", "script folded"): TIED,
    ("tied_words", "dynamo folded"): TIED,
    ("relative_positions", "script folded"): GATHERED,
    ("relative_positions", "dynamo folded"): (-8, f"{GATHERED[1]}, and the scale as its exponential, one number"),
    ("residual", "dynamo folded"): (-12, "BatchNorm is folded into the convolution"),
    ("depthwise", "dynamo folded"): (-24, "BatchNorm is folded into the convolution"),
    ("temporal", "dynamo folded"): (-12, "BatchNorm is folded into the convolution"),
    ("plain_learned_state", "dynamo folded"): (-8, "the state is written as what the first step makes of it"),
    ("learned_exponent", "dynamo folded"): (0, "1 / p is written beside p"),
    ("normed_weights", "dynamo folded"): (0, "the weights are written as they are after their normalization"),
    ("learned_queries", "dynamo folded"): (0, "the tokens are written as the keys that are made of them"),
    ("modulated_kernels", "dynamo folded"): (100, "the beginning is written once for each sample, side by side"),
    ("standardized", "dynamo folded"): (0, "the weights are written as they are after their normalization"),
}


def made(name: str) -> tuple[Any, Any]:
    """The network with weights as of training: no two are equal, none is all ones or zeros."""
    torch.manual_seed(sum(map(ord, name)))
    model, x = FAMILIES[name]()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    return model.double(), x.double() if x.is_floating_point() else x


def written(model: Any, x: Any, way: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "dynamo" in way:
            pytest.importorskip("onnxscript")
            return torch.onnx.export(model, (x,), dynamo=True, optimize="folded" in way, verbose=False).model_proto
        file = io.BytesIO()
        torch.onnx.export(
            model, (x,), file, dynamo=False, do_constant_folding="folded" in way, opset_version=17,
            training=torch.onnx.TrainingMode.TRAINING if model.training else torch.onnx.TrainingMode.EVAL,
        )  # fmt: skip
        return onnx.load_from_string(file.getvalue())


def cases() -> list[Any]:
    return [
        pytest.param(name, way, marks=() if "script" in way or name in SAMPLE else pytest.mark.slow)
        for name in FAMILIES
        for way in WAYS
    ]


def size(parameters: Any) -> int:
    return sum(int(np.prod(p.shape)) for p in parameters)


@pytest.mark.parametrize(("name", "way"), cases())
def test_pytorchs_parameters_train_as_in_pytorch(name: str, way: str) -> None:
    model, x = made(name)
    model.train("script" in way)  # the newer exporter writes a training BatchNorm in its inference form
    proto = written(model, x, way)
    loaded = mo.load(proto)
    more, why = CHANGED.get((name, way), (0, ""))
    assert size(loaded.parameters()) == size(model.parameters()) + more, why
    if why:
        return
    if "folded" not in way:
        assert {n for n, _ in loaded.named_parameters()} == {n for n, _ in model.named_parameters()}
    # The newer exporter rounds the numbers of a program, sqrt(2) or an eps, to float32.
    loss_bound, bound = (1e-6, 1e-5) if "dynamo" in way else (1e-12, 1e-9)
    theirs, ours = torch.optim.SGD(model.parameters(), lr=0.05), mn.optim.SGD(loaded.parameters(), lr=0.05)
    norms = {path: m for path, m in model.named_modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)}
    before = {path: norm.running_var.numpy().copy() for path, norm in norms.items()}
    numbers: dict[str, float] = {}  # over how many a BatchNorm takes its statistics
    for path, norm in norms.items():
        norm.register_forward_hook(lambda m, x, y, path=path: numbers.update({path: y.numel() / m.num_features}))
    for step in range(2):  # the second loss is that of what the first step moved
        want, y = model(x), loaded(Tensor(x.numpy()))
        loss, own = want.square().mean(), (y * y).mean()
        assert abs(own.item() - loss.item()) <= loss_bound * max(1, abs(loss.item())), step
        loss.backward()
        own.backward()
        gradients = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
        for n, p in loaded.named_parameters():
            if n in gradients and p.shape == gradients[n].shape and "folded" not in way:
                np.testing.assert_allclose(p.grad.array, gradients[n], rtol=bound, atol=bound, err_msg=n)
        theirs.step()
        ours.step()
        theirs.zero_grad()
        ours.zero_grad()
    for path, norm in norms.items() if model.training else ():
        mean, var = (dict(loaded.named_buffers())[f"{path}.{part}"].array for part in ("running_mean", "running_var"))
        np.testing.assert_allclose(mean, norm.running_mean.numpy(), rtol=bound)
        n, kept = numbers[path], 0.9**2 * before[path]  # PyTorch divides a batch's variance by n - 1, ONNX by n
        np.testing.assert_allclose(var - kept, (norm.running_var.numpy() - kept) * (n - 1) / n, atol=1e-8)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ("tied_words", "relative_positions")])
def test_a_model_that_nobody_trained_has_all_its_parameters_though_many_are_equal(name: str) -> None:
    torch.manual_seed(0)
    model, x = FAMILIES[name]()
    loaded = mo.load(written(model.eval(), x, "script"))
    own = {n: p.shape for n, p in loaded.named_parameters()}
    theirs = {n: tuple(p.shape) for n, p in model.named_parameters()}
    gone = theirs.keys() - own.keys()
    assert own == {n: shape for n, shape in theirs.items() if n in own}
    assert not gone or any(isinstance(m, torch.nn.BatchNorm2d | torch.nn.BatchNorm1d) for m in model.modules()), gone


def test_what_folding_made_of_equal_weights_is_apart_where_modules_are() -> None:
    """A fresh encoder's layers are copies of one; a layer that is called again is one layer."""
    torch.manual_seed(0)
    model, x = FAMILIES["cloned_layers"]()
    loaded = mo.load(written(model, x, "script folded"))
    assert size(loaded.parameters()) == size(model.parameters())
    theirs, ours = torch.optim.SGD(model.parameters(), lr=0.5), mn.optim.SGD(loaded.parameters(), lr=0.5)
    model(x).square().mean().backward()
    (loaded(Tensor(x.numpy())) ** 2).mean().backward()
    theirs.step()
    ours.step()
    again = mo.load(mo.export(loaded, None))
    for found in (loaded, again):
        np.testing.assert_allclose(found(Tensor(x.numpy())).array, model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
