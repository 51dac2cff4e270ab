"""Lengths that weights fix: each operator that says something of an input's axes, against what onnxruntime takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import helper as h  # noqa: E402  after importorskip

from minorm.onnx.checking.required import Required  # noqa: E402

F32, I64 = np.float32, np.int64
RNG = np.random.default_rng(0)


def draw(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F32)


N = h.make_node
CASES: dict[str, tuple[Any, ...]] = {
    # nodes, inputs with free axes, what the file holds, the lengths that follow
    "MatMul": ([N("MatMul", ["x", "w"], ["y"])], {"x": "ab"}, {"w": draw(7, 3)}, {"x": ["a", 7]}),
    "MatMul from the left": ([N("MatMul", ["w", "x"], ["y"])], {"x": "ab"}, {"w": draw(7, 3)}, {"x": [3, "b"]}),
    "Gemm": ([N("Gemm", ["x", "w"], ["y"], transB=1)], {"x": "ab"}, {"w": draw(7, 3)}, {"x": ["a", 3]}),
    "Conv": (
        [N("Conv", ["x", "w"], ["y"], group=2)], {"x": "abcd"}, {"w": draw(4, 3, 1, 1)}, {"x": ["a", 6, "c", "d"]},
    ),
    "ConvTranspose": (
        [N("ConvTranspose", ["x", "w"], ["y"])], {"x": "abc"}, {"w": draw(5, 3, 2)}, {"x": ["a", 5, "c"]},
    ),
    "LSTM": (
        [N("LSTM", ["x", "w", "r"], ["y"], hidden_size=2)], {"x": "tnf"}, {"w": draw(1, 8, 5), "r": draw(1, 8, 2)},
        {"x": ["t", "n", 5]},
    ),
    "BatchNormalization": (
        [N("BatchNormalization", ["x", "s", "s", "s", "s"], ["y"])], {"x": "abc"}, {"s": abs(draw(4))},
        {"x": ["a", 4, "c"]},
    ),
    "LayerNormalization": (
        [N("LayerNormalization", ["x", "s"], ["y"])], {"x": "abc"}, {"s": draw(6)}, {"x": ["a", "b", 6]},
    ),
    "Einsum": (
        [N("Einsum", ["x", "w"], ["y"], equation="bij,jk->bik")], {"x": "abc"}, {"w": draw(5, 2)}, {"x": ["a", "b", 5]},
    ),
    "positions": (
        [N("Gather", ["e", "i"], ["a"]), N("Add", ["a", "p"], ["y"])], {"i": "nt"},
        {"e": draw(9, 4), "p": draw(1, 7, 4)}, {"i": ["n", 7]},
    ),
    "moved": (
        [N("Transpose", ["x"], ["a"], perm=[2, 0, 1]), N("Unsqueeze", ["a", "one"], ["b"]), N("Relu", ["b"], ["c"]),
         N("MatMul", ["c", "w"], ["y"])],
        {"x": "abc"}, {"w": draw(7, 3), "one": np.array([1], I64)}, {"x": ["a", 7, "c"]},
    ),
    "reshaped": (
        [N("Reshape", ["x", "s"], ["a"]), N("Sqrt", ["a"], ["y"])], {"x": "ab"}, {"s": np.array([-1, 2, 5], I64)},
        {"x": ["a", 10]},
    ),
    "two inputs": (
        [N("Unsqueeze", ["m", "last"], ["a"]), N("Mul", ["x", "a"], ["b"]), N("MatMul", ["b", "w"], ["y"])],
        {"x": "btf", "m": "cd"}, {"w": draw(7, 3), "last": np.array([2], I64)}, {"x": ["b", "t", 7], "m": ["b", "t"]},
    ),
    "through a layer": (
        [N("MatMul", ["x", "w"], ["a"]), N("Add", ["a", "z"], ["b"]), N("Concat", ["b", "v"], ["y"], axis=0)],
        {"x": "ab", "z": "cd", "v": "ef"}, {"w": draw(7, 3)}, {"x": ["a", 7], "z": ["a", 3], "v": ["e", 3]},
    ),
    "nothing": ([N("Softmax", ["x"], ["y"])], {"x": "ab"}, {}, {"x": ["a", "b"]}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_weights_ask_of_free_axes(name: str, graph_of: Any) -> None:
    nodes, inputs, held, expected = CASES[name]
    kind = I64 if name == "positions" else F32
    proto = graph_of(nodes, {n: (kind, list(axes)) for n, axes in inputs.items()}, ["y"], held)
    found = Required(proto.graph).lengths({n: list(axes) for n, axes in inputs.items()})
    assert found == expected
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    lengths = {n: [m if isinstance(m, int) else 4 for m in ns] for n, ns in found.items()}
    session.run(None, {n: np.ones(shape, kind) for n, shape in lengths.items()})


def test_lengths_that_a_file_says_stay(graph_of: Any) -> None:
    proto = graph_of(
        [N("MatMul", ["x", "w"], ["y"])], {"x": (F32, ["n", 5])}, ["y"], {"w": draw(7, 3)}
    )  # which contradicts itself
    assert Required(proto.graph).lengths({"x": ["n", 5]}) == {"x": ["n", 5]}


@pytest.mark.parametrize(
    ("node", "held"),
    [
        (N("Reshape", ["x", "s"], ["y"]), np.array([-1])),  # to one axis: it says nothing of C
        (N("Squeeze", ["z", "s"], ["y"]), np.array([0])),  # of a number
        (N("Add", [], ["y"]), np.array([0])),
        (N("Squeeze", ["x", "s"], ["y"]), np.array([np.inf])),
    ],
)
def test_what_says_nothing_and_what_is_damaged_fixes_nothing(node: Any, held: Any, graph_of: Any) -> None:
    proto = graph_of([node], {"x": (F32, ["n", "c"]), "z": (F32, [])}, ["y"], {"s": held})
    given = {"x": ["n", "c"], "z": []}
    assert Required(proto.graph).lengths(given) == given
