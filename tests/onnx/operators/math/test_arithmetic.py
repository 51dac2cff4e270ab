from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

import minorm.onnx as mo  # noqa: E402  after importorskip


@pytest.fixture
def x(rng: np.random.Generator) -> mn.Tensor:
    return mn.tensor(rng.normal(size=(2, 3, 4)).astype(np.float32))


@pytest.fixture
def y(rng: np.random.Generator) -> mn.Tensor:
    return mn.tensor(rng.uniform(0.5, 2, (2, 3, 4)).astype(np.float32))


def test_two_operands(proved: Any, x: mn.Tensor, y: mn.Tensor, opset: int) -> None:
    proved(lambda x, y: (x + y, x - 1, 2 * x, x / y, y**1.5, 1 / y, x + y[:, :1], x @ y.mT), x, y, opset=opset)


def test_extremes_broadcast_at_every_opset(proved: Any, x: mn.Tensor, y: mn.Tensor, opset: int) -> None:
    proved(lambda x, y: (mn.maximum(x, y[:, :1]), mn.minimum(x, 0.3)), x, y, opset=opset)


def test_one_operand(proved: Any, y: mn.Tensor, opset: int) -> None:
    proved(
        lambda y: (-y, abs(y), y.exp(), y.log(), y.sqrt(), y.sin(), y.cos(), y.clip(0.7, 1), y.clip(max=1), y.clone()),
        y,
        opset=opset,
    )


def test_casts(proved: Any, x: mn.Tensor, opset: int) -> None:
    proved(lambda x: (x.double(), x.half(), x.long(), x.to(mn.bool), x.to(mn.int32) + 1), x, opset=opset)


def test_integers(proved: Any, opset: int) -> None:
    n = mn.tensor(np.arange(6).reshape(2, 3))
    proved(lambda n: (n + n, n * 2, n - 1, -n if opset >= 13 else n, n.sum(), n.float().mean()), n, opset=opset)


@pytest.mark.parametrize("dtype", [mn.float16, mn.float64, mn.bfloat16])
def test_other_float_types(proved: Any, x: mn.Tensor, dtype: Any) -> None:
    proved(lambda x: (x * 2 + x, x.mean(1), x.exp()), x.to(dtype), opset=20, must_run=False)


def test_a_scalar_that_is_the_batch_size_follows_the_batch(proved: Any, operators: Any, x: mn.Tensor) -> None:
    proto = proved(lambda x: x / x.shape[0] + x.shape[2], x)
    assert "Shape" in operators(proto)


@pytest.mark.parametrize(
    ("dtype", "bounds", "opset", "message"),
    [
        (
            np.int8,
            {"min": np.int64(0), "max": np.int64(1000)},
            13,
            "max is 1000; expected -128 to 127, because x is int8",
        ),
        (np.uint8, {"min": np.int8(-1)}, 13, "min is -1; expected 0 to 255, because x is uint8"),
        (
            np.int8,
            {"min": np.int8(0), "max": np.float32(np.inf)},
            12,
            "max is inf; expected -128 to 127, because x is int8",
        ),
        (np.int8, {"min": np.float32(np.nan)}, 12, "min is nan; expected -128 to 127, because x is int8"),
        (np.int32, {"max": 1e12}, 6, "max is 1000000000000.0; expected -2147483648 to 2147483647, because x is int32"),
        (np.int32, {"min": -3e9}, 6, "min is -3000000000.0; expected -2147483648 to 2147483647, because x is int32"),
    ],
)
@pytest.mark.parametrize("first", ["", "Identity", "Cast"])
def test_a_bound_of_clip_outside_its_integers(
    dtype: Any, bounds: dict[str, Any], opset: int, message: str, first: str, graph_of: Any
) -> None:
    """Found when the file is loaded, be x an input or what other nodes make of one."""
    attributes = bounds if opset < 11 else {}
    held = {} if opset < 11 else bounds
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [onnx.helper.make_node(first, ["x"], ["a"], **({"to": code} if first == "Cast" else {}))] if first else []
    clip = onnx.helper.make_node("Clip", ["a" if first else "x", *held], ["y"], name="clip", **attributes)
    given = np.float32 if first == "Cast" else dtype
    with pytest.raises(mo.LoadError, match=f"^load: Clip .*node 'clip': {re.escape(message)}"):
        mo.load(graph_of([*nodes, clip], {"x": (given, [3])}, ["y"], held, opset=opset))


def test_a_bound_of_clip_outside_integers_that_are_known_only_in_the_run(graph_of: Any) -> None:
    nodes = [
        onnx.helper.make_node("Where", ["c", "x", "x"], ["a"]),  # its first input is a bool
        onnx.helper.make_node("Clip", ["a", "", "high"], ["y"], name="clip"),
    ]
    inputs = {"c": (np.bool_, [3]), "x": (np.int8, [3])}
    graph = graph_of(nodes, inputs, ["y"], {"high": np.int64(200)}, opset=13)
    x = np.array([1, 2, 3], np.int8)
    with pytest.raises(ValueError, match="node 'clip': max is 200; expected -128 to 127, because x is int8"):
        mo.load(graph)(mn.Tensor(x > 0), mn.Tensor(x))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_the_ends_of_a_type_are_bounds(dtype: Any, graph_of: Any) -> None:
    ends = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([ends[0], 3, ends[1]], dtype)
    node = onnx.helper.make_node("Clip", ["x", "low", "high"], ["y"])
    held = {"low": np.array(ends[0], dtype), "high": np.array(ends[1], dtype)}
    model = mo.load(graph_of([node], {"x": (dtype, [3])}, ["y"], held, opset=13))
    np.testing.assert_array_equal(model(mn.Tensor(x)).array, x)
    bare = onnx.helper.make_node("Clip", ["x"], ["y"], min=1.0)  # version 6, whose other bound is that of floats
    model = mo.load(graph_of([bare], {"x": (dtype, [3])}, ["y"], opset=6))
    np.testing.assert_array_equal(model(mn.Tensor(x)).array, np.maximum(x, dtype(1)))
