"""PyTorch's files, loaded, moved by a step and written back: their own nodes, and right at other sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.onnx.checking import verification  # noqa: E402
from minorm.tensor.tensor import Tensor  # noqa: E402
from tests.onnx.conversion.test_families import FAMILIES, SCRIPTED, exported  # noqa: E402

SIZES = [(2, 3, 24, 24), (3, 3, 32, 48), (1, 3, 37, 43)]
MERGED = {"norms"}  # PyTorch's exporters wrote equal tensors once; those that differ now have initializers


def networks() -> list[Any]:
    found = [pytest.param(name, False, id=f"{name}-script") for name in (*FAMILIES, *SCRIPTED)]
    slow = [pytest.param(name, True, id=f"{name}-dynamo", marks=pytest.mark.slow) for name in FAMILIES]
    return found + [case for case in slow if case.id != "recurrent-dynamo"]  # it unrolls free lengths


def shapes(model: Any) -> list[Any]:
    return [[d.dim_param or d.dim_value for d in e.type.tensor_type.shape.dim] for e in model.graph.input]


@pytest.mark.parametrize(("name", "dynamo"), networks())
def test_a_trained_network_goes_out_as_it_came_in(name: str, dynamo: bool) -> None:
    module = torch.jit.script(SCRIPTED[name]().eval()) if name in SCRIPTED else FAMILIES[name]().eval()
    file = exported(module, 18 if dynamo else 17, dynamo)
    model = mo.load(file)
    y = model(mn.randn(*SIZES[0]))
    if y.requires_grad:
        (y**2).mean().backward()
        mn.optim.SGD([p for p in model.parameters() if p.grad is not None], lr=0.01).step()
    proto = mo.export(model, None, training=None)
    nodes, written = file.graph.node, proto.graph.node
    if name not in MERGED or dynamo:
        assert [(n.op_type, n.name, n.output) for n in written] == [(n.op_type, n.name, n.output) for n in nodes]
    if name not in MERGED:
        assert [n.input for n in written] == [n.input for n in nodes]
    assert shapes(proto) == shapes(file)
    again = mo.load(proto)
    assert again.state_dict().keys() == model.state_dict().keys()
    session = verification.start(proto)
    for number, size in enumerate(SIZES):
        x = np.random.default_rng(number).standard_normal(size).astype(np.float32)
        want = model(Tensor(x)).numpy()
        [got] = verification.run(session, {"x": x})
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
