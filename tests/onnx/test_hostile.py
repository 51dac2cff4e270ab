"""Files that are small and ask for much, or are built to never end: refused early, cheaply and with the cause.

Other hostile values are tested beside the code that reads them: tensors and files beside the model (test_tensors.py);
headers, names, cycles, attributes (test_validation.py), functions (test_flattening.py), what a run holds
(test_ledger.py), kinds of inputs (test_kinds.py), lengths and axes operator by operator (test_operator_versions.py),
foreign programs that crash (test_sandbox.py). test_fuzz.py looks for faults that no case here names."""

from __future__ import annotations

import functools
import sys
import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402

MB = 1 << 20
IMAGE = {"x": (np.float32, [1, 4, 4, 4])}
OPSETS = [h.make_opsetid("", 17), h.make_opsetid("f", 1)]


def refused(load: Callable[[], Any], message: str, bytes_at_most: int = 4 * MB, seconds: float = 2.0) -> None:
    """A LoadError that says why, before much was computed or allocated."""
    start = time.process_time()
    with pytest.raises(mo.LoadError, match=message):
        load()
    assert time.process_time() - start < seconds
    if not bytes_at_most:
        return
    tracemalloc.start()  # which makes it several times as slow
    try:
        with pytest.raises(mo.LoadError):
            load()
        assert tracemalloc.get_traced_memory()[1] < bytes_at_most
    finally:
        tracemalloc.stop()


# Size


def test_a_file_beyond_the_cap_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    with open(path, "wb") as file:
        file.truncate(3 << 30)  # a hole: it takes no space
    refused(lambda: mo.load(path), r"huge.onnx' takes 3221225472 bytes, more than max_bytes=2147483648")
    contents = bytes(2000)
    refused(lambda: mo.load(contents, max_bytes=1999), "the model takes 2000 bytes, more than max_bytes=1999")


def test_85_bytes_that_want_520_megabytes() -> None:
    shape = h.make_tensor("s", onnx.TensorProto.INT64, [1], [130_000_000])
    graph = h.make_graph(
        [h.make_node("ConstantOfShape", ["s"], ["y"])], "g", [], [h.make_empty_tensor_value_info("y")], [shape]
    )
    contents = h.make_model(graph, opset_imports=[h.make_opsetid("", 13)], ir_version=4).SerializeToString()
    assert len(contents) < 90
    refused(
        lambda: mo.load(contents, max_bytes=256 * MB), r"shape \(130000000,\) would take 520000000 bytes, more than"
    )


@pytest.mark.parametrize("operator", ["Expand", "Tile", "Pad", "Resize"])
def test_what_the_file_alone_computes_is_refused_while_it_is_loaded(operator: str, graph_of: Any) -> None:
    second = {
        "Expand": np.array([1 << 40, 2]),
        "Tile": np.array([1 << 40]),
        "Pad": np.array([0, 1 << 40]),
        "Resize": np.array([1e12], np.float32),
    }[operator]
    names = ["w", "", "n"] if operator == "Resize" else ["w", "n"]
    nodes = [h.make_node(operator, names, ["huge"]), h.make_node("Equal", ["huge", "huge"], ["y"])]
    proto = graph_of(nodes, {}, ["y"], {"w": np.ones(2, np.int32), "n": second}, opset=19)
    refused(lambda: mo.load(proto), "more than max_bytes")


@pytest.mark.parametrize("operator", ["Div", "Pow"])
def test_what_integers_take_on_the_way_counts(operator: str, graph_of: Any) -> None:
    """The quotient of 180 MB has a remainder as large beside it."""
    column, row = np.ones((4700, 1), np.int64), np.ones((1, 4700), np.int64)
    nodes = [h.make_node(operator, ["a", "b"], ["huge"]), h.make_node("ReduceMax", ["huge"], ["y"])]
    proto = graph_of(nodes, {}, ["y"], {"a": column, "b": row}, opset=17)
    refused(lambda: mo.load(proto, max_bytes=256 * MB), "more than max_bytes")


# Attributes


