"""ONNX files that ask for far more than their length justifies; sized by `n`, roughly their length in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node
FLOAT = TensorProto.FLOAT


# The wire format


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def field(number: int, contents: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(contents)) + contents


HEAD = b"\x08\x08" + field(8, b"\x10\x11")  # ir_version 8, opset 17
GRAPH, NODE, ATTRIBUTE, INITIALIZER, BODY = 7, 1, 5, 5, 6


def empty_parts(n: int) -> Iterator[tuple[str, bytes]]:
    """Messages of two bytes, of every kind that may stand often."""
    wrapped = {
        "ModelProto": lambda inner: inner,
        "GraphProto": lambda inner: field(GRAPH, inner),
        "NodeProto": lambda inner: field(GRAPH, field(NODE, inner)),
        "AttributeProto": lambda inner: field(GRAPH, field(NODE, field(ATTRIBUTE, inner))),
        "TensorProto": lambda inner: field(GRAPH, field(INITIALIZER, inner)),
        "FunctionProto": lambda inner: field(25, inner),
    }
    for name, wrap in wrapped.items():
        for part in getattr(onnx, name).DESCRIPTOR.fields:
            if part.type in (part.TYPE_MESSAGE, part.TYPE_STRING, part.TYPE_BYTES):
                yield f"empty {name}.{part.name}", HEAD + wrap(field(part.number, b"") * (n // 2))
            elif getattr(part, "is_repeated", True):
                yield f"numbers {name}.{part.name}", HEAD + wrap((varint(part.number << 3) + b"\1") * (n // 2))
                yield f"packed {name}.{part.name}", HEAD + wrap(field(part.number, b"\1" * n))
    yield "nodes without inputs", HEAD + field(GRAPH, field(NODE, field(4, b"Relu")) * (n // 8))


def nested(n: int) -> Iterator[tuple[str, bytes]]:
    for depth, name in ((20, "graphs in graphs"), (n // 12, "graphs in graphs to the bottom")):
        inner = b""
        for _ in range(min(depth, 3000)):
            inner = field(NODE, field(4, b"If") + field(ATTRIBUTE, field(1, b"then_branch") + field(BODY, inner)))
        yield name, HEAD + field(GRAPH, inner * max(1, n // len(inner)))
    yield "groups", HEAD + b"\x0b" * n
    yield "closed groups", HEAD + b"\x0b" * (n // 2) + b"\x0c" * (n // 2)
    yield "lengths that are too long", HEAD + b"\x3a\xff\xff\xff\xff\x7f" + bytes(n)
    yield "a long tag", HEAD + b"\xff" * n
    yield "zeros", bytes(n)
    sequence = b""
    for _ in range(80):
        sequence = field(4, field(1, sequence))  # a sequence of sequences
    yield "a deep type", HEAD + field(GRAPH, field(11, field(1, b"x") + field(2, sequence)) * max(1, n // 500))


# Models


def value(name: str, shape: Sequence[Any] | None = (2, 4), kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[Any],
    held: dict[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    tensors: Sequence[Any] = (),
    **options: Any,
) -> Any:
    """A model of opset 19 with an input x; `held` is arrays, `tensors` TensorProtos."""
    found = [*(numpy_helper.from_array(np.asarray(a), name) for name, a in (held or {}).items()), *tensors]
    ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "g", [value("x")], ends, found)
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **options)


RELU = [node("Relu", ["x"], ["y"])]
ONES = np.ones(4, np.float32)


def chain(operator: str, count: int, extra: Sequence[str] = (), **attributes: Any) -> list[Any]:
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    return [node(operator, [a, *extra], [b], **attributes) for a, b in pairwise(names)]


def long_graphs(n: int) -> Iterator[tuple[str, Any]]:
    """Well-formed nodes, and the same with a broken last node."""
    last = node("Frobnicate", ["y"], ["z"])
    misfit = node("Relu", ["y"], ["z"], alpha=1.0)
    for name, nodes in {
        "identities": chain("Identity", n // 20),
        "sums": chain("Add", n // 20, ["w"]),
        "layers": chain("BatchNormalization", n // 45, ["w"] * 4),
        "layer norms": chain("LayerNormalization", n // 40, ["w"]),
        "reshapes": chain("Reshape", n // 30, ["shape"]),
    }.items():
        held = {"w": ONES, "shape": np.array([2, 4])}
        yield name, model(nodes, held)
        yield f"{name}, and a strange operator", model([*nodes, last], held, ["z"])
        yield f"{name}, and a strange attribute", model([*nodes, misfit], held, ["z"])
    yield "a weight shared by many", model(
        [*(node("Mul", ["x", "w"], [f"v{i}"]) for i in range(n // 20)),
         node("Sum", [f"v{i}" for i in range(n // 20)], ["y"])], {"w": ONES},
    )  # fmt: skip
    yield "a sum of many", model([node("Sum", ["x"] * (n // 3), ["y"])])
    yield "weights of one number", model(RELU, {f"w{i}": np.float32(i) for i in range(n // 12)})
    yield "weights of one name", model(RELU, None, ["y"], [numpy_helper.from_array(ONES, "w")] * (n // 30))
    yield "an output many times", model(RELU, None, ["y"] * (n // 6))
    yield "outputs", model([node("Relu", ["x"], [f"y{i}"]) for i in range(n // 25)], None,
                           [f"y{i}" for i in range(n // 25)])  # fmt: skip
    for key in ("minorm.frozen", "minorm.statistics", "other"):
        said = model(RELU, producer_name="minorm")
        for _ in range(n // 20):
            said.metadata_props.add(key=key, value="[]")
        yield f"metadata {key}", said
        deep = model(RELU, producer_name="minorm")
        deep.metadata_props.add(key=key, value="[" * n)
        yield f"deep metadata {key}", deep
        digits = model(RELU, producer_name="minorm")
        digits.metadata_props.add(key=key, value="9" * n)
        yield f"a long number in metadata {key}", digits
    yield "a path of many places", model(chain("BatchNormalization", 2, ["w"] * 4, name="a." * (n // 4)), {"w": ONES})
    opsets = model(RELU)
    opsets.opset_import.extend(helper.make_opsetid(f"d{i}", 1) for i in range(n // 10))
    yield "opsets", opsets
    body = helper.make_graph(chain("Relu", n // 40)[1:], "b", [], [helper.make_empty_tensor_value_info("y")])
    body.node.insert(0, node("Relu", ["x"], ["v0"]))
    yield "a branch under a long name", model(
        [node("If", ["c"], ["z"], name="n" * (n // 3), then_branch=body, else_branch=body)],
        {"c": np.array(True)}, ["z"],
    )  # fmt: skip


def functions(n: int) -> Iterator[tuple[str, Any]]:
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("f", 1)]

    def function(name: str, nodes: Sequence[Any]) -> Any:
        return helper.make_function("f", name, ["a"], ["b"], nodes, opsets)

    twice = [function("F0", [node("Relu", ["a"], ["b"])])]
    for i in range(1, 60):
        called = [node(f"F{i - 1}", ["a"], ["c"], domain="f"), node(f"F{i - 1}", ["c"], ["b"], domain="f")]
        twice.append(function(f"F{i}", called))
    yield "functions that call twice", model([node("F59", ["x"], ["y"], domain="f")], functions=twice)
    itself = function("F", [node("F", ["a"], ["b"], domain="f")])
    yield "a function that calls itself", model([node("F", ["x"], ["y"], domain="f")], functions=[itself])
    often = function("F", [node("Relu", ["a"], ["c" * (n // 2)]), node("Relu", ["c" * (n // 2)], ["b"])])
    yield "a long name in a function", model(chain("F", n // 40, domain="f"), functions=[often])
    yield "one function many times", model(RELU, functions=[function("F", [])] * (n // 20))


def lengths(n: int) -> Iterator[tuple[str, Any]]:
    """Yield files whose shapes and counts ask for far more than the files hold."""
    for dims in ((2**62,), (2**31, 2**31, 2**31), (-1,), (0, 2**62, 2**62), (1,) * (n // 2), (2**40,)):
        tensor = TensorProto(name="w", data_type=FLOAT, dims=dims)
        yield f"a tensor of {len(dims)} lengths, {dims[0]}", model([node("Mul", ["x", "w"], ["y"])], tensors=[tensor])
        declared = model(RELU)
        del declared.graph.input[:]
        declared.graph.input.append(value("x", dims))
        yield f"an input of {len(dims)} lengths, {dims[0]}", declared
    named = model(RELU)
    named.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n" * n
    yield "a long name of a length", named
    for kind in (0, 99, TensorProto.STRING, TensorProto.COMPLEX64, 2**31 - 1):
        yield (
            f"a tensor of type {kind}",
            model([node("Mul", ["x", "w"], ["y"])], tensors=[TensorProto(name="w", data_type=kind, dims=[4])]),
        )
    many = {"huge": np.array([2**40]), "large": np.array([2**28]), "negative": np.array([-(2**62)])}
    for size, shape in many.items():
        one = np.ones(1, np.float32)
        for operator, inputs in {
            "ConstantOfShape": ["n"], "Expand": ["one", "n"], "Tile": ["one", "n"], "Range": ["z", "limit", "step"],
        }.items():  # fmt: skip
            held = {"n": shape, "one": one, "z": np.int64(0), "limit": shape[0], "step": np.int64(1)}
            nodes = [node(operator, inputs, ["h"]), node("ReduceSum", ["h"], ["s"]), node("Cast", ["s"], ["f"], to=1)]
            yield f"{size} {operator}", model([*nodes, node("Add", ["x", "f"], ["y"])], held)
    growing = [node("Concat", ["x" if i == 0 else f"v{i - 1}"] * 2, [f"v{i}"], axis=0) for i in range(60)]
    yield "doubled 60 times", model([*growing, node("Relu", ["v59"], ["y"])])
    growing = [node("Concat", ["w" if i == 0 else f"v{i - 1}"] * 2, [f"v{i}"], axis=0) for i in range(60)]
    yield "a constant doubled 60 times", model([*growing, node("Relu", ["v59"], ["y"])], {"w": ONES})
    outer = [node("Mul", ["w" if i == 0 else f"v{i - 1}", f"w{i}"], [f"v{i}"]) for i in range(12)]
    held = {f"w{i}": np.ones((100, *[1] * i), np.float32) for i in range(12)}
    yield "an outer product", model([*outer, node("Relu", ["v11"], ["y"])], {"w": ONES[:1], **held})
    ends = [helper.make_empty_tensor_value_info(name) for name in ("c", "v2")]
    given = [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("v")]
    body = helper.make_graph([node("Relu", ["v"], ["v2"])], "b", given, ends)
    turns = model([node("Loop", ["turns", "", "x"], ["y"], body=body)], {"turns": np.array(2**62)})
    yield "a loop of many turns", turns


def attributes(n: int) -> Iterator[tuple[str, Any]]:
    pool = {"kernel_shape": [1, 1]}
    yield "a kernel of many axes", model([node("MaxPool", ["x"], ["y"], kernel_shape=[1] * (n // 2))])
    yield "a huge kernel", model([node("MaxPool", ["x"], ["y"], kernel_shape=[2**62, 2**62])])
    yield "huge pads", model([node("MaxPool", ["x"], ["y"], **pool, pads=[2**62] * 4)])
    yield "a permutation", model([node("Transpose", ["x"], ["y"], perm=[2**62] * (n // 10))])
    yield "an equation", model([node("Einsum", ["x"], ["y"], equation="i" * n + "->i")])
    yield "many attributes", model([node("Relu", ["x"], ["y"], **{f"a{i}": 1 for i in range(n // 12)})])
    twice = node("Relu", ["x"], ["y"])
    twice.attribute.extend([helper.make_attribute("a", 1)] * (n // 10))
    yield "an attribute many times", model([twice])
    yield "axes", model([node("Unsqueeze", ["x", "axes"], ["y"])], {"axes": np.arange(n // 8)})
    yield "a Constant of texts", model([node("Constant", [], ["c"], value_strings=[""] * (n // 2)), *RELU])
    yield "a Constant of numbers", model([node("Constant", [], ["c"], value_ints=[1] * (n // 2)), *RELU], None, ["c"])
    ones = TensorProto(name="w", data_type=TensorProto.INT64, dims=[n], int64_data=[1] * n)
    yield "numbers of one byte", model([node("Gather", ["x", "w"], ["y"])], tensors=[ones])
    wide = TensorProto(name="w", data_type=TensorProto.BOOL, dims=[n], int32_data=[1] * n)
    yield "bools of one byte", model([node("Where", ["w", "x", "x"], ["y"])], tensors=[wide])
    texts = TensorProto(name="w", data_type=TensorProto.STRING, dims=[n // 2], string_data=[b""] * (n // 2))
    yield "texts", model([node("Mul", ["x", "w"], ["y"])], tensors=[texts])
    broken = model(RELU).SerializeToString().replace(b"Relu", b"\xff\xfe\xfd\xfc")
    yield "no text", broken


def beside(n: int) -> Iterator[tuple[str, Any]]:
    """Weights in other files, which are not there, or lie outside."""
    for location, offset, length in (
        ("../../../../../etc/passwd", 0, 16), ("/etc/passwd", 0, 16), ("/dev/zero", 0, 16), ("a" * n, 0, 16),
        ("a/" * (n // 2), 0, 16), ("\0", 0, 16), ("missing", 2**63 - 1, 16), ("missing", -1, 16), ("missing", 0, 2**63),
        ("..\\x", 0, 16), ("C:\\x", 0, 16), ("missing", "1e3", 16), ("missing", "9" * n, 16), (".", 0, 16),
        ("0", 0, 16), ("0", 2**62, 16), ("", 0, 16),
    ):  # fmt: skip
        tensor = TensorProto(name="w", data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        for key, text in (("location", location), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(text))
        name = f"beside: {location[:20]!r} {str(offset)[:20]} {length}"
        yield name, model([node("Mul", ["x", "w"], ["y"])], tensors=[tensor])
    keys = TensorProto(name="w", data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for _ in range(n // 10):
        keys.external_data.add(key="location", value="0")
    yield "beside: a place said often", model([node("Mul", ["x", "w"], ["y"])], tensors=[keys])
    huge = TensorProto(name="w", data_type=FLOAT, dims=[2**40], data_location=TensorProto.EXTERNAL)
    huge.external_data.add(key="location", value="0")
    yield "beside: terabytes", model([node("Mul", ["x", "w"], ["y"])], tensors=[huge])


def files(n: int) -> Iterator[tuple[str, bytes]]:
    yield from empty_parts(n)
    yield from nested(n)
    for family in (long_graphs, functions, lengths, attributes, beside):
        for name, made in family(n):
            yield name, made if isinstance(made, bytes) else made.SerializeToString()


def whole() -> list[bytes]:
    """Small files that load and run."""
    held = {"w": ONES, "shape": np.array([4, 2])}
    nodes = [
        node("BatchNormalization", ["x", "w", "w", "w", "w"], ["a"], "bn"),
        node("LayerNormalization", ["a", "w"], ["b"], axis=-1),
        node("Reshape", ["b", "shape"], ["y"]),
    ]
    body = helper.make_graph([node("Relu", ["x"], ["t"])], "b", [], [helper.make_empty_tensor_value_info("t")])
    both = {"then_branch": body, "else_branch": body}
    called = helper.make_function("f", "F", ["a"], ["b"], [node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 19)])
    return [
        model(nodes, held).SerializeToString(),
        model([node("If", ["c"], ["y"], **both)], {"c": np.array(True)}).SerializeToString(),
        model([node("F", ["x"], ["y"], domain="f")], functions=[called]).SerializeToString(),
    ]
