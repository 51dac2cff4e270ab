"""Recognised norms on data of another form than the file says: what the nodes compute, not what the layer would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.onnx.graph.node_layers import NormLayer, Written  # noqa: E402
from minorm.onnx.operators.norm.recognised import GroupNorm, LayerNorm, RMSNorm  # noqa: E402
from minorm.tensor.tensor import Tensor  # noqa: E402
from minorm.testing import gradcheck  # noqa: E402
from tests.onnx.loading import norms  # noqa: E402


def layers(model: Any) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, NormLayer)]


def test_a_norm_whose_data_has_another_form_than_the_file_says_is_computed_as_it_is_written(rng: Any) -> None:
    _, proto, _, _ = norms.WAYS["group, fixed lengths"]()  # (2, 6, 4, 5), but the input says nothing
    model = mo.load(proto)
    x = rng.standard_normal((2, 6 * 4 * 5)).astype(np.float32)
    got, want = model(Tensor(x)), model(Tensor(x.reshape(2, 6, 4, 5)))
    np.testing.assert_allclose(got.array, want.array, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"GroupNorm, written as Reshape, Instance.*the last node 'Add_\w+'"):
        model(Tensor(rng.standard_normal((3, 6, 4, 5)).astype(np.float32)))


def test_numbers_that_lie_about_axes_change_no_result(rng: Any) -> None:
    _, proto, formula, _ = norms.WAYS["layer, axes counted from the front"]()
    model = mo.load(proto)
    [layer] = layers(model)
    assert type(layer) is LayerNorm
    x = rng.standard_normal((2, 4, 3, 5)).astype(np.float32)  # the file says three axes of it; these are four
    p = {n: q.array.astype(np.float64) for n, q in model.named_parameters()}
    wide = x.astype(np.float64)
    centred = wide - wide.mean(2, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(2, keepdims=True) + 1e-5) * p["norm.weight"] + p["norm.bias"]
    del model.inputs[0].shape, formula
    model.inputs[0].shape = None
    np.testing.assert_allclose(model(Tensor(x)).array, want, rtol=1e-5, atol=1e-5)


def nodes_of_groups(x: Any, groups: tuple[int, ...], shape: tuple[int, ...] | None, w: Any, b: Any) -> Any:
    """Reshape, instances, Reshape, Mul, Add."""
    rows = x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(groups)])
    y = norms.standardized(rows, tuple(range(2, rows.ndim)))
    back = x.shape if shape is None else [rows.shape[i] if n == 0 else n for i, n in enumerate(shape)]
    return y.reshape(back) * w + b


@pytest.mark.parametrize(
    ("shape", "groups", "back", "weight"),
    [
        ((2, 6, 3, 4), (0, 3, -1), None, (6, 1, 1)),
        ((2, 6, 3, 4), (0, 3, -1), None, (1, 6, 1, 1)),
        ((2, 6, 12), (0, 3, -1), None, (6, 1)),
        ((1, 6, 12), (0, 3, -1), None, (6, 1, 1)),  # an axis too many, so the result has four
        ((2, 4, 6), (0, 3, -1), None, (1, 1, 6)),  # weights of the last axis
        ((2, 4, 3), (0, 3, -1), None, (4, 1)),  # 3 does not divide the channels
        ((4, 6, 6), (2, 3, -1), (2, 6, 12), (6, 1)),  # another batch
        ((2, 72), (0, 3, -1), (0, 6, -1, 4), (6, 1, 1)),
        ((2, 6, 3, 4), (0, 3, 2, 12), None, (6, 1, 1)),
        ((2, 6, 3, 4), (2, 3, 24), (2, 6, -1, 4), (6, 1, 1)),
        ((2, 6), (0, 3, -1), None, (6,)),
        ((0, 6, 3), (0, 3, 6), None, (6, 1)),
    ],
)
def test_groups(shape: Any, groups: Any, back: Any, weight: Any, rng: Any) -> None:
    x, w, b = rng.standard_normal(shape), rng.standard_normal(weight), rng.standard_normal(weight)
    layer = GroupNorm(1e-5, Written((), groups, back, weight, weight))
    want = nodes_of_groups(x, groups, back, w, b)
    for form in (weight, (-1,)):  # as the file holds them
        y = layer(Tensor(x), Tensor(w.reshape(form)), Tensor(b.reshape(form)))
        np.testing.assert_allclose(y.array, want, rtol=1e-10, atol=1e-10)
        assert y.shape == want.shape
    if 0 not in shape:
        gradcheck(layer, x, w, b)
    plain = GroupNorm(1e-5, Written((), groups, back))(Tensor(x))
    np.testing.assert_allclose(plain.array, nodes_of_groups(x, groups, back, 1.0, 0.0), rtol=1e-10, atol=1e-10)


def test_weights_of_groups(rng: Any) -> None:
    w, b = rng.standard_normal((2, 3))
    for shape, back in (((2, 6, 4), None), ((2, 4, 3), None), ((2, 24), (2, 6, 4)), ((2, 3, 1), None)):
        x = rng.standard_normal(shape)
        layer = GroupNorm(1e-5, Written((), (0, 3, -1), back, (3,), (3,), per_group=True))
        rows = norms.standardized(x.reshape(2, 3, -1), (2,)) * w[:, None] + b[:, None]
        y = layer(Tensor(x), Tensor(w), Tensor(b))
        np.testing.assert_allclose(y.array, rows.reshape(back or shape), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("axes", [(-1,), (-2, -1), (2,), (1, 2), (1,), (0,)])
def test_axes(axes: tuple[int, ...], rng: Any) -> None:
    x = rng.standard_normal((3, 4, 5))
    shapes = [None, (5,), (4, 5), (1,), (4, 1), (2, 1, 4, 5)]  # the last makes the result larger than x
    for weight in shapes:
        w, b = (None, None) if weight is None else (rng.standard_normal(weight), rng.standard_normal(weight))
        given = [] if w is None else [Tensor(w), Tensor(b)]
        y = LayerNorm(1e-5, Written(axes, weight=weight, bias=weight))(Tensor(x), *given)
        want = norms.standardized(x, axes)
        np.testing.assert_allclose(y.array, want if w is None else want * w + b, rtol=1e-10, atol=1e-10)
        y = RMSNorm(1e-5, Written(axes, weight=weight))(Tensor(x), *given[:1])
        want = x / np.sqrt((x * x).mean(axes, keepdims=True) + 1e-5)
        np.testing.assert_allclose(y.array, want if w is None else want * w, rtol=1e-10, atol=1e-10)