@pytest.mark.parametrize(
    ("operator", "attributes", "message"),
    [
        ("DepthToSpace", {"blocksize": 2**32}, "blocksize is 4294967296; expected at least 1 and at most 2147483647"),
        ("DepthToSpace", {"blocksize": 0}, "blocksize is 0"),
        ("SpaceToDepth", {"blocksize": -2}, "blocksize is -2"),
        ("GlobalLpPool", {"p": 0}, "p is 0; expected a number above 0"),
        ("MaxPool", {"kernel_shape": [0, 2]}, r"kernel_shape is \[0, 2\]"),
        ("MaxPool", {"kernel_shape": [2, 2], "strides": [0, 1]}, "strides is"),
        ("MaxPool", {"kernel_shape": [2, 2], "dilations": [1, -1]}, "dilations is"),
        ("AveragePool", {"kernel_shape": [2, 2], "pads": [0, 0, -1, 0]}, "pads is"),
        ("LRN", {"size": 0}, "size is 0; expected at least 1"),
        ("LRN", {"size": 2**40}, "size is 1099511627776"),
        ("LpNormalization", {"p": 3}, "p is 3; expected 1 or 2"),
    ],
)
def test_attributes_out_of_range(operator: str, attributes: dict[str, Any], message: str, graph_of: Any) -> None:
    proto = graph_of([h.make_node(operator, ["x"], ["y"], **attributes)], IMAGE, ["y"])
    refused(lambda: mo.load(proto), message)


@pytest.mark.parametrize("groups", [0, -1, 2**40])
def test_groups(groups: int, graph_of: Any) -> None:
    one = {"w": np.ones(4, np.float32), "k": np.ones((4, 4, 1, 1), np.float32)}
    norm = h.make_node("GroupNormalization", ["x", "w", "w"], ["y"], num_groups=groups)
    refused(lambda: mo.load(graph_of([norm], IMAGE, ["y"], one, opset=21)), f"num_groups is {groups}")
    for operator in ("Conv", "ConvTranspose"):
        node = h.make_node(operator, ["x", "k"], ["y"], group=groups)
        refused(lambda node=node: mo.load(graph_of([node], IMAGE, ["y"], one)), f"group is {groups}")


@pytest.mark.parametrize(
    ("operator", "attributes", "kernel", "message"),
    [
        ("Conv", {"pads": [10**6] * 4}, (4, 4, 1, 1), "would take"),
        ("Conv", {"pads": [10**7, 0, 10**7, 0]}, (4, 4, 1, 1), "would take"),
        ("ConvTranspose", {"strides": [2**30, 2**30]}, (4, 1, 1, 1), "would take"),
        ("ConvTranspose", {"dilations": [10**7, 1]}, (4, 1, 3, 3), "would take"),
        ("Conv", {"dilations": [2**30, 1]}, (4, 4, 3, 3), "conv2d"),
        ("Conv", {"pads": [250] * 4}, (1, 4, 300, 300), r"would take \d+ multiplications, more than max_bytes"),
    ],
)
def test_windows_that_ask_for_much(
    operator: str, attributes: dict[str, Any], kernel: tuple[int, ...], message: str, graph_of: Any
) -> None:
    node = h.make_node(operator, ["x", "k"], ["y"], **attributes)
    model = mo.load(graph_of([node], IMAGE, ["y"], {"k": np.ones(kernel, np.float32)}), max_bytes=256 * MB)
    start = time.process_time()
    with pytest.raises(ValueError, match=message):
        model(mn.ones(1, 4, 4, 4))
    assert time.process_time() - start < 1


@pytest.mark.parametrize("lengths", [[2**62, 2**62], [2**31, 2**31, 2**31], [-2, 4]])
def test_declared_lengths_allocate_nothing(lengths: list[int], graph_of: Any) -> None:
    proto = graph_of([h.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, lengths)}, ["y"])
    if min(lengths) < 0:
        refused(lambda: mo.load(proto), "input 'x' declares a length of -2")
        return
    model = mo.load(proto)
    with pytest.raises(ValueError, match=f"the graph declares \\({lengths[0]}"):
        model(mn.ones(2, 2))
    refused(
        lambda: mo.load(graph_of([h.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, [1] * 33)}, ["y"])),
        "input 'x' declares more than 32 axes",
    )


