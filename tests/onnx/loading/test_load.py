from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn, optim

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.checking.inspection import inspect  # noqa: E402

FLOAT = np.float32


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(FLOAT)


# Sources


def test_path_bytes_and_proto_give_the_same(graph_of: Any, tmp_path: Path) -> None:
    proto = graph_of([h.make_node("Add", ["x", "b"], ["y"])], {"x": (FLOAT, [2])}, ["y"], {"b": numbers(2)})
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    x = mn.ones(2)
    for source in (proto, path, str(path), path.read_bytes(), bytearray(path.read_bytes())):
        np.testing.assert_array_equal(mo.load(source)(x).array, 1 + numbers(2))


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="source is int; expected a path, bytes"):
        mo.load(3)
    with pytest.raises(FileNotFoundError, match=r"^load: there is no file '.*absent.onnx'$"):
        mo.load(tmp_path / "absent.onnx")
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path, "folder"), (tmp_path / "pipe", "pipe"), ("/dev/zero", "device")):
        with pytest.raises(mo.LoadError, match=f"load: '{path}' is a {kind}; expected a regular file"):
            mo.load(path)
    with pytest.raises(mo.LoadError, match="no ONNX model, or a damaged one"):
        mo.load(b"\xff\xff\xff\xff")
    with pytest.raises(mo.LoadError, match="ir_version is 0; expected 1 to"):
        mo.load(b"")


@pytest.mark.parametrize("max_bytes", [0, -1, 1.5, None, True])
def test_max_bytes_is_a_number_of_bytes(max_bytes: Any) -> None:
    with pytest.raises(ValueError, match=r"max_bytes is .*; expected a number of bytes"):
        mo.load(b"", max_bytes=max_bytes)


# Parameters, buffers, constants


def test_a_parameter_may_have_any_name(graph_of: Any) -> None:
    names = ["layer1.0/weight:0", "a.b.c", "a.b", "", "training", "forward", "x y", ".", "..", "T", "uses", "größe"]
    initializers = {name: numbers(1) for name in names if name}
    nodes, value = [], "x"
    for i, name in enumerate(initializers):
        nodes.append(h.make_node("Add", [value, name], [f"v{i}"]))
        value = f"v{i}"
    model = mo.load(graph_of(nodes, {"x": (FLOAT, [1])}, [value], initializers), trainable="*")
    assert dict(model.named_parameters()).keys() == initializers.keys()
    assert model.state_dict().keys() == initializers.keys()
    model.load_state_dict({name: np.zeros(1, FLOAT) for name in initializers})
    assert model(mn.ones(1)).item() == 1
    assert model.train().training
    outer = nn.Sequential(model, nn.Linear(1, 1))
    assert "0.layer1.0/weight:0" in outer.state_dict()
    outer(mn.ones(1)).sum().backward()
    assert all(p.grad is not None for p in outer.parameters())


def test_gradient_passes_through_what_lies_between_and_fixed_operands_are_constants(graph_of: Any) -> None:
    model = mo.load(
        graph_of(
            [
                h.make_node("Reshape", ["w", "shape"], ["flat"]),
                h.make_node("Identity", ["flat"], ["same"]),
                h.make_node("Add", ["x", "same"], ["y"]),
                h.make_node("Dropout", ["y", "ratio"], ["z"]),
            ],
            {"x": (FLOAT, ["n", 4])},
            ["z"],
            {"w": numbers(2, 2), "shape": np.array([4]), "ratio": FLOAT(0.5), "unused": numbers(3)},
        )
    )
    assert list(model.state_dict()) == ["w"]
    model(mn.ones(3, 4)).sum().backward()
    np.testing.assert_array_equal(next(model.parameters()).grad.array, np.full((2, 2), 3))


