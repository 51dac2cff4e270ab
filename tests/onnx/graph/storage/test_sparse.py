"""Sparse tensors of a file, in the graph, in Constants and in branches, and what is wrong with damaged ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.graph.errors import LoadError  # noqa: E402

DENSE = np.array([[0, 2, 0], [0, 0, -1.5]], np.float32)
X = np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)


def sparse(
    places: Any, shape: tuple[int, ...] = (2, 3), values: Any = (2.0, -1.5), elem: int = TensorProto.INT64
) -> Any:
    places = np.asarray(places)
    return helper.make_sparse_tensor(
        helper.make_tensor("f.weight", TensorProto.FLOAT, [len(values)], list(values)),
        helper.make_tensor("places", elem, places.shape, places.reshape(-1).tolist()),
        list(shape),
    )


def product(tensor: Any, constant: bool) -> Any:
    nodes = [helper.make_node("MatMul", ["x", "f.weight"], ["y"])]
    if constant:
        nodes.insert(0, helper.make_node("Constant", [], ["f.weight"], sparse_value=tensor))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
    )  # fmt: skip
    if not constant:
        graph.sparse_initializer.append(tensor)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("places", [[1, 5], [[0, 1], [1, 2]]])
def test_it_is_the_dense_tensor_and_trains(places: Any, constant: bool) -> None:
    proto = product(sparse(places), constant)
    before = proto.SerializeToString()
    model = mo.load(proto)
    assert proto.SerializeToString() == before  # the caller's model is left as it is
    np.testing.assert_allclose(model(mn.Tensor(X)).array, X @ DENSE, rtol=1e-6)
    [(name, weight)] = model.named_parameters()
    np.testing.assert_array_equal(weight.array, DENSE)
    with mn.no_grad():
        weight += 1
    again = mo.load(mo.export(model, None))
    assert name == "f.weight"
    np.testing.assert_allclose(again(mn.Tensor(X)).array, X @ (DENSE + 1), rtol=1e-6)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (sparse([1, 6]), r"sparse initializer 'f.weight' has shape \(2, 3\), but places from 1 to 6"),
        (sparse([[0, 1], [1, 3]]), "places from 0 to 3"),
        (sparse([1, -2]), "places from -2 to 1"),
        (sparse([1]), "expected int64 places: for each of 2 values"),
        (sparse([1, 5], elem=TensorProto.INT32), "int32 places"),
        (sparse([1, 5], shape=(2**40, 2**40)), "more than max_bytes"),
        (sparse([1, 5], shape=(2**40, 2**40, 0)), "whose lengths are too large"),
        (sparse([1, 5], shape=(2, -3)), "expected at most 32 lengths of at least 0"),
    ],
)
def test_damaged_ones_are_errors(tensor: Any, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        mo.load(product(tensor, constant=False))
