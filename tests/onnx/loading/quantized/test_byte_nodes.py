"""Graphs on bytes: in inference they give onnxruntime's integers, elsewhere they are the nodes of the file.

Weights are of 7 bits where they are signed: with 8 bits a processor without VNNI cuts sums off at 16 bits, and
onnxruntime lets it.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

import minorm as mn
import minorm.onnx as mo
from minorm import nn
from tests.onnx.runtime import expected

F = np.float32


def rng() -> Any:
    return np.random.default_rng(11)


def weights(*shape: int, dtype: Any = np.int8) -> Any:
    low, high = (-64, 65) if dtype == np.int8 else (0, 256)
    return rng().integers(low, high, shape).astype(dtype)


def graph(nodes: str, x: tuple[int, ...], tensors: dict[str, Any], opset: int = 17) -> Any:
    """x, quantized to xq and dequantized to xf; the nodes; yq, dequantized to y."""
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[{", ".join(map(str, x))}] x) => (float y) {{
        xq = QuantizeLinear(x, xs, xz)  xf = DequantizeLinear(xq, xs, xz)
        {nodes}
        y = DequantizeLinear(yq, ys, yz)
    }}"""
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    given = {"xs": F(0.02), "xz": np.uint8(120), "ys": F(0.05), "yz": np.uint8(100), **tensors}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), name) for name, a in given.items())
    return model


def per_channel(count: int) -> Any:
    return rng().uniform(0.002, 0.01, count).astype(F)


CONV = "wf = DequantizeLinear <axis = 0> (w, ws, wz)  bf = DequantizeLinear <axis = 0> (b, bs)\n"
OUT = "yq = QuantizeLinear(c, ys, yz)"


def conv_tensors(w: Any, scale: Any, x_scale: float = 0.02, **more: Any) -> dict[str, Any]:
    zeros = np.full(np.shape(scale), 0 if w.dtype == np.int8 else 131, w.dtype)
    bias = rng().integers(-3000, 3000, len(w)).astype(np.int32)
    return {"w": w, "ws": scale, "wz": zeros, "b": bias, "bs": F(x_scale) * scale, **more}


