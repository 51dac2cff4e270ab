"""The tensors that train in files written by other programs or by hand: the author's Parameters, element for element.

The files are written here as Paddle2ONNX, tf2onnx, PyTorch's older exporters and simplifiers write them; `expected` is
what the author of the network calls its parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip
from onnx import numpy_helper  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.loading.judging.naming import Form, Origin  # noqa: E402

F32 = np.float32
I64 = np.int64
N = h.make_node
RNG = np.random.default_rng(0)


def draw(*shape: int) -> Any:
    return (RNG.standard_normal(shape) * 0.4).astype(F32)


def number(value: float, *shape: int) -> Any:
    return np.full(shape, value, F32)


def ints(*numbers: int) -> Any:
    return np.array(numbers, I64)


FILES: dict[str, Callable[[], tuple[Any, ...]]] = {}


def file(make: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    """Enter a function that gives nodes, the shape of x, what the file holds, and the expected names."""
    FILES[make.__name__] = make
    return make


def layer_norm(x: str, y: str, name: str, two: str, eps: str, gamma: str, beta: str) -> list[Any]:
    return [
        N("ReduceMean", [x], [f"{name}m"], axes=[-1]),
        N("Sub", [x, f"{name}m"], [f"{name}c"]),
        N("Pow", [f"{name}c", two], [f"{name}q"]),
        N("ReduceMean", [f"{name}q"], [f"{name}v"], axes=[-1]),
        N("Add", [f"{name}v", eps], [f"{name}e"]),
        N("Sqrt", [f"{name}e"], [f"{name}s"]),
        N("Div", [f"{name}c", f"{name}s"], [f"{name}n"]),
        N("Mul", [f"{name}n", gamma], [f"{name}g"]),
        N("Add", [f"{name}g", beta], [y]),
    ]


def gelu(x: str, y: str, name: str, root: str, one: str, half: str) -> list[Any]:
    return [
        N("Div", [x, root], [f"{name}d"]),
        N("Erf", [f"{name}d"], [f"{name}e"]),
        N("Add", [f"{name}e", one], [f"{name}o"]),
        N("Mul", [x, f"{name}o"], [f"{name}p"]),
        N("Mul", [f"{name}p", half], [y]),
    ]


# Paddle


@file
def paddle_transformer() -> tuple[Any, ...]:
    held = {
        "linear_0.w_0": draw(4, 8), "linear_0.b_0": draw(8), "layer_norm_0.w_0": draw(8), "layer_norm_0.b_0": draw(8),
        "create_parameter_0.w_0": draw(1, 5, 8), "linear_1.w_0": draw(8, 3), "linear_1.b_0": draw(3),
        "create_parameter_1.w_0": number(1.3, 1),
    }  # fmt: skip
    literals = {
        "helper.constant.0": number(2), "helper.constant.1": number(1e-5), "helper.constant.2": number(2**0.5),
        "helper.constant.3": number(1), "helper.constant.4": number(0.5), "auto.cast.7": number(0.35355338, 1),
        "helper.constant.8": ints(0, 5, 8), "p2o.pd_op.full.0.0": number(1e-6, 1), "full_0.tmp_0": number(3.0, 1),
    }  # fmt: skip
    nodes = [
        N("MatMul", ["x", "linear_0.w_0"], ["p2o.pd_op.matmul.0.0"]),
        N("Add", ["p2o.pd_op.matmul.0.0", "linear_0.b_0"], ["a"]),
        N("Add", ["a", "create_parameter_0.w_0"], ["b"]),
        *layer_norm("b", "c", "ln", "helper.constant.0", "helper.constant.1", "layer_norm_0.w_0", "layer_norm_0.b_0"),
        *gelu("c", "d", "g", "helper.constant.2", "helper.constant.3", "helper.constant.4"),
        N("Mul", ["d", "auto.cast.7"], ["e"]),
        N("Pow", ["e", "full_0.tmp_0"], ["f0"]),
        N("Reshape", ["f0", "helper.constant.8"], ["f"]),
        N("MatMul", ["f", "linear_1.w_0"], ["g"]),
        N("Add", ["g", "linear_1.b_0"], ["h"]),
        N("Add", ["h", "p2o.pd_op.full.0.0"], ["i"]),
        N("Mul", ["i", "create_parameter_1.w_0"], ["y"]),
    ]
    return nodes, [2, 5, 4], held | literals, set(held)


@file
def paddle_digits() -> tuple[Any, ...]:
    """Names that are bare numbers, for weights and literals alike."""
    weights = {"1": draw(6, 3, 3, 3), "2": draw(6), "3": draw(6), "4": draw(6), "7": draw(6, 2)}
    literals = {"5": number(0, 6), "6": number(1, 6), "8": number(0.1, 1), "9": number(2), "10": ints(2, 3)}
    nodes = [
        N("Conv", ["x", "1", "2"], ["11"]),
        N("BatchNormalization", ["11", "3", "4", "5", "6"], ["12"]),
        N("Pow", ["12", "9"], ["13"]),
        N("Mul", ["13", "8"], ["14"]),
        N("ReduceMean", ["14"], ["15"], axes=[2, 3], keepdims=0),
        N("MatMul", ["15", "7"], ["16"]),
        N("Unsqueeze", ["16", "10"], ["y"]),
    ]
    return nodes, [2, 3, 6, 6], weights | literals, set(weights)


@file
def paddle_constants_of_weights() -> tuple[Any, ...]:
    """Paddle2ONNX 1.x puts weights into Constant nodes, and literals too."""
    weights = {"conv2d_0.w_0": draw(4, 3, 3, 3), "conv2d_0.b_0": draw(4)}
    literals = {"p2o.Constant.0": ints(1, 4, 1, 1), "p2o.Constant.1": number(6), "p2o.Constant.2": number(3, 1)}
    nodes = [N("Constant", [], [n], value=numpy_helper.from_array(a)) for n, a in (weights | literals).items()]
    nodes += [
        N("Conv", ["x", "conv2d_0.w_0"], ["a"]),
        N("Reshape", ["conv2d_0.b_0", "p2o.Constant.0"], ["b"]),
        N("Add", ["a", "b"], ["c"]),
        N("Add", ["c", "p2o.Constant.2"], ["d"]),
        N("Div", ["d", "p2o.Constant.1"], ["y"]),
    ]
    return nodes, [2, 3, 6, 6], {}, set(weights)


# TensorFlow and Keras


@file
def keras_group_norm() -> tuple[Any, ...]:
    weights = {
        "c1/convolution/ReadVariableOp:0": draw(8, 3, 3, 3), "gn_1/Reshape_1:0": draw(1, 1, 1, 2, 4),
        "gn_1/Reshape_2:0": draw(1, 1, 1, 2, 4), "model/dense/MatMul/ReadVariableOp:0": draw(8, 3),
        "model/dense/BiasAdd/ReadVariableOp:0": number(0, 3),
    }  # fmt: skip
    literals = {
        "const_fold_opt__9": number(1e-3), "shape": ints(0, 4, 4, 2, 4), "back": ints(0, 4, 4, 8), "axes": ints(1, 2),
        "model/rescaling/Cast/x:0": number(1 / 255), "model/normalization/sub/y:0": draw(1, 3, 1, 1),
        "model/normalization/Sqrt:0": abs(draw(1, 3, 1, 1)) + F32(0.5),
    }  # fmt: skip
    nodes = [
        N("Mul", ["x", "model/rescaling/Cast/x:0"], ["x1"]),
        N("Sub", ["x1", "model/normalization/sub/y:0"], ["x2"]),
        N("Div", ["x2", "model/normalization/Sqrt:0"], ["x3"]),
        N("Conv", ["x3", "c1/convolution/ReadVariableOp:0"], ["a"], pads=[1, 1, 1, 1]),
        N("Transpose", ["a"], ["b"], perm=[0, 2, 3, 1]),
        N("Reshape", ["b", "shape"], ["r"]),
        N("ReduceMean", ["r"], ["m"], axes=[1, 2, 4]),
        N("Sub", ["r", "m"], ["c"]),
        N("Mul", ["c", "c"], ["q"]),
        N("ReduceMean", ["q"], ["v"], axes=[1, 2, 4]),
        N("Add", ["v", "const_fold_opt__9"], ["ve"]),
        N("Sqrt", ["ve"], ["s"]),
        N("Reciprocal", ["s"], ["i"]),
        N("Mul", ["i", "gn_1/Reshape_1:0"], ["ig"]),
        N("Mul", ["r", "ig"], ["rg"]),
        N("Mul", ["m", "ig"], ["mg"]),
        N("Sub", ["gn_1/Reshape_2:0", "mg"], ["o"]),
        N("Add", ["rg", "o"], ["n"]),
        N("Reshape", ["n", "back"], ["t"]),
        N("ReduceMean", ["t"], ["u"], axes=[1, 2], keepdims=0),
        N("MatMul", ["u", "model/dense/MatMul/ReadVariableOp:0"], ["w"]),
        N("Add", ["w", "model/dense/BiasAdd/ReadVariableOp:0"], ["y"]),
    ]
    return nodes, [2, 3, 4, 4], weights | literals, set(weights)


@file
def keras_layer_norm_of_images() -> tuple[Any, ...]:
    """Scale and bias over height, width and channels; names that constant folding made."""
    weights = {"const_fold_opt__31": draw(1, 4, 4, 3), "const_fold_opt__32": draw(1, 4, 4, 3), "W__5": draw(5, 3, 1, 1)}
    literals = {"const_fold_opt__30": number(1e-3), "const_fold_opt__40": number(0.044715, 1), "three__8": number(3)}
    nodes = [
        N("ReduceMean", ["x"], ["m"], axes=[1, 2, 3]),
        N("Sub", ["x", "m"], ["c"]),
        N("Mul", ["c", "c"], ["q"]),
        N("ReduceMean", ["q"], ["v"], axes=[1, 2, 3]),
        N("Add", ["v", "const_fold_opt__30"], ["ve"]),
        N("Sqrt", ["ve"], ["s"]),
        N("Div", ["c", "s"], ["n"]),
        N("Mul", ["n", "const_fold_opt__31"], ["g"]),
        N("Add", ["g", "const_fold_opt__32"], ["b"]),
        N("Pow", ["b", "three__8"], ["p"]),
        N("Mul", ["p", "const_fold_opt__40"], ["a"]),
        N("Add", ["a", "b"], ["d"]),
        N("Transpose", ["d"], ["t"], perm=[0, 3, 1, 2]),
        N("Conv", ["t", "W__5"], ["y"]),
    ]
    return nodes, [2, 4, 4, 3], weights | literals, set(weights)


# PyTorch, old and simplified


@file
def pytorch_1_2() -> tuple[Any, ...]:
    """Folded weights and constants are called by numbers."""
    weights = {
        "fc.bias": draw(6), "42": draw(4, 6), "43": draw(1, 20, 6), "44": draw(1, 20, 5), "45": draw(1, 40),
        "46": draw(1, 7, 5), "47": draw(1, 1, 5),
    }  # fmt: skip
    literals = {"31": ints(1), "48": number(1e-5), "49": number(2), "50": number(0, 1, 2, 5), "axes": ints(1)}
    nodes = [
        N("MatMul", ["x", "42"], ["10"], name="MatMul_0"),
        N("Add", ["fc.bias", "10"], ["11"], name="Add_1"),
        N("LSTM", ["11", "43", "44", "45", "", "50", "50"], ["12"], name="LSTM_2", hidden_size=5),
        N("Squeeze", ["12", "31"], ["13"], name="Squeeze_3"),
        N("Transpose", ["13"], ["14"], perm=[1, 0, 2]),
        N("Add", ["14", "46"], ["15"]),
        N("Mul", ["15", "47"], ["16"]),
        N("Pow", ["16", "49"], ["17"]),
        N("Add", ["17", "48"], ["y"]),
    ]
    return nodes, [7, 2, 4], weights | literals, set(weights), {"producer_name": "pytorch", "producer_version": "1.2"}


@file
def pytorch_simplified() -> tuple[Any, ...]:
    """Folded by onnxsim: constants are initializers with the names of the nodes that made them."""
    weights = {
        "/fc/Transpose_output_0": draw(4, 6), "fc.bias": draw(6), "/embeddings/Gather_output_0": draw(1, 3, 6),
        "/embeddings/Concat_1_output_0": draw(1, 2, 6), "logit_scale": number(2.5), "norm.weight": number(1, 6),
        "norm.bias": number(0, 6), "/tlu/Reshape_output_0": draw(1, 1, 6),
    }  # fmt: skip
    literals = {
        "/embeddings/axes": ints(1), "/norm/Constant_output_0": number(2), "/norm/Constant_1_output_0": number(1e-5),
        "/act/Constant_output_0": number(0.7978845608), "/Constant_3_output_0": np.triu(number(-np.inf, 5, 5), 1),
        "/rope/Cos_output_0": np.cos(np.arange(5)[:, None] * 1e4 ** -(np.arange(6) // 2 / 3)).astype(F32),
    }  # fmt: skip
    nodes = [
        N("MatMul", ["x", "/fc/Transpose_output_0"], ["a"]),
        N("Add", ["fc.bias", "a"], ["b"]),
        N("Add", ["b", "/embeddings/Gather_output_0"], ["b2"]),
        N("Concat", ["b2", "/embeddings/Concat_1_output_0"], ["c"], axis=1),
        *layer_norm("c", "d", "ln", "/norm/Constant_output_0", "/norm/Constant_1_output_0", "norm.weight", "norm.bias"),
        N("Mul", ["d", "/rope/Cos_output_0"], ["e"]),
        N("Max", ["e", "/tlu/Reshape_output_0"], ["e2"]),
        N("Transpose", ["e2"], ["t"], perm=[0, 2, 1]),
        N("MatMul", ["e2", "t"], ["f"]),
        N("Mul", ["f", "logit_scale"], ["f2"]),
        N("Add", ["f2", "/Constant_3_output_0"], ["g"]),
        N("Softmax", ["g"], ["s"], axis=-1),
        N("Mul", ["s", "/act/Constant_output_0"], ["y"]),
    ]
    return nodes, [1, 3, 4], weights | literals, set(weights), {"producer_name": "pytorch"}


@file
def pytorch_branches() -> tuple[Any, ...]:
    """Initializers of the branches of an If, under their own names."""

    def branch(name: str, weight: str) -> Any:
        held = [numpy_helper.from_array(draw(4, 3), weight), numpy_helper.from_array(number(2), f"{name}_two")]
        nodes = [N("MatMul", ["x", weight], [f"{name}a"]), N("Pow", [f"{name}a", f"{name}_two"], [name])]
        return h.make_graph(nodes, name, [], [h.make_empty_tensor_value_info(name)], held)

    nodes = [
        N("ReduceSum", ["x"], ["sum"], keepdims=0),
        N("Greater", ["sum", "zero"], ["c"]),
        N("If", ["c"], ["y"], "If_0", then_branch=branch("t", "fc1.weight"), else_branch=branch("e", "onnx::MatMul_9")),
    ]
    names = {"If_0/then_branch/fc1.weight", "If_0/else_branch/onnx::MatMul_9"}
    return nodes, [2, 4], {"zero": number(0)}, names, {"producer_name": "pytorch"}


# Of other hands


@file
def gates_reordered() -> tuple[Any, ...]:
    held = {"body/rnn/weight_ih": draw(12, 4), "body/rnn/weight_hh": draw(12, 3), "body/rnn/b": draw(24)}
    lengths = {"axis": ints(0), **{f"at{i}": ints(3 * i) for i in range(5)}}
    nodes = []
    for name, source in (("W", "body/rnn/weight_ih"), ("R", "body/rnn/weight_hh")):
        nodes += [N("Slice", [source, f"at{i}", f"at{i + 1}", "axis"], [f"{name}{i}"]) for i in (0, 3, 1, 2)]
        nodes += [N("Concat", [f"{name}{i}" for i in (0, 3, 1, 2)], [f"{name}c"], axis=0)]
        nodes += [N("Unsqueeze", [f"{name}c", "axis"], [name])]
    nodes += [N("Unsqueeze", ["body/rnn/b", "axis"], ["B"]), N("LSTM", ["x", "W", "R", "B"], ["y"], hidden_size=3)]
    return nodes, [5, 1, 4], held | lengths, set(held), {"producer_name": "spox"}


@file
def hand_made() -> tuple[Any, ...]:
    weights = {"kernel": draw(4, 4), "shift": draw(4), "conv": draw(1, 1, 3)}
    literals = {
        "two": number(2), "eps": number(1e-6), "half": number(0.5, 4), "sqrt2": number(2**0.5), "axes": ints(1),
        "temperature": number(8), "neg_inf": number(-1e9),
    }  # fmt: skip
    nodes = [
        N("MatMul", ["x", "kernel"], ["a"]),
        N("Add", ["a", "shift"], ["a2"]),
        N("Pow", ["a2", "two"], ["q"]),
        N("ReduceMean", ["q"], ["v"], axes=[-1]),
        N("Add", ["v", "eps"], ["ve"]),
        N("Sqrt", ["ve"], ["s"]),
        N("Div", ["a2", "s"], ["n"]),
        N("Div", ["n", "sqrt2"], ["p"]),
        N("Unsqueeze", ["p", "axes"], ["u"]),
        N("Conv", ["u", "conv"], ["c"], pads=[1, 1]),
        N("Mul", ["c", "half"], ["o"]),
        N("Max", ["o", "neg_inf"], ["m"]),
        N("Div", ["m", "temperature"], ["y"]),
    ]
    return nodes, [3, 4], weights | literals, set(weights)


@file
def spectral_front_end() -> tuple[Any, ...]:
    """An STFT, a bank of filters, and a window, under names that a program counted up."""
    n, t, k = 32, np.arange(32), np.arange(17)[:, None]
    basis = np.concatenate([np.cos(2 * np.pi * k * t / n), -np.sin(2 * np.pi * k * t / n)]) * np.hanning(33)[:-1]
    bank = np.maximum(0, 1 - abs(np.arange(17)[:, None] - np.linspace(2, 14, 6)) / 2.4)
    weights = {"tensor_7": draw(4, 6, 1)}
    literals = {
        "tensor_1": basis[:, None].astype(F32), "tensor_2": bank.astype(F32), "tensor_3": ints(0), "tensor_4": ints(17),
        "tensor_5": ints(34), "tensor_6": ints(1), "tensor_8": number(1e-6), "tensor_9": np.hanning(64).astype(F32),
    }  # fmt: skip
    nodes = [
        N("Mul", ["x", "tensor_9"], ["w"]),
        N("Conv", ["w", "tensor_1"], ["f"], strides=[16]),
        N("Slice", ["f", "tensor_3", "tensor_4", "tensor_6"], ["re"]),
        N("Slice", ["f", "tensor_4", "tensor_5", "tensor_6"], ["im"]),
        N("Mul", ["re", "re"], ["r2"]),
        N("Mul", ["im", "im"], ["i2"]),
        N("Add", ["r2", "i2"], ["p"]),
        N("Transpose", ["p"], ["pt"], perm=[0, 2, 1]),
        N("MatMul", ["pt", "tensor_2"], ["mel"]),
        N("Add", ["mel", "tensor_8"], ["e"]),
        N("Log", ["e"], ["l"]),
        N("Transpose", ["l"], ["lt"], perm=[0, 2, 1]),
        N("Conv", ["lt", "tensor_7"], ["y"]),
    ]
    return nodes, [1, 1, 64], weights | literals, set(weights)


@pytest.mark.parametrize("name", FILES)
def test_what_trains_is_what_the_author_trains(name: str, graph_of: Any) -> None:
    nodes, shape, held, expected, *more = FILES[name]()
    proto = graph_of(nodes, {"x": (F32, shape)}, ["y"], held, opset=16, **dict(*more))
    for axes_as_input in ("ReduceSum", "Unsqueeze", "Squeeze"):
        assert all("axes" not in [a.name for a in node.attribute] for node in nodes if node.op_type == axes_as_input)
    model = mo.load(proto)
    assert {n for n, _ in model.named_parameters()} == expected, model.verdicts
    for n, _ in model.named_parameters():
        assert model.verdicts[n].role == "Parameter"
        assert model.verdicts[n].why
    assert held.keys() <= model.verdicts.keys()


@pytest.mark.parametrize("name", FILES)
def test_twenty_steps_stay_finite(name: str, graph_of: Any) -> None:
    nodes, shape, held, _, *more = FILES[name]()
    model = mo.load(graph_of(nodes, {"x": (F32, shape)}, ["y"], held, opset=16, **dict(*more)))
    x, optimizer = mn.tensor(draw(*shape)), mn.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(20):
        loss = (model(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert np.isfinite(loss.item())
    assert all(np.isfinite(p.array).all() for p in model.parameters())


@pytest.mark.parametrize(
    ("producer", "name", "form"),
    [
        ("", "layer1.0.conv.weight", Form.MODULE),
        ("", "linear_0.w_0", Form.MODULE),
        ("", "model/dense/MatMul/ReadVariableOp:0", Form.MODULE),
        ("", "dense_1/kernel:0", Form.MODULE),
        ("", "block/gamma/read:0", Form.MODULE),
        ("", "kernel", Form.PLAIN),
        ("", "helper.constant.12", Form.TOOL),
        ("", "assign_0.tmp_3", Form.TOOL),
        ("", "auto.cast.7", Form.TOOL),
        ("", "497", Form.TOOL),
        ("", "mul_3", Form.TOOL),
        ("", "onnx::Mul_7", Form.TOOL),
        ("", "/fc/Transpose_output_0", Form.TOOL),
        ("", "stft.forward_basis_buffer", Form.TOOL),
        ("pytorch", "params.0", Form.MODULE),
        ("pytorch", "cls_token", Form.MODULE),
        ("pytorch", "497", Form.TOOL),
        ("pytorch", "val_12", Form.TOOL),
        ("pytorch", "bn.running_mean", Form.TOOL),
    ],
)
def test_names_tell_who_gave_them(producer: str, name: str, form: Form) -> None:
    assert Origin(producer, scripted=producer == "pytorch").form(name) is form


def test_long_names_are_looked_at_once(graph_of: Any) -> None:
    for name in ("a" + "_1" * 200_000 + "_x", "a" + "_11" * 200_000 + "_", "/ReadVariableOp1" * 60_000, "a." * 200_000):
        for producer in ("", "pytorch"):
            Origin(producer, scripted=bool(producer)).form(name)
    proto = graph_of([N("Add", ["x", "k"], ["y"])], {"x": (F32, [4])}, ["y"], {"k": np.arange(4, dtype=F32)})
    assert len(list(mo.load(proto).parameters())) == 1