# Recursion and quadratic time


def field(number: int, contents: bytes) -> bytes:
    """A length-delimited field of protobuf."""
    return bytes([number << 3 | 2]) + varint(len(contents)) + contents


def varint(n: int) -> bytes:
    low, rest = n & 0x7F, n >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


@pytest.mark.parametrize("depth", [20, 60, 5000])
def test_branches_in_branches_in_branches(depth: int, graph_of: Any) -> None:
    """Past a hundred messages protobuf itself refuses; nothing here calls itself as deep as the file says."""
    sound = graph_of([h.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, [2])}, ["y"], {"k": np.array(True)})
    body = field(1, sound.graph.node[0].SerializeToString()) + field(12, field(1, b"y"))
    for _ in range(depth):
        branches = b"".join(
            field(5, field(1, name) + field(6, body) + bytes([20 << 3 | 0x80, 1, 5]))
            for name in (b"then_branch", b"else_branch")[: 1 if depth > 20 else 2]
        )
        if depth == 20:
            branches = field(5, field(1, b"then_branch") + field(6, body)) + field(5, field(1, b"else_branch"))
        body = field(1, field(1, b"k") + field(2, b"y") + field(4, b"If") + branches) + field(12, field(1, b"y"))
    contents = sound.SerializeToString() + field(7, body)
    refused(lambda: mo.load(contents), "no ONNX model, or a damaged one|lacks a branch|is computed twice", 64 * MB)


def test_functions_that_double(graph_of: Any) -> None:
    """40 functions of two calls each are 2^40 nodes; with long names far fewer are too many."""

    def bomb(name: str) -> Any:
        pairs = (("a", "c"), ("c", "b"))
        bodies = [[h.make_node(f"F{i}", [a], [b], name=name, domain="f") for a, b in pairs] for i in range(1, 41)]
        functions = [h.make_function("f", f"F{i}", ["a"], ["b"], body, OPSETS) for i, body in enumerate(bodies)]
        last = h.make_function("f", "F40", ["a"], ["b"], [h.make_node("Relu", ["a"], ["b"], name=name)], OPSETS)
        node = h.make_node("F0", ["x"], ["y"], domain="f")
        return graph_of([node], {"x": (np.float32, [2])}, ["y"], functions=[*functions, last], domains=["f"])

    refused(lambda: mo.load(bomb("")), "become more than", 0)
    refused(lambda: mo.load(bomb("n" * 10_000)), "names in the functions become longer than 16777216", 64 * MB)


def many(kind: str, n: int, graph_of: Any) -> Any:
    """A chain of n nodes, all of one name."""
    names = ["x", *(f"v{i}" for i in range(n - 1)), "y"]
    pairs = list(pairwise(names))
    weights, functions = {"w": np.ones(2, np.float32)}, []
    if kind == "heads":  # of a function: what it imports, its attributes and its inputs
        opsets = [*OPSETS, *(h.make_opsetid(f"d{i}", 1) for i in range(n))]
        formals, attributes = ["a", *(f"a{i}" for i in range(n))], [f"k{i}" for i in range(n)]
        body = [h.make_node("Relu", ["a"], ["b"])]
        functions = [h.make_function("f", "F", formals, ["b"], body, opsets, attributes)]
        nodes = [h.make_node("F", [a], [b], name="a", domain="f") for a, b in pairs]
    elif kind == "calls":
        functions = [h.make_function("f", "F", ["a"], ["b"], [h.make_node("Relu", ["a"], ["b"])], OPSETS)]
        nodes = [h.make_node("F", [a], [b], name="a", domain="f") for a, b in pairs]
    elif kind == "branches":
        branch = {
            a: h.make_graph([h.make_node("Relu", [a], ["o"])], "b", [], [h.make_empty_tensor_value_info("o")])
            for a, _ in pairs
        }
        nodes = [
            h.make_node("If", ["k"], [b], name="a", then_branch=branch[a], else_branch=branch[a]) for a, b in pairs
        ]
        weights["k"] = np.array(True)
    else:
        extra = ["w"] * 4 if kind == "BatchNormalization" else []
        nodes = [h.make_node(kind, [a, *extra], [b], name="a") for a, b in pairs]
    inputs = {"x": (np.float32, [1, 2, 2])}
    return graph_of(nodes, inputs, ["y"], weights, functions=functions, domains=["f"])