MATMUL = "wf = DequantizeLinear <axis = 1> (w, ws, wz)\n"
CASES: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "Conv": (CONV + f"c = Conv <pads = [1, 1, 1, 1]> (xf, wf, bf) {OUT}", (2, 3, 9, 11),
             conv_tensors(weights(5, 3, 3, 3), per_channel(5))),
    "Conv, signed": (CONV + f"c = Conv <strides = [2, 1], auto_pad = \"SAME_UPPER\"> (xf, wf, bf) {OUT}", (2, 3, 9, 11),
                     conv_tensors(weights(5, 3, 3, 3), per_channel(5), xz=np.int8(-3), yz=np.int8(20))),
    "Conv of unsigned weights": (CONV + f"c = Conv <group = 2> (xf, wf, bf) {OUT}", (1, 6, 7, 7),
                                 conv_tensors(weights(4, 3, 2, 2, dtype=np.uint8), F(0.004))),
    "depthwise": (CONV + f"c = Conv <group = 6, pads = [1, 1, 1, 1]> (xf, wf, bf) {OUT}", (2, 6, 9, 8),
                  conv_tensors(weights(6, 1, 3, 3), per_channel(6), ys=F(0.01))),
    "Conv, Relu": (CONV + f"r = Conv (xf, wf, bf) c = Relu(r) {OUT}", (2, 3, 9, 11),
                   conv_tensors(weights(5, 3, 3, 3), per_channel(5))),
    "Conv, Clip": ((CONV + "r = Conv (xf, wf, bf) zero = Constant <value_float = 0.0> () six = Constant <value_float = "
                   f"6.0> () c = Clip(r, zero, six) {OUT}"), (2, 3, 9, 11),
                   conv_tensors(weights(5, 3, 3, 3), per_channel(5), ys=F(6 / 255), yz=np.uint8(0))),
    "Conv without a bias": (("wf = DequantizeLinear <axis = 0> (w, ws, wz) "
                            f"c = Conv (xf, wf) {OUT}"), (1, 3, 6),
                            {"w": weights(4, 3, 2), "ws": F(0.01), "wz": np.int8(0)}),
    "no zero points": ("wf = DequantizeLinear (w, ws) c = MatMul(xf, wf) yq = QuantizeLinear(c, ys)", (5, 7),
                       {"w": weights(7, 4), "ws": F(0.01), "yz": np.uint8(0), "ys": F(0.1)}),
    "MatMul": (MATMUL + f"c = MatMul(xf, wf) {OUT}", (2, 5, 70),
               {"w": weights(70, 33), "ws": F(0.005), "wz": np.int8(0)}),
    "MatMul, a scale for each column": (MATMUL + f"c = MatMul(xf, wf) {OUT}", (5, 70),
                                        {"w": weights(70, 33), "ws": per_channel(33), "wz": np.zeros(33, np.int8)}),
    "Gemm": (CONV + f"c = Gemm <transB = 1> (xf, wf, bf) {OUT}", (5, 40),
             conv_tensors(weights(9, 40), per_channel(9))),
    "two in a row": (CONV + "c = Conv <pads = [1, 1, 1, 1]> (xf, wf, bf) q = QuantizeLinear(c, xs, xz) "
                     "d = DequantizeLinear(q, xs, xz) e = Conv (d, wf, bf) yq = QuantizeLinear(e, ys, yz)",
                     (1, 3, 9, 9),
                     conv_tensors(weights(3, 3, 3, 3), per_channel(3))),
    "Add": (f"d = Neg(xf) dq = QuantizeLinear(d, ds, dz) df = DequantizeLinear(dq, ds, dz) c = Add(xf, df) {OUT}",
            (3, 50), {"ds": F(0.03), "dz": np.uint8(77)}),
    "Add, Relu": ((f"d = Sqrt(xf) dq = QuantizeLinear(d, ds, dz) df = DequantizeLinear(dq, ds, dz) r = Add(xf, df) "
                  f"c = Relu(r) {OUT}"), (3, 50), {"ds": F(0.03), "dz": np.uint8(0), "yz": np.uint8(0)}),
    "MaxPool, Flatten": (("m = MaxPool <kernel_shape = [2, 2]> (xf) mq = QuantizeLinear(m, xs, xz) "
                         "mf = DequantizeLinear(mq, xs, xz) c = Flatten(mf) yq = QuantizeLinear(c, xs, xz)"),
                         (2, 3, 6, 6),
                         {"ys": F(0.02), "yz": np.uint8(120)}),
    "MaxPool, Reshape and nothing in between": ((CONV + "m = MaxPool <kernel_shape = [2, 2]> (xf) shape = Constant "
                                                "<value_ints = [2, 12, 25]> () n = Reshape (m, shape) "
                                                f"c = Conv (n, wf, bf) {OUT}"), (2, 12, 6, 6),
                                                conv_tensors(weights(5, 12, 2), per_channel(5))),
    "a pooling that two nodes read": (CONV + ("m = MaxPool <kernel_shape = [2, 2]> (xf) d = Conv (m, wf, bf) "
                                      "q = QuantizeLinear(d, ds, dz) e = DequantizeLinear(q, ds, dz) c = Add(e, m) "
                                      + OUT), (2, 3, 6, 6),
                                      conv_tensors(weights(3, 3, 1, 1), per_channel(3), ds=F(0.03), dz=np.uint8(99))),
}  # fmt: skip


def fused(model: Any) -> list[str]:
    """The operators of the nodes that stand for others."""
    return [group.step.label.split()[0] for group in model._fused]


@pytest.mark.parametrize("name", CASES)
def test_the_integers_are_onnxruntimes(name: str) -> None:
    proto = graph(*CASES[name])
    x = (rng().standard_normal(CASES[name][1]) * 1.5).astype(F)
    [want] = expected(proto, x)
    model = mo.load(proto)
    assert fused(model)
    before = model(mn.Tensor(x))
    np.testing.assert_array_equal(before.numpy(), want)
    with mn.no_grad():
        for _ in range(4):  # the last ones by plan
            np.testing.assert_array_equal(model(mn.Tensor(x)).numpy(), want)
        assert "passes" in repr(model)


@pytest.mark.parametrize("name", CASES)
def test_the_nodes_of_the_file_are_never_far(name: str) -> None:
    """In training and where nodes are watched: floats, which differ by a step where they are nearly half way."""
    proto = graph(*CASES[name])
    x = (rng().standard_normal(CASES[name][1]) * 1.5).astype(F)
    model = mo.load(proto)
    bytes_ = model(mn.Tensor(x)).numpy()
    seen: list[str] = []
    with model.watching(lambda step, *_: seen.append(step.operator)):
        floats = model(mn.Tensor(x)).numpy()
    assert "DequantizeLinear" in seen
    np.testing.assert_array_equal(model.train()(mn.Tensor(x)).numpy(), floats)
    step = np.asarray(CASES[name][2].get("ys", 0.05))
    assert np.abs(bytes_ - floats).max() <= 1.001 * step
    assert (bytes_ != floats).mean() < 0.01


