"""The tensors that train in networks that are hard to tell from a program's numbers: PyTorch's Parameters, element for
element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import minorm as mn

pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.tensor.tensor import Tensor  # noqa: E402
from tests.onnx import families  # noqa: E402
from tests.onnx.judged import NETWORKS  # noqa: E402
from tests.onnx.test_pytorch_parameters import WAYS, size, written  # noqa: E402

# The weights that folding had changed before it wrote them: (network, exporter) -> how many elements more or fewer
# train.
FOLDED = {
    ("detection_tokens", "script folded"): -64,  # one of two tables is picked
    ("detection_tokens", "dynamo folded"): -64,
    ("resized_positions", "dynamo folded"): -40,  # ten positions are written as the five that they are resized to
    ("temperatures", "dynamo folded"): -1,  # exp(s) of a number s
    ("fused_weights", "dynamo folded"): -2,  # two numbers, as their shares
    ("low_rank", "dynamo folded"): -18,  # w + b a
    ("weight_norm", "script folded"): -4,  # g v / |v|
    ("weight_norm", "dynamo folded"): -4,
    ("weight_norm_parametrized", "script folded"): -4,
    ("weight_norm_parametrized", "dynamo folded"): -4,
    ("positions_as_sines", "script folded"): -1,  # a number times a table
    ("positions_as_sines", "dynamo folded"): -1,
    ("projected", "dynamo folded"): 12,  # what the first step makes of the state, beside the state
}


def made(name: str) -> tuple[Any, Any]:
    """The network with weights as of training: no two are equal, none is all ones or zeros."""
    torch.manual_seed(sum(map(ord, name)))
    model, x = NETWORKS[name]()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    return model.eval(), x


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(name, way, marks=() if way == "script folded" else pytest.mark.slow)
        for name in NETWORKS
        for way in WAYS
    ],
)
def test_pytorchs_parameters_train_and_its_buffers_do_not(name: str, way: str) -> None:
    model, x = made(name)
    loaded = mo.load(written(model, x, way))
    assert size(loaded.parameters()) == size(model.parameters()) + FOLDED.get((name, way), 0), loaded.verdicts
    if "folded" not in way:
        assert {n for n, _ in loaded.named_parameters()} == {n for n, _ in model.named_parameters()}
    buffers = {n for n, _ in model.named_buffers()}
    assert not buffers & {n for n, _ in loaded.named_parameters()}
    optimizer = mn.optim.SGD(loaded.parameters(), lr=1e-3)
    for _ in range(20):
        y = loaded(Tensor(x.numpy()))
        loss = (y * y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert math.isfinite(loss.item())
    assert all(np.isfinite(p.array).all() for p in loaded.parameters())


@pytest.mark.parametrize("name", families.FAMILIES)
def test_twenty_steps_of_every_family_stay_finite(name: str) -> None:
    torch.manual_seed(0)
    model, x = families.FAMILIES[name]()
    loaded = mo.load(written(model.eval(), x, "script folded"))
    optimizer = mn.optim.SGD(loaded.parameters(), lr=1e-3)
    for _ in range(20):
        y = loaded(Tensor(x.numpy()))
        loss = (y * y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert math.isfinite(loss.item())
