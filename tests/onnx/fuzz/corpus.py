"""The fuzz's first models: small sound models of every operator, and some of ours with more than one node.

A seed is a model and the arrays that it takes. Most come from the node tests of the onnx package; what those lack is
made here: initializers, functions, branches, weights in another file, training graphs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper as h
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import minorm as mn
import minorm.onnx as mo
from minorm import nn
from minorm.onnx.graph import registry
from minorm.onnx.graph.tensors import DTYPES
from minorm.onnx.operators.expansions import EXPANSIONS

LARGEST = 20_000  # bytes of a model, and of its inputs together


@dataclass
class Seed:
    """A model and what it is fed with. `files`: what lies beside it."""

    name: str
    model: Any
    arrays: list[Any]
    files: dict[str, bytes] = field(default_factory=dict)


def seeds() -> list[Seed]:
    """The same list in every process."""
    mn.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package computes its expected values while it is asked for them
        return [*node_tests(), *networks(), *contributed(), *handmade()]


def node_tests() -> list[Seed]:
    """Those whose operators and types are minorm's."""
    operators = {("", operator) for operator, _ in registry.READERS} | EXPANSIONS.keys()
    found = []
    for case in load_model_tests(kind="node"):
        types = [value.type for value in case.model.graph.input]
        if (
            all((node.domain, node.op_type) in operators for node in case.model.graph.node)
            and all(t.WhichOneof("value") == "tensor_type" and t.tensor_type.elem_type in DTYPES for t in types)
            and case.model.ByteSize() < LARGEST
        ):
            arrays = [
                numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x)
                for x in case.data_sets[0][0]
            ]
            if sum(array.nbytes for array in arrays) < LARGEST:
                found.append(Seed(case.name, case.model, arrays))
    return found


def networks() -> list[Seed]:
    """Our own exports: layers that train, frozen ones, several opsets, weights outside."""
    x = mn.randn(2, 4, 6, 6)
    convolutional = nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.GroupNorm(2, 4),
        nn.Dropout(0.1), nn.Flatten(), nn.Linear(36, 3), nn.LayerNorm(3),
    )  # fmt: skip
    shared = nn.Sequential(nn.Conv2d(4, 4, 1), nn.InstanceNorm2d(4, affine=True), nn.AvgPool2d(2), nn.Flatten())
    found = []
    for opset in (7, 9, 13, 14, 17, 18, 21, 26):
        for training in (False, True):
            model = mo.export(convolutional, x, None, opset_version=opset, training=training)
            found.append(Seed(f"convolutional {opset} {training}", model, [x.array]))
    found.append(Seed("instance", mo.export(shared, x, None, dynamic_axes={"x": {0: "n", 2: "h", 3: "w"}}), [x.array]))
    outside = mo.export(nn.Sequential(nn.Linear(6, 6), nn.RMSNorm(6)), x, None)
    files = {"weights": b"".join(tensor.raw_data for tensor in outside.graph.initializer)}
    offset = 0
    for tensor in outside.graph.initializer:
        length = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "weights"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        offset += length
    return [*found, *(Seed(f"outside {i}", outside, [x.array], files) for i in range(20))]