def test_gradients_take_the_files_own_way() -> None:
    proto = graph(*CASES["Conv, Relu"])
    x = mn.Tensor((rng().standard_normal((2, 3, 9, 11)) * 0.5).astype(F), requires_grad=True)
    model = mo.load(proto)
    y = model(x)
    y.sum().backward()
    assert x.grad is not None
    assert np.abs(x.grad.numpy()).max() > 0
    with mn.no_grad():
        assert np.abs(model(x).numpy() - y.numpy()).max() <= 0.0501


def test_a_pooling_on_bytes_beside_its_floats() -> None:
    """Floats that another node reads are computed too."""
    nodes = CONV + f"m = MaxPool <kernel_shape = [2, 2]> (xf) t = Sqrt(m) c = Conv (m, wf, bf) {OUT}"
    proto = graph(nodes, (2, 3, 6, 6), conv_tensors(weights(5, 3, 1, 1), per_channel(5)))
    proto.graph.output.extend([onnx.ValueInfoProto(name="t"), onnx.ValueInfoProto(name="m")])
    for entry in proto.graph.output[1:]:
        entry.type.tensor_type.elem_type = 1
    x = np.abs(rng().standard_normal((2, 3, 6, 6))).astype(F)
    model = mo.load(proto)
    assert sorted(fused(model)) == ["MaxPool", "QLinearConv"]
    with mn.no_grad():
        for _ in range(3):
            for got, want in zip(model(mn.Tensor(x)), expected(proto, x), strict=True):
                np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


def test_a_layer_between_the_bytes_and_the_node_that_reads_them() -> None:
    """The node is applied to what the layer makes, not to the bytes in front of it."""
    nodes, x = (
        f"wf = DequantizeLinear <axis = 0> (w, ws, wz) c = Conv (xf, wf) {OUT}",
        rng().standard_normal((1, 3, 9)).astype(F),
    )
    tensors = {"w": weights(4, 3, 2), "ws": F(0.01), "wz": np.int8(0)}
    model, other = (
        mo.load(graph(nodes, (1, 3, 9), tensors)),
        graph(nodes, (1, 3, 9), {**tensors, "hs": F(0.01), "hz": np.uint8(0)}),
    )
    other.graph.node[1].input[1:] = ["hs", "hz"]
    model.replace("xf", Hundredths())
    with mn.no_grad():
        for _ in range(3):
            y = model.eval()(mn.Tensor(x)).numpy()
    [want] = expected(other, x)
    assert np.abs(want).max() > 0.5
    assert np.abs(y - want).max() <= 0.0501


class Hundredths(nn.Module):
    def forward(self, q: mn.Tensor) -> mn.Tensor:
        return q.to(mn.float32) * 0.01


@pytest.mark.parametrize(
    "nodes",
    [CONV + f"c = Gemm <transB = 1> (xf, wf, bf) {OUT}",
     CONV + f"t = Transpose (xq) u = DequantizeLinear (t, xs, xz) c = Add (xf, u) {OUT}"],
    ids=["Gemm", "Add"],
)  # fmt: skip
def test_room_is_asked_for_before_it_is_taken(nodes: str) -> None:
    proto = graph(nodes, (30_000, 1), conv_tensors(weights(30_000, 1), per_channel(30_000)))
    model = mo.load(proto, max_bytes=4_000_000)
    assert fused(model)
    with mn.no_grad(), pytest.raises(ValueError, match=r"QLinear.*a result of shape \(30000, 30000\) would take"):
        model(mn.Tensor(np.ones((30_000, 1), F)))