def test_a_loaded_graph_learns(graph_of: Any) -> None:
    w, b = numbers(3, 2, 1, 1), numbers(3, 1, 1)
    nodes = [h.make_node("Conv", ["x", "w"], ["c"]), h.make_node("Add", ["c", "b"], ["y"])]
    model = mo.load(graph_of(nodes, {"x": (FLOAT, ["n", 2, None, None])}, ["y"], {"w": w, "b": b}))
    x, target = mn.randn(5, 2, 4, 4), mn.randn(5, 3, 4, 4)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        loss = ((model(x) - target) * (model(x) - target)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
    assert (dict(model.named_parameters())["w"].array != w).all()


def test_places_of_dotted_names_can_be_frozen(graph_of: Any) -> None:
    nodes = [h.make_node("Conv", ["x", "net.0.weight", "net.0.bias"], ["c"]), h.make_node("Add", ["c", "b"], ["y"])]
    initializers = {"net.0.weight": numbers(3, 2, 1, 1), "net.0.bias": numbers(3), "b": numbers(3, 1, 1)}
    model = mo.load(graph_of(nodes, {"x": (FLOAT, ["n", 2, 4, 4])}, ["y"], initializers))
    model.get_submodule("net").freeze()
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["b"]
    model.get_submodule("net.0").unfreeze()
    assert all(p.requires_grad for p in model.parameters())


def test_initializers_may_be_inputs_too_as_before_ir_version_4(graph_of: Any) -> None:
    inputs = {"b": (FLOAT, [2]), "x": (FLOAT, [2])}
    proto = graph_of([h.make_node("Add", ["x", "b"], ["y"])], inputs, ["y"], {"b": numbers(2)}, 7, ir_version=3)
    model = mo.load(proto)
    assert model.input_names == ["x"]
    np.testing.assert_array_equal(model(mn.zeros(2)).array, numbers(2))


def test_frozen_names_are_restored_from_our_files_alone(graph_of: Any) -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Dropout(0.5), nn.Conv2d(2, 2, 1))
    net[0].freeze()
    proto = mo.export(net, mn.ones(1, 1, 3, 3), training=True)
    model = mo.load(proto)
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["0.weight", "0.bias"]
    again = mo.load(mo.export(model, mn.ones(1, 1, 3, 3), training=True))
    assert [name for name, p in again.named_parameters() if not p.requires_grad] == ["0.weight", "0.bias"]
    proto.producer_name = "another"
    assert all(p.requires_grad for p in mo.load(proto).parameters())
    proto.producer_name = "minorm"
    for bad in ("{", "3", "[3]", "[" * 100000):
        h.set_model_props(proto, {"minorm.frozen": bad})
        with pytest.raises(mo.LoadError, match=r"metadata minorm\.frozen is"):
            mo.load(proto)


# Calling it


def test_inputs_are_checked(graph_of: Any) -> None:
    inputs = {"x": (FLOAT, ["n", 2]), "k": (np.int64, [])}
    nodes = [h.make_node("Identity", ["x"], ["y"]), h.make_node("Identity", ["k"], ["j"])]
    model = mo.load(graph_of(nodes, inputs, ["y", "j"]))
    x, k = mn.ones(3, 2), mn.tensor(4)
    y, j = model(x, k)
    assert (y.shape, j.item()) == ((3, 2), 4)
    assert model(x.array, k.array)[0].shape == (3, 2)
    with pytest.raises(TypeError, match=r"the graph takes 2 inputs \(x, k\); got 1"):
        model(x)
    with pytest.raises(TypeError, match="input 'x' is float64; the graph declares float32; convert it"):
        model(x.double(), k)
    with pytest.raises(
        ValueError, match=r"input 'x' has shape \(2, 3\); .* declares \(n, 2\): axis 1 has length 2, not 3"
    ):
        model(mn.ones(2, 3), k)
    with pytest.raises(ValueError, match=r"input 'x' has shape \(2,\); the graph declares \(n, 2\): 2 axes, not 1"):
        model(mn.ones(2), k)
    with pytest.raises(TypeError, match="input 'k' is int; expected a Tensor"):
        model(x, 3)