def contributed() -> list[Seed]:
    """Operators of onnxruntime, a sparse tensor, and weights of 4 bits and of 8-bit floats."""
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
    rng, found = np.random.default_rng(0), []

    def numbers(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    def one(operator: str, held: dict[str, Any], domain: str = "com.microsoft", x: Any = x, **attributes: Any) -> Any:
        node = h.make_node(operator, ["x", *held], ["y"], domain=domain, **attributes)
        graph = h.make_graph(
            [node], "g", [h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
            [h.make_empty_tensor_value_info("y")], [numpy_helper.from_array(np.asarray(a), n) for n, a in held.items()],
        )  # fmt: skip
        imports = [h.make_opsetid("", 21), h.make_opsetid("com.microsoft", 1)]
        found.append(Seed(operator, h.make_model(graph, opset_imports=imports, ir_version=10), [x]))
        return found[-1].model

    one("FusedConv", {"w": numbers(3, 2, 1, 2), "b": numbers(3)}, x=x.reshape(1, 2, 2, 4), activation="Relu")
    one("FusedMatMul", {"w": numbers(3, 8)}, transB=1, alpha=0.5)
    one("SkipLayerNormalization", {"s": numbers(2, 8), "g": numbers(8)}, epsilon=1e-3)
    packed = rng.integers(0, 256, (3, 1, 4)).astype(np.uint8)
    one("MatMulNBits", {"w": packed, "s": numbers(3)}, K=8, N=3, bits=4, block_size=8)
    eighth = rng.integers(-100, 100, (1, 4, 12)).astype(np.int8)
    scale, zero = np.full((1, 12), 0.01, np.float32), np.zeros((1, 12), np.int8)
    weights = {"w": eighth, "r": eighth[:, :3], "ws": scale, "wz": zero, "rs": scale, "rz": zero}
    model = one("DynamicQuantizeLSTM", weights, x=x.reshape(2, 2, 4), hidden_size=3)
    model.graph.node[0].input[3:3] = [""] * 5
    dense = one("MatMul", {"w": numbers(8, 2)}, domain="")
    values = numpy_helper.from_array(numbers(2), dense.graph.initializer.pop().name)
    dense.graph.sparse_initializer.append(
        h.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 9])), [8, 2])
    )
    for code, count in ((onnx.TensorProto.INT4, 4), (onnx.TensorProto.FLOAT8E4M3FN, 8)):
        narrow = one("MatMul", {"w": np.zeros(1, np.uint8), "s": np.float32(0.1)}, domain="")
        narrow.graph.initializer[0].CopyFrom(
            onnx.TensorProto(name="w", dims=[8], data_type=code, raw_data=bytes(range(count)))
        )
        narrow.graph.node[0].input[:] = ["x", "v"]
        narrow.graph.node.insert(0, h.make_node("DequantizeLinear", ["w", "s"], ["v"]))
    return found


def handmade() -> list[Seed]:
    """Functions that call functions, branches in branches, loops in loops, lengths computed from shapes."""
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    value = h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 4])
    opsets = [h.make_opsetid("", 17), h.make_opsetid("f", 1)]

    def model(nodes: list[Any], initializers: dict[str, Any] | None = None, functions: Any = ()) -> Any:
        graph = h.make_graph(
            nodes, "g", [value], [h.make_empty_tensor_value_info("y")],
            [numpy_helper.from_array(np.asarray(a), name) for name, a in (initializers or {}).items()],
        )  # fmt: skip
        return h.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=8)

    def leaf(nodes: list[Any]) -> Any:
        return h.make_graph(nodes, "branch", [], [h.make_empty_tensor_value_info("out")])

    norm = h.make_node("LayerNormalization", ["a", "w"], ["b"])
    norm.attribute.append(onnx.AttributeProto(name="axis", ref_attr_name="along", type=onnx.AttributeProto.INT))
    inner = h.make_function(
        "f", "Norm", ["a", "w"], ["b"], [norm], opsets, attribute_protos=[h.make_attribute("along", -1)]
    )
    outer = h.make_function(
        "f", "Twice", ["a", "w"], ["c"],
        [h.make_node("Norm", [a, "w"], [b], domain="f") for a, b in (("a", "t"), ("t", "c"))], opsets,
    )  # fmt: skip
    twice = model([h.make_node("Twice", ["x", "w"], ["y"], domain="f")], {"w": np.ones(4, np.float32)}, [inner, outer])
    inside = h.make_node(
        "If", ["k"], ["out"],
        then_branch=leaf([h.make_node("Relu", ["x"], ["out"])]),
        else_branch=leaf([h.make_node("Exp", ["x"], ["t"]), h.make_node("Neg", ["t"], ["out"])]),
    )  # fmt: skip
    same = h.make_node("Identity", ["x"], ["out"])
    branches = [
        h.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        h.make_node("Greater", ["s", "zero"], ["k"]),
        h.make_node("If", ["k"], ["y"], then_branch=leaf([inside]), else_branch=leaf([same])),
    ]  # fmt: skip
    lengths = [
        h.make_node("Shape", ["x"], ["shape"]),
        h.make_node("Gather", ["shape", "first"], ["n"]),
        h.make_node("Concat", ["n", "rest"], ["target"], axis=0),
        h.make_node("Reshape", ["x", "target"], ["flat"]),
        h.make_node("Expand", ["w", "shape"], ["wide"]),
        h.make_node("Reshape", ["wide", "target"], ["scale"]),
        h.make_node("Mul", ["flat", "scale"], ["m"]),
        h.make_node("Resize", ["x", "", "scales"], ["r"], mode="linear"),
        h.make_node("ReduceMean", ["r"], ["mean"], axes=[1, 2], keepdims=0),
        h.make_node("Unsqueeze", ["mean", "last"], ["column"]),
        h.make_node("Add", ["m", "column"], ["y"]),
    ]
    constants = {
        "first": np.array([0]), "rest": np.array([-1]), "w": np.ones((1, 1, 4), np.float32), "last": np.array([1]),
        "scales": np.array([1, 1, 2], np.float32),
    }  # fmt: skip
    numbers = {"times": np.array(3), "yes": np.array(True), "v": np.ones((4, 4), np.float32), "one": np.array(1)}
    made = {
        "loops": model(loop(), numbers),
        "waiting": model(waiting(), {**numbers, "few": np.float32(0.5)}),
        "scan": model(
            scan(), {"v": np.ones((4, 4), np.float32), "begin": np.zeros((3, 4), np.float32), "last": np.array([-1])}
        ),
        "twice": twice,
        "branches": model(branches, {"zero": np.float32(0)}),
        "lengths": model(lengths, constants),
    }
    return [Seed(f"{name} {i}", proto, [x]) for name, proto in made.items() for i in range(20)]


