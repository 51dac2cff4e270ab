"""Operators of onnxruntime against onnxruntime: results, what trains, gradients, and the way back into a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import helper as h  # noqa: E402  after importorskip
from onnx import numpy_helper  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.graph.errors import LoadError  # noqa: E402
from minorm.onnx.operators import expansions, rules  # noqa: E402, F401

RNG = np.random.default_rng(5)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def eighth(*shape: int) -> Any:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def model(
    operator: str, x: Any, held: dict[str, Any], outputs: int = 1, domain: str = "com.microsoft", **attributes: Any
) -> Any:  # fmt: skip
    """One node: x is the input, held arrays become initializers, in their order; "" is left out."""
    names = [f"y{i}" for i in range(outputs)]
    inputs = ["x", *(n if a is not None else "" for n, a in held.items())]
    node = h.make_node(operator, inputs, names, domain=domain, **attributes)
    elem = h.np_dtype_to_tensor_dtype(x.dtype)
    graph = h.make_graph(
        [node], "g", [h.make_tensor_value_info("x", elem, x.shape)],
        [h.make_empty_tensor_value_info(n) for n in names],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in held.items() if a is not None],
    )  # fmt: skip
    imports = [h.make_opsetid("", 16), h.make_opsetid("com.microsoft", 1)]
    return h.make_model(graph, opset_imports=imports, ir_version=8)


def reference(proto: Any, x: Any, threads: int = 1) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, threads
    return onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})


X, IMAGE, TOKENS = floats(3, 4), floats(2, 4, 5, 6), floats(2, 3, 4)
SCALES = {"s": np.float32(0.03), "z": np.uint8(120)}
OTHER = {"bs": np.float32(0.02), "bz": np.uint8(7)}
RESULT = {"ys": np.float32(0.05), "yz": np.uint8(100)}
EMBEDDING = {
    "segments": RNG.integers(0, 2, (2, 3)).astype(np.int32), "word": floats(9, 4), "position": floats(5, 4),
    "segment": floats(2, 4), "gamma": floats(4), "beta": floats(4), "mask": np.array([[1, 1, 0], [1, 1, 1]], np.int32),
}  # fmt: skip
IDS = RNG.integers(0, 9, (2, 3)).astype(np.int32)

CASES: dict[str, tuple[str, Any, dict[str, Any], int, dict[str, Any]]] = {
    "Gelu": ("Gelu", X, {}, 1, {}),
    "BiasGelu": ("BiasGelu", X, {"b": floats(4)}, 1, {}),
    "FastGelu": ("FastGelu", X, {}, 1, {}),
    "FastGelu with a bias": ("FastGelu", X, {"b": floats(4)}, 1, {}),
    "QuickGelu": ("QuickGelu", X, {}, 1, {}),
    "QuickGelu alpha": ("QuickGelu", X, {}, 1, {"alpha": 1.3}),
    "FusedConv": ("FusedConv", IMAGE, {"c.weight": floats(6, 2, 3, 3), "c.bias": floats(6)}, 1,
                  {"activation": "Relu", "pads": [1, 1, 1, 1], "group": 2}),
    "FusedConv and a sum": ("FusedConv", IMAGE,
                            {"c.weight": floats(6, 4, 3, 3), "c.bias": floats(6), "z": floats(2, 6, 3, 4)}, 1,
                            {"activation": "LeakyRelu", "activation_params": [0.1]}),
    "FusedConv clip": ("FusedConv", IMAGE, {"c.weight": floats(6, 4, 3, 3)}, 1,
                       {"activation": "Clip", "activation_params": [-0.5, 0.7], "strides": [2, 1]}),
    "FusedConv hard": ("FusedConv", IMAGE, {"c.weight": floats(6, 4, 1, 1)}, 1,
                       {"activation": "HardSigmoid", "activation_params": [0.1, 0.4]}),
    "FusedGemm": ("FusedGemm", X, {"f.weight": floats(5, 4), "f.bias": floats(5)}, 1,
                  {"activation": "LeakyRelu", "activation_alpha": 0.2, "transB": 1}),
    "FusedMatMul": ("FusedMatMul", X, {"w": floats(4, 3)}, 1, {"alpha": 0.5}),
    "FusedMatMul turned": ("FusedMatMul", TOKENS, {"w": floats(5, 4)}, 1, {"transB": 1}),
    "FusedMatMul both": ("FusedMatMul", TOKENS, {"w": floats(2, 5, 3)}, 1, {"transA": 1, "transB": 1, "alpha": 2.0}),
    "SkipLayerNormalization": ("SkipLayerNormalization", TOKENS,
                               {"s": floats(2, 3, 4), "g": floats(4), "e": floats(4), "b": floats(4)}, 4,
                               {"epsilon": 1e-3}),
    "SkipLayerNormalization plain": ("SkipLayerNormalization", TOKENS, {"s": floats(2, 3, 4), "g": floats(4)}, 1, {}),
    "SkipSimplifiedLayerNormalization": ("SkipSimplifiedLayerNormalization", TOKENS,
                                         {"s": floats(2, 3, 4), "g": floats(4)}, 1, {"epsilon": 1e-3}),
    "SimplifiedLayerNormalization": ("SimplifiedLayerNormalization", TOKENS,
        {"g": floats(4)}, 2, {"epsilon": 1e-3, "domain": ""}),
    "LayerNormalization before 17": ("LayerNormalization", TOKENS,
        {"g": floats(4), "b": floats(4)}, 1, {"epsilon": 1e-3, "domain": ""}),
    "EmbedLayerNormalization": ("EmbedLayerNormalization", IDS, EMBEDDING, 2, {"epsilon": 1e-5}),
    "DynamicQuantizeMatMul": ("DynamicQuantizeMatMul", X,
        {"w": eighth(4, 5), "ws": np.float32(0.02), "wz": np.uint8(128), "b": floats(5)}, 1, {}),
    "MatMulIntegerToFloat": ("MatMulIntegerToFloat", eighth(3, 4),
        {"w": eighth(4, 5), "s": np.float32(0.1), "ws": np.full(5, 0.02, np.float32),
                             "z": np.uint8(3), "wz": np.full(5, 100, np.uint8), "b": floats(5)}, 1, {}),
    "QLinearAdd": ("QLinearAdd", eighth(3, 4), {**SCALES, "b": eighth(3, 4), **OTHER, **RESULT}, 1, {}),
    "QLinearMul": ("QLinearMul", eighth(3, 4), {**SCALES, "b": eighth(4), **OTHER, **RESULT}, 1, {}),
    "QLinearSigmoid": ("QLinearSigmoid", eighth(3, 4), {**SCALES, "ys": np.float32(1 / 255), "yz": np.uint8(0)}, 1, {}),
    "QLinearLeakyRelu": ("QLinearLeakyRelu", eighth(3, 4), {**SCALES, **RESULT}, 1, {"alpha": 0.2}),
    "QLinearGlobalAveragePool": ("QLinearGlobalAveragePool", eighth(2, 3, 4, 5), {**SCALES, **RESULT}, 1, {}),
    "QGemm": ("QGemm", eighth(3, 4), {**SCALES, "b": eighth(5, 4), "bs": np.full(5, 0.01, np.float32),
                                      "bz": np.full(5, 100, np.uint8),
                                      "c": RNG.integers(-99, 99, 5).astype(np.int32), **RESULT}, 1, {"transB": 1}),
    "QGemm to floats": ("QGemm", eighth(3, 4), {**SCALES, "b": eighth(4, 5), **OTHER}, 1, {}),
    "QuantizeLinear": ("QuantizeLinear", X, RESULT, 1, {}),
    "DequantizeLinear": ("DequantizeLinear", eighth(3, 4), RESULT, 1, {}),
    **{
        f"MatMulNBits {k} rows, blocks of {block}, {bits} bits{', zero points' if zeros else ''}": (
            "MatMulNBits", floats(3, k),
            {"w": eighth(5, -(-k // block), block * bits // 8), "ws": floats(5 * -(-k // block)),
             "wz": eighth(5 * -(-(-(-k // block) * bits) // 8)) if zeros else None},
            1, {"K": k, "N": 5, "bits": bits, "block_size": block},
        )
        for k, block, bits, zeros in ((32, 16, 4, False), (48, 16, 4, True), (40, 16, 4, True), (64, 32, 8, False))
    },
}  # fmt: skip
INTEGERS = {name for name in CASES if name.startswith("Q") and "Gelu" not in name and "floats" not in name}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_onnxruntime_computes(name: str) -> None:
    operator, x, held, outputs, attributes = CASES[name]
    proto = model(operator, x, held, outputs, **attributes)
    loaded = mo.load(proto)
    loaded.eval()
    results = loaded(mn.Tensor(x))
    results = results if isinstance(results, tuple) else (results,)
    for got, want in zip(results, reference(proto, x), strict=True):
        if want.size:  # outputs that are not asked for come empty
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(got.array, want, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["FusedConv", "SkipLayerNormalization", "MatMulNBits 32 rows, blocks of 16, 4 bits"])
def test_it_goes_out_as_the_operator_it_is(name: str) -> None:
    """A trained weight is in the file, where another of its values stood."""
    operator, x, held, outputs, attributes = CASES[name]
    proto = model(operator, x, held, outputs, **attributes)
    for entry in proto.graph.output:
        entry.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    loaded = mo.load(proto)
    with mn.no_grad():
        for weight in loaded.parameters():
            weight += 0.5
    again = mo.export(loaded, None)
    assert [node.op_type for node in again.graph.node] == [operator]
    first, second = (y[0] if isinstance(y, tuple) else y for y in (loaded(mn.Tensor(x)), mo.load(again)(mn.Tensor(x))))
    np.testing.assert_array_equal(first.array, second.array)
    np.testing.assert_allclose(reference(again, x)[0], first.array, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    "name", [n for n in CASES if CASES[n][1].dtype == np.float32 and n not in INTEGERS and "Dynamic" not in n]
)
def test_gradients(name: str) -> None:
    """Of the input and of every float that the node reads, along one direction, by central differences."""
    operator, x, held, outputs, attributes = CASES[name]
    wide = {n: a.astype(np.float64) if a is not None and a.dtype == np.float32 else a for n, a in held.items()}
    loaded = mo.load(
        model(operator, x.astype(np.float64), wide, outputs, **attributes),
        trainable=lambda name, array: array.dtype == np.float64,
    )
    given = mn.Tensor(x.astype(np.float64), requires_grad=True)
    tensors = [given, *loaded.parameters()]
    assert len(tensors) == 1 + sum(a is not None and a.dtype == np.float64 for a in wide.values())

    def loss() -> Any:
        y = loaded(given)
        y = y[0] if isinstance(y, tuple) else y
        return (y * y).sum()

    loss().backward()
    ways = [RNG.standard_normal(t.shape) for t in tensors]
    ends = []
    with mn.no_grad():
        for step in (1e-6, -2e-6, 1e-6):
            for tensor, way in zip(tensors, ways, strict=True):
                tensor += mn.Tensor(step * way)
            ends.append(loss().item())
    slope = sum((t.grad.array * way).sum() for t, way in zip(tensors, ways, strict=True))
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


def test_what_trains_is_what_trains_in_the_nodes_it_stands_for() -> None:
    for name, trained in (
        ("FusedConv", ["c.weight", "c.bias"]), ("FusedGemm", ["f.weight", "f.bias"]), ("FusedMatMul", ["w"]),
        ("SkipLayerNormalization plain", ["g"]),
    ):  # fmt: skip
        operator, x, held, outputs, attributes = CASES[name]
        loaded = mo.load(model(operator, x, held, outputs, **attributes))
        assert set(trained) <= {n for n, _ in loaded.named_parameters()}, name


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("peephole", [False, True])
def test_an_lstm_that_quantizes_on_the_way(direction: str, peephole: bool) -> None:
    """Weights are below 64: processors without VNNI cut larger sums off at 16 bits, and onnxruntime lets them."""
    n, hidden, x = (2 if direction == "bidirectional" else 1), 3, floats(5, 2, 4)
    held = {
        "w": RNG.integers(-60, 60, (n, 4, 4 * hidden)).astype(np.int8),
        "r": RNG.integers(-60, 60, (n, hidden, 4 * hidden)).astype(np.int8),
        "b": floats(n, 8 * hidden), "l": None, "h": floats(n, 2, hidden), "c": floats(n, 2, hidden),
        "p": floats(n, 3 * hidden) if peephole else None,
        "ws": RNG.uniform(0.005, 0.02, (n, 4 * hidden)).astype(np.float32), "wz": np.zeros((n, 4 * hidden), np.int8),
        "rs": RNG.uniform(0.005, 0.02, (n, 4 * hidden)).astype(np.float32), "rz": np.zeros((n, 4 * hidden), np.int8),
    }  # fmt: skip
    proto = model("DynamicQuantizeLSTM", x, held, 3, hidden_size=hidden, direction=direction)
    for got, want in zip(mo.load(proto)(mn.Tensor(x)), reference(proto, x, threads=4), strict=True):
        np.testing.assert_allclose(got.array, want, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("MatMulNBits 32 rows, blocks of 16, 4 bits", {"bits": 3}, "MatMulNBits with bits=3"),
        ("FusedConv", {"activation": "Frobnicate"}, "an activation with the name 'Frobnicate'"),
        ("FusedConv", {"frobnicate": 1}, "has no attribute 'frobnicate'"),
        ("QLinearGlobalAveragePool", {"channels_last": 1}, "QLinearGlobalAveragePool with channels_last=1"),
    ],
)
def test_what_is_not_read_is_named(name: str, changed: dict[str, Any], message: str) -> None:
    operator, x, held, outputs, attributes = CASES[name]
    with pytest.raises(LoadError, match=message):
        mo.load(model(operator, x, held, outputs, **{**attributes, **changed}))


def test_an_operator_of_the_model_itself_comes_first() -> None:
    own = onnx.parser.parse_function(
        '<domain: "com.microsoft", opset_import: ["" : 16]> Gelu (X) => (Y) { Y = Neg(X) }'
    )
    proto = model("Gelu", X, {})
    proto.functions.append(own)
    np.testing.assert_array_equal(mo.load(proto)(mn.Tensor(X)).array, -X)


def test_many_calls_are_read() -> None:
    """A function of ours makes a few nodes each time: the limit on what a file's functions unfold to stays out."""
    proto = model("Gelu", X, {})
    for i in range(4000):
        proto.graph.node.append(h.make_node("BiasGelu", [f"y{i}", "b"], [f"y{i + 1}"], domain="com.microsoft"))
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros(4, np.float32), "b"))
    proto.graph.output[0].name = "y4000"
    assert mo.load(proto).output_names == ["y4000"]


def test_the_cases_are_all_there() -> None:
    tried = {case[0] for case in CASES.values()} | {"DynamicQuantizeLSTM"}
    later = {
        "SequenceMap",
        "QLinearConcat",
        "TransposeMatMul",
        "FusedMatMulActivation",
    }  # not on the CPU, or of the same text
    assert {name for domain, name in expansions.EXPANSIONS if "preview" not in domain} - tried == later