def outputs_of_one_name(graph_of: Any) -> Any:
    return graph_of([h.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, [2])}, ["y"] * 20_000)


def metadata_of_one_key(graph_of: Any) -> Any:
    proto = graph_of([h.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, [2])}, ["y"])
    proto.metadata_props.extend([onnx.StringStringEntryProto(key="minorm.frozen", value="a")] * 20_000)
    return proto


def concats_of_concats(graph_of: Any) -> Any:
    names = ["none", *(f"c{i}" for i in range(8))]
    nodes = [h.make_node("Concat", [a] * 60, [b], axis=0) for a, b in pairwise(names)]  # 60^8 ways down
    nodes += [h.make_node("Reshape", ["one", names[-1]], ["r"]), h.make_node("Add", ["x", "r"], ["y"])]
    held = {"none": np.zeros(0, np.int64), "one": np.ones((), np.float32)}
    return graph_of(nodes, {"x": (np.float32, [2])}, ["y"], held)


def weights_that_become_new_ones(graph_of: Any) -> Any:
    names = [f"w{i}" for i in range(3000)]
    nodes = [h.make_node("Identity", [name], [f"{name}.updated"]) for name in names]
    outputs = ["y", *(f"{name}.updated" for name in names)]
    held = dict.fromkeys(names, np.ones(1, np.float32))
    proto = graph_of([h.make_node("Relu", ["x"], ["y"]), *nodes], {"x": (np.float32, [2])}, outputs, held)
    proto.producer_name = "minorm"
    return proto


@pytest.mark.parametrize(
    "make", [outputs_of_one_name, metadata_of_one_key, concats_of_concats, weights_that_become_new_ones]
)
def test_what_is_looked_at_for_each_of_many_is_looked_at_once(make: Callable[[Any], Any], graph_of: Any) -> None:
    """With the square of the entries these would take minutes."""
    contents = make(graph_of).SerializeToString()
    start = time.process_time()
    model = mo.load(contents)
    model(mn.ones(2))
    assert time.process_time() - start < 4


def test_two_inputs_of_one_name_among_many(graph_of: Any) -> None:
    names = [f"x{i}" for i in range(20_000)]
    proto = graph_of([h.make_node("Relu", ["x0"], ["y"])], {name: (np.float32, [1]) for name in names}, ["y"])
    proto.graph.input.append(proto.graph.input[-1])
    refused(lambda: mo.load(proto), "two inputs of the graph are called 'x19999'", 0)