def test_the_graph_can_be_cut_at_any_value(graph_of: Any) -> None:
    nodes = [
        h.make_node("Add", ["x", "w1"], ["h"]),
        h.make_node("Relu", ["h"], ["r"]),
        h.make_node("Add", ["r", "w2"], ["s"]),
        h.make_node("Add", ["s", "labels"], ["loss"]),
        h.make_node("Nonsense", ["loss"], ["never"], domain="strange"),
    ]
    inputs = {"x": (FLOAT, [2]), "labels": (FLOAT, [2])}
    proto = graph_of(nodes, inputs, ["loss"], {"w1": numbers(2), "w2": numbers(2)}, domains=["strange"])
    assert mo.load(proto).input_names == ["x", "labels"]
    model = mo.load(proto, outputs=["r", "h"])
    assert (model.input_names, list(model.state_dict())) == (["x"], ["w1"])
    r, hidden = model(mn.ones(2))
    np.testing.assert_array_equal(hidden.array, 1 + numbers(2))
    np.testing.assert_array_equal(r.array, np.maximum(hidden.array, 0))
    head = nn.Sequential(mo.load(proto, outputs=["r"]), nn.Linear(2, 3))
    assert head(mn.ones(2)).shape == (3,)
    assert mo.load(proto, outputs=["w1"])().shape == (2,)
    with pytest.raises(mo.LoadError, match="outputs asks for 'nothing', which no node computes; `minorm check` lists"):
        mo.load(proto, outputs=["nothing"])
    with pytest.raises(mo.LoadError, match="outputs asks for 'w11', which no node computes; did you mean 'w1'"):
        mo.load(proto, outputs=["h", "w11"])
    with pytest.raises(TypeError, match="outputs is 'r'; expected a list"):
        mo.load(proto, outputs="r")


def test_values_are_dropped_after_their_last_use(graph_of: Any) -> None:
    import gc
    import weakref

    nodes = [h.make_node("Add", [f"v{i}", "one"], [f"v{i + 1}"]) for i in range(50)]
    model = mo.load(graph_of(nodes, {"v0": (FLOAT, [None])}, ["v50"], {"one": FLOAT(1)}))
    alive: list[int] = []
    seen: list[Any] = []
    for step in model._steps:
        inner = step.operation

        def watched(*arguments: Any, inner: Any = inner) -> Any:
            result = inner(*arguments)
            seen.append(weakref.ref(result))
            alive.append(sum(reference() is not None for reference in seen))
            return result

        step.operation = watched
    with mn.no_grad():
        assert model(mn.zeros(3)).array[0] == 50
    gc.collect()
    assert max(alive) <= 3


def test_an_error_while_running_names_the_node(graph_of: Any) -> None:
    nodes = [h.make_node("Add", ["x", "b"], ["y"], name="sum")]
    model = mo.load(graph_of(nodes, {"x": (FLOAT, None)}, ["y"], {"b": numbers(2)}))
    with pytest.raises(ValueError, match=r"Add \(since version 14, opset 17\), node 'sum': .*shape mismatch"):
        model(mn.ones(3))


# Constants and shapes


