"""Every way to write a norm is found, and nothing that is not certainly one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.onnx.operators.norm.recognised import GroupNorm, LayerNorm, RMSNorm  # noqa: E402
from minorm.tensor.tensor import Tensor  # noqa: E402
from tests.onnx.loading import norms  # noqa: E402

KINDS = {"GroupNorm": GroupNorm, "LayerNorm": LayerNorm, "RMSNorm": RMSNorm}


def layers(model: Any) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, tuple(KINDS.values()))]


def check(proto: Any) -> None:
    if proto.graph.input[0].type.tensor_type.HasField("shape"):  # the checker wants one
        onnx.checker.check_model(proto)


@pytest.mark.parametrize("name", norms.WAYS)
def test_every_way_to_write_a_norm_is_read_as_the_layer(name: str, rng: Any) -> None:
    kind, proto, formula, shapes = norms.WAYS[name]()
    check(proto)
    model = mo.load(proto)
    [layer] = layers(model)
    assert type(layer) is KINDS[kind]
    assert layer.eps == 1e-5
    for shape in shapes:  # free axes are free
        x = rng.standard_normal(shape).astype(np.float32)
        weights = {n: p.array.astype(np.float64) for n, p in model.named_parameters()}
        np.testing.assert_allclose(model(Tensor(x)).array, formula(x.astype(np.float64), weights), rtol=1e-5, atol=1e-5)
    assert set(dict(model.named_parameters())) == norms.weights(proto)
    assert layer.weight is dict(model.named_parameters()).get("norm.weight")
    assert not layer.training


@pytest.mark.parametrize("name", norms.OTHERS)
def test_what_is_not_certainly_a_norm_stays_nodes(name: str) -> None:
    proto = norms.OTHERS[name]()
    check(proto)
    assert not layers(mo.load(proto))