@pytest.mark.parametrize("kind", ["If", "Loop"])
def test_a_long_name_in_front_of_many(kind: str, graph_of: Any) -> None:
    """Values in a branch or a loop are named after it: 2000 times 100,000 characters."""
    names = ["x", *(f"v{i}" for i in range(2000))]
    nodes = [h.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    end = h.make_empty_tensor_value_info(names[-1])
    if kind == "If":
        body = h.make_graph(nodes, "b", [], [end])
        given: dict[str, Any] = {"then_branch": body, "else_branch": body}
        node = h.make_node("If", ["k"], ["y"], name="n" * 100_000, **given)
    else:
        entries = [h.make_empty_tensor_value_info(name) for name in ("i", "c", "v")]
        body = h.make_graph(nodes, "b", entries, [entries[1], end])
        node = h.make_node("Loop", ["n", "", "x"], ["y"], name="n" * 100_000, body=body)
    proto = graph_of([node], {"x": (np.float32, [2])}, ["y"], {"k": np.array(True), "n": np.array(1)})
    refused(lambda: mo.load(proto), "names in branches and loops become longer than 16777216", 64 * MB)


def test_an_attribute_that_a_function_reads_often_is_there_once(graph_of: Any) -> None:
    constants = [h.make_node("Constant", [], [f"c{i}"]) for i in range(300)]
    for node in constants:
        node.attribute.add(name="value_ints", ref_attr_name="numbers", type=onnx.AttributeProto.INTS)
    nodes = [*constants, h.make_node("Sum", ["a", *(node.output[0] for node in constants)], ["b"])]
    function = h.make_function("f", "F", ["a"], ["b"], nodes, OPSETS, ["numbers"])
    call = h.make_node("F", ["x"], ["y"], domain="f", numbers=[300] * 3000)
    proto = graph_of([call], {"x": (np.float32, [3000])}, ["y"], functions=[function], domains=["f"])
    tracemalloc.start()
    try:
        mo.load(proto)
        assert tracemalloc.get_traced_memory()[1] < 24 * MB  # 300 lists of 3000 numbers are 32
    finally:
        tracemalloc.stop()


def test_constants_that_a_small_file_makes_large_are_left_to_the_run(graph_of: Any) -> None:
    nodes = [h.make_node("ConstantOfShape", ["n"], ["zeros"]), h.make_node("ReduceMax", ["zeros"], ["m"], keepdims=0)]
    proto = graph_of([*nodes, h.make_node("Add", ["x", "m"], ["y"])], {"x": (np.float32, [2])}, ["y"],
                     {"n": np.array([25_000_000])})  # fmt: skip
    tracemalloc.start()
    try:
        model = mo.load(proto)
        assert tracemalloc.get_traced_memory()[1] < 16 * MB
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(model(mn.ones(2)).array, np.ones(2, np.float32))
    nodes[0] = h.make_node(
        "ConstantOfShape", ["n"], ["zeros"], value=h.make_tensor("v", onnx.TensorProto.FLOAT, [1], [2])
    )
    small = graph_of([*nodes, h.make_node("Add", ["x", "m"], ["y"])], {"x": (np.float32, [2])}, ["y"],
                     {"n": np.array([1000])})  # fmt: skip
    np.testing.assert_array_equal(mo.load(small)(mn.ones(2)).array, np.full(2, 3, np.float32))


@pytest.mark.parametrize("kind", ["Relu", "Dropout", "BatchNormalization", "calls", "heads", "branches"])
def test_the_work_of_loading_grows_with_the_file(kind: str, graph_of: Any) -> None:
    def lines(n: int) -> int:
        """How many lines of Python run."""
        contents = many(kind, n, graph_of).SerializeToString()
        count = 0

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal count
            count += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            mo.load(contents)
        finally:
            sys.settrace(before)
        return count

    lines(10)  # what only the first model needs
    assert lines(800) < 10 * lines(100)  # 8 where it is linear, 64 where quadratic


# The onnx package


def test_what_crashes_shape_inference_is_read(graph_of: Any) -> None:
    """An axis of 2^31 ends the process that runs shape inference of onnx 1.23.2 on it; load asks no confirmation."""
    node = h.make_node("LayerNormalization", ["x", "w"], ["y", "mean", "deviation"], axis=2**31)
    proto = graph_of([node], IMAGE, ["y", "mean", "deviation"], {"w": np.ones(4, np.float32)})
    with pytest.raises(ValueError, match=r"dim=2147483648 is out of range for shape \(1, 4, 4, 4\)"):
        mo.load(proto)(mn.ones(1, 4, 4, 4))


# Names


@pytest.mark.parametrize("domain", ["", "\x1b[31m\nd"])
def test_names_of_operators_cannot_steer_a_terminal(domain: str, graph_of: Any) -> None:
    named = h.make_node("\x1b[31m\nRelu", ["x"], ["y"], name="\x1b[31m\nn", domain=domain)
    proto = graph_of([named], IMAGE, ["y"], domains=[domain] if domain else [])
    uses: list[Callable[[Any], Any]] = [mo.load, functools.partial(mo.convert, opset_version=7)]
    for use in uses[: 1 if domain else 2]:  # nodes of other domains are copied
        with pytest.raises(ValueError, match=r"\\x1b\[31m\\n") as caught:
            use(proto)
        assert all(line.isprintable() for line in str(caught.value).split("\n"))
        assert "\nRelu" not in str(caught.value)