def test_what_depends_on_constants_alone_is_computed_once(graph_of: Any) -> None:
    nodes = [
        h.make_node("Constant", [], ["two"], value_ints=[1, 2]),
        h.make_node("Add", ["two", "one"], ["shape"]),
        h.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    model = mo.load(graph_of(nodes, {"x": (FLOAT, [6])}, ["y"], {"one": np.array([1, 1])}))
    assert len(model._steps) == 1
    assert model(mn.ones(6)).shape == (2, 3)


def test_names_survive_going_out_and_in_again(graph_of: Any) -> None:
    nodes = [
        h.make_node("Conv", ["image", "c/w", "c/b"], ["c"]),
        h.make_node("Relu", ["c"], ["r"]),
        h.make_node("Reshape", ["r", "s"], ["f"]),
        h.make_node("Add", ["f", "8"], ["logits"]),
    ]
    initializers = {"c/w": numbers(3, 2, 2, 2), "c/b": numbers(3), "8": numbers(12), "s": np.array([0, -1])}
    model = mo.load(graph_of(nodes, {"image": (FLOAT, ["n", 2, 3, 3])}, ["logits", "r"], initializers))
    x = mn.randn(4, 2, 3, 3)
    again = mo.load(mo.export(model, x))
    assert (again.input_names, again.output_names) == (["image"], ["logits", "r"])
    assert list(again.state_dict()) == list(model.state_dict()) == ["c/w", "c/b", "8"]
    for batch in (x, mn.randn(7, 2, 3, 3)):
        for got, want in zip(again(batch), model(batch), strict=True):
            np.testing.assert_array_equal(got.array, want.array)


# What cannot be imported


def test_one_error_lists_every_node_that_cannot_be_imported(graph_of: Any) -> None:
    entries = [h.make_tensor_value_info(name, kind, []) for name, kind in (("i", 7), ("c", 9))]
    body = h.make_graph(
        [h.make_node("Identity", ["c"], ["again"])], "body", entries, [h.make_empty_tensor_value_info("again")]
    )
    nodes = [
        h.make_node("StringNormalizer", ["x"], ["a"], name="strings"),
        h.make_node("Frobnicate", ["a"], ["b"]),
        h.make_node("Thing", ["b"], ["c"], domain="com.example", name="thing"),
        h.make_node("Relu", ["x"], ["d"], body=body),
        h.make_node("Relu", ["c"], ["e"]),
        h.make_node("Add", ["e", "d"], ["y"]),
    ]
    with pytest.raises(mo.LoadError) as caught:
        mo.load(graph_of(nodes, {"x": (FLOAT, [2]), "k": (bool, [])}, ["y"], domains=["com.example"]))
    lines = str(caught.value).splitlines()
    assert lines[0] == "load: minorm does not run 4 of 6 nodes:"
    assert lines[1].startswith("  StringNormalizer (since version 10, opset 17), node 'strings': ")
    assert lines[2].startswith("  Frobnicate (opset 17), the node that computes 'b': ")
    assert lines[3].startswith("  com.example.Thing (opset 1), node 'thing': domain 'com.example' is not ONNX's own")
    assert lines[4].startswith("  Relu (since version 14, opset 17), the node that computes 'd': it contains")
    assert len(lines) == 5


def test_a_declared_length_of_minus_one_is_a_free_axis(graph_of: Any, tmp_path: Path) -> None:
    """Paddle2ONNX 0.x and others write it so, and onnxruntime reads it so."""
    ort = pytest.importorskip("onnxruntime")
    nodes = [h.make_node("Concat", ["x", "z"], ["c"], axis=0), h.make_node("Relu", ["c"], ["y"])]
    proto = graph_of(nodes, {"x": (FLOAT, [1, 3]), "z": (FLOAT, [2, 3])}, ["y"], opset=11)
    proto.graph.value_info.append(h.make_tensor_value_info("c", 1, [1, 3]))
    proto.graph.output[0].CopyFrom(h.make_tensor_value_info("y", 1, [1, 3]))
    for entry in (*proto.graph.input, *proto.graph.value_info, *proto.graph.output):
        entry.type.tensor_type.shape.dim[0].dim_value = -1
    x, z = (np.arange(-6, 3 * n - 6, dtype=FLOAT).reshape(n, 3) for n in (5, 4))
    want = np.maximum(np.concatenate([x, z]), 0)
    model = mo.load(proto)
    assert [entry.shape for entry in model.inputs] == [("?", 3), ("?", 3)]
    np.testing.assert_array_equal(model(mn.Tensor(x), mn.Tensor(z)).array, want)
    path = str(tmp_path / "model.onnx")
    onnx.save(proto, path)
    assert inspect(path).facts["inputs"] == ["x: float32 [?, 3]", "z: float32 [?, 3]"]
    written = mo.export(model, None)
    for new in (
        written,
        mo.convert(proto, opset_version=17),
        mo.convert(proto, opset_version=13, shapes={"x": (5, 3), "z": (4, 3)}),
    ):
        session = ort.InferenceSession(new.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, {"x": x, "z": z})[0], want)
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value == -1  # the caller's own


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("map", "input 'x' is a map_type; minorm reads tensors, and sequences of them"),
        ("string", "input 'x' is STRING; minorm reads bool"),
        ("nothing", "input 'x' is a value without type"),
        ("negative", "input 'x' declares a length of -3"),
        ("unknown", "input 'x' is element type 99, which ONNX does not define"),
    ],
)
def test_inputs_that_are_no_tensors_are_refused(kind: str, message: str, graph_of: Any) -> None:
    proto = graph_of([h.make_node("Identity", ["x"], ["y"])], {"x": (FLOAT, [1])}, ["y"])
    entry = proto.graph.input[0]
    if kind == "map":
        entry.type.map_type.key_type = 7
    elif kind == "nothing":
        entry.ClearField("type")
    elif kind == "negative":
        entry.type.tensor_type.shape.dim[0].dim_value = -3
    else:
        entry.type.tensor_type.elem_type = 8 if kind == "string" else 99
    with pytest.raises(mo.LoadError, match=message):
        mo.load(proto)