LEFT = {
    "a Clip above zero": (CONV + "r = Conv (xf, wf, bf) one = Constant <value_float = 1.0> () "
                          "c = Clip(r, one) " + OUT, {}),
    "a Clip that bytes would pass": (CONV + "r = Conv (xf, wf, bf) one = Constant <value_float = 1.0> () "
                                     "c = Clip(r, , one) " + OUT, {}),
    "a float bias": (CONV + "c0 = Conv (xf, wf, fb) c = Relu(c0) " + OUT, {"fb": np.ones(5, F)}),
    "a value that others read": (CONV + "c = Conv (xf, wf, bf) n = Abs(c) nq = QuantizeLinear(n, ys, yz) "
                                 "nf = DequantizeLinear(nq, ys, yz) z = QuantizeLinear(c, ys, yz) "
                                 "zf = DequantizeLinear(z, ys, yz) s = Div(zf, nf) yq = QuantizeLinear(s, ys, yz)", {}),
    "a bias in other units": (CONV + f"c = Conv (xf, wf, bf) {OUT}", {"bs": F(0.5) * per_channel(5)}),
    "floats of 16 bits on the way": (CONV + "c0 = Conv (xf, wf, bf) c1 = Cast <to = 10> (c0) "
                                     f"c = Cast <to = 1> (c1) {OUT}", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_such_a_pattern_is_left_alone(name: str) -> None:
    nodes, more = LEFT[name]
    model = mo.load(graph(nodes, (2, 3, 9, 11), conv_tensors(weights(5, 3, 3, 3), per_channel(5)) | more))
    assert fused(model) == []


def test_one_number_is_the_bias_of_all_columns() -> None:
    nodes = f"wf = DequantizeLinear (w, ws, wz) bf = DequantizeLinear (b, bs) c = Gemm <transB = 1> (xf, wf, bf) {OUT}"
    bias = {"b": np.array([900], np.int32), "bs": F(0.02) * F(0.005)}
    proto = graph(nodes, (5, 40), {"w": weights(9, 40), "ws": F(0.005), "wz": np.int8(0), **bias})
    x = rng().standard_normal((5, 40)).astype(F)
    with mn.no_grad():
        assert np.abs(mo.load(proto)(mn.Tensor(x)).numpy() - expected(proto, x)[0]).max() <= 0.0501


def test_scales_that_are_products_of_products_take_no_time() -> None:
    """A product of 2^60 factors is left alone: 60 nodes of a file ask for it."""
    chain = " ".join(f"s{i + 1} = Mul (s{i}, s{i})" for i in range(60))
    model = mo.load(graph(chain + " yq = QuantizeLinear (xf, s60, yz)", (3,), {"s0": F(1)}))
    np.testing.assert_array_equal(model(mn.zeros(3)).numpy(), [0, 0, 0])


@pytest.mark.parametrize("other", [(2,), (3, 1), (0,)])
def test_scales_of_odd_shapes_are_left_to_the_nodes(other: tuple[int, ...]) -> None:
    nodes = "t = Mul (s, u) yq = QuantizeLinear <axis = 0> (xf, t)"
    proto = graph(nodes, (3,), {"s": np.ones(3, F), "u": np.ones(other, F)})
    with pytest.raises(ValueError, match=r"load: Mul|QuantizeLinear"):
        mo.load(proto)(mn.zeros(3))


def test_a_file_that_was_run_on_bytes_is_written_as_it_was() -> None:
    proto = graph(*CASES["Conv, Relu"])
    model = mo.load(proto)
    x = mn.Tensor((rng().standard_normal((2, 3, 9, 11))).astype(F))
    y = model(x).numpy()
    written = mo.load(mo.export(model, x))
    assert fused(written) == fused(model)
    np.testing.assert_array_equal(written(x).numpy(), y)


def test_copies_run_on_bytes_too() -> None:
    model = mo.load(graph(*CASES["two in a row"]))
    x = mn.Tensor((rng().standard_normal((1, 3, 9, 9))).astype(F))
    with mn.no_grad():
        wanted = [model(x).numpy() for _ in range(3)][-1]
        other = copy.deepcopy(model)
        assert fused(other) == fused(model)
        assert len(fused(other)) == 2
        np.testing.assert_array_equal(other(x).numpy(), wanted)


def test_a_layer_in_the_place_of_a_node() -> None:
    """The groups that it is part of are gone, the others stay."""
    nodes, shape, tensors = CASES["two in a row"]
    proto = graph(nodes, shape, tensors)
    model = mo.load(proto)
    model.replace("e", nn.Conv2d(3, 3, 3))
    x = mn.Tensor((rng().standard_normal(shape)).astype(F))
    steps = model._fused_steps
    assert steps is not None
    assert sum(step.label.startswith("QLinearConv") for step in steps) == 1
    with mn.no_grad():
        assert model.eval()(x).shape == (1, 3, 7, 7)


def test_weights_cannot_change() -> None:
    """They are prepared once, for all runs."""
    model = mo.load(graph(*CASES["MatMul"]))
    with pytest.raises(ValueError, match="read-only"):
        model.constants["w"].array[:] = 0


def test_a_buffer_is_updated_beside_bytes() -> None:
    """A graph that minorm wrote: its layer trains, and the rest runs on bytes."""
    nodes, shape, tensors = CASES["Conv"]
    more = {"mean": F(3), "half": F(0.5), "one": F(1)}
    proto = graph(f"{nodes} u = Mul(mean, half) v = Add(u, one)", shape, tensors | more)
    proto.producer_name = "minorm"
    names = {"mean": "bn.running_mean", "v": "bn.running_mean.updated"}
    for node in proto.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for tensor in proto.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    proto.graph.output.append(onnx.helper.make_tensor_value_info(names["v"], onnx.TensorProto.FLOAT, []))
    model = mo.load(proto).eval()
    model.get_submodule("bn").train()
    with mn.no_grad():
        for expected_mean in (2.5, 2.25, 2.125, 2.0625):
            model(mn.zeros(*shape))
            assert model.get_buffer("bn.running_mean").item() == expected_mean