def body(nodes: list[Any], inputs: list[str], outputs: list[str]) -> Any:
    return h.make_graph(
        nodes, "body", *([h.make_empty_tensor_value_info(n) for n in names] for names in (inputs, outputs))
    )


def loop() -> list[Any]:
    """A loop in a loop: matrices, a sequence that grows, and collected results."""
    inner = h.make_node(
        "Loop", ["i", "go", "s"], ["s3"], name="inner",
        body=body(
            [h.make_node(*node) for node in (
                ("MatMul", ["u", "v"], ["p"]), ("Sigmoid", ["p"], ["q"]), ("Identity", ["c2"], ["c3"])
            )],
            ["j", "c2", "u"], ["c3", "q"],
        ),
    )  # fmt: skip
    inside = [
        inner,
        h.make_node("SequenceInsert", ["all", "s3"], ["all2"]),
        h.make_node("Add", ["i", "one"], ["next"]),
        h.make_node("Less", ["next", "times"], ["go2"]),
        h.make_node("Identity", ["s3"], ["kept"]),
    ]
    outer = h.make_node(
        "Loop", ["times", "yes", "x", "none"], ["t", "all3", "stack"], name="outer",
        body=body(inside, ["i", "go", "s", "all"], ["go2", "s3", "all2", "kept"]),
    )  # fmt: skip
    return [
        h.make_node("SequenceEmpty", [], ["none"]), outer,
        h.make_node("ConcatFromSequence", ["all3"], ["wide"], axis=0),
        h.make_node("ReduceSum", ["stack"], ["sum"], keepdims=0),
        h.make_node("Add", ["t", "sum"], ["r"]),
        h.make_node("Concat", ["wide", "r"], ["y"], axis=0),
    ]  # fmt: skip


def waiting() -> list[Any]:
    """A loop that the data end, with a branch in each turn."""
    choice = h.make_node(
        "If", ["c"], ["b"],
        then_branch=body([h.make_node("Tanh", ["a"], ["o"])], [], ["o"]),
        else_branch=body([h.make_node("Neg", ["a"], ["o"])], [], ["o"]),
    )  # fmt: skip
    inside = [
        choice,
        h.make_node("Mul", ["b", "few"], ["a2"]),
        h.make_node("ReduceL2", ["a2"], ["length"], keepdims=0),
        h.make_node("Greater", ["length", "few"], ["c2"]),
    ]
    return [h.make_node("Loop", ["", "yes", "x"], ["y"], body=body(inside, ["i", "c", "a"], ["c2", "a2"]))]


def scan() -> list[Any]:
    """A Scan that goes backwards along the first axis and collects its results along the last."""
    inside = [
        h.make_node("MatMul", ["h", "v"], ["p"]),
        h.make_node("Add", ["p", "e"], ["q"]),
        h.make_node("Tanh", ["q"], ["h2"]),
        h.make_node("Identity", ["h2"], ["kept"]),
    ]
    node = h.make_node(
        "Scan", ["begin", "x"], ["t", "z"], body=body(inside, ["h", "e"], ["h2", "kept"]), num_scan_inputs=1,
        scan_input_directions=[1], scan_input_axes=[0], scan_output_axes=[-1], scan_output_directions=[1],
    )  # fmt: skip
    return [node, h.make_node("Unsqueeze", ["t", "last"], ["t1"]), h.make_node("Add", ["z", "t1"], ["y"])]
