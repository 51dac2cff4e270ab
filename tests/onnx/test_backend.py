"""The interface of onnx.backend.base; test_node_tests.py runs the official tests through it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402
import minorm.onnx.backend as backend  # noqa: E402


def test_a_node_alone() -> None:
    node = h.make_node("Add", ["a", "b"], ["c"])
    a, b = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    [c] = backend.run_node(node, [a, b])
    np.testing.assert_array_equal(c, np.full((2, 3), 2))
    [c] = backend.run_node(node, {"a": a, "b": b}, outputs_info=[(np.float32, (2, 3))])
    np.testing.assert_array_equal(c, np.full((2, 3), 2))
    old = h.make_node("Add", ["a", "b"], ["c"], axis=0, broadcast=1)
    [c] = backend.run_node(old, [a, np.array([0, 5], np.float32)], opset_version=6)
    np.testing.assert_array_equal(c, [[1, 1, 1], [6, 6, 6]])
    [c] = backend.run_node(h.make_node("Add", ["a", "a"], ["c"]), [a])
    np.testing.assert_array_equal(c, 2 * a)


def test_devices() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")
    with pytest.raises(ValueError, match="device is 'CUDA'; minorm computes on 'CPU'"):
        backend.prepare(mo.export(nn.ReLU(), mn.ones(2)), "CUDA")


def test_a_run_is_a_function_of_its_inputs_even_in_training() -> None:
    layer = nn.BatchNorm1d(3)
    model = backend.prepare(mo.export(layer, mn.ones(4, 3), training=True))
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    first, second = model.run([x]), model.run({"x": x})
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(first[1], x.mean(0) * 0.1, rtol=1e-5)
    assert len(model.run(x)) == 3


def test_lists_and_numbers_take_the_declared_type(one_node: Any) -> None:
    [y] = backend.prepare(one_node("Relu", [np.zeros(2, np.float16)], 14)).run([[-1, 2]])
    assert (y.dtype, y.tolist()) == (np.float16, [0, 2])


def test_what_minorm_cannot_run_is_not_compatible(one_node: Any) -> None:
    assert backend.is_compatible(one_node("Relu", [np.zeros(2, np.float32)], 14))
    assert not backend.is_compatible(one_node("StringNormalizer", [np.zeros(2, np.float32)], 14))
