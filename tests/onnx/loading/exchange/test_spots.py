"""Names that lead to nodes: modules, nodes, values and tensors; what they read and give; names that are wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.graph.errors import LoadError  # noqa: E402
from minorm.onnx.loading.exchange.replacing import LINE, spots_of  # noqa: E402
from tests.onnx.loading.exchange.nets import FLOAT, classifier, drawn, plain  # noqa: E402


def found(proto: Any, name: str) -> tuple[list[str], list[str], str, str]:
    """The names of the nodes, what they read and give, and the path."""
    spots = spots_of(mo.load(proto))
    part = spots.find(name, "replace", LINE)
    return [spots.spots[place].name for place in part.places], part.inputs, part.output, part.path


@pytest.mark.parametrize("name", ["fc", "/fc/Gemm", "y", "fc.weight", "fc.bias", "/fc"])
def test_every_name_of_the_head_leads_to_it(name: str, graph_of: Any) -> None:
    assert found(classifier(graph_of), name) == (["/fc/Gemm"], ["/Flatten_output_0"], "y", "fc")


def test_a_module_is_all_nodes_of_it_and_below(graph_of: Any) -> None:
    nodes = [
        h.make_node("Gemm", ["x", "head.0.weight"], ["/head/head.0/Gemm_output_0"], name="/head/head.0/Gemm"),
        h.make_node("Relu", ["/head/head.0/Gemm_output_0"], ["/head/head.1/Relu_output_0"], name="/head/head.1/Relu"),
        h.make_node("Gemm", ["/head/head.1/Relu_output_0", "head.2.weight"], ["y"], name="/head/head.2/Gemm"),
    ]
    proto = graph_of(
        nodes, {"x": (FLOAT, ["n", 3])}, ["y"], {"head.0.weight": drawn(3, 4), "head.2.weight": drawn(4, 2)}
    )
    assert found(proto, "head")[:3] == ([node.name for node in nodes], ["x"], "y")
    assert found(proto, "head.1")[:3] == (["/head/head.1/Relu"], [nodes[0].output[0]], nodes[1].output[0])


@pytest.mark.parametrize("name", ["MatMul.1", "Add.1", "t3", "t4", "31", "32"])
def test_a_product_and_its_bias_are_one_layer(name: str, graph_of: Any) -> None:
    assert found(plain(graph_of), name)[:3] == (["MatMul.1", "Add.1"], ["t2"], "t4")


def test_names_with_dots_are_modules_without_any_in_the_nodes(graph_of: Any) -> None:
    assert found(plain(graph_of), "first") == (["MatMul.0", "Add.0"], ["x"], "t1", "first")


def test_a_sum_that_is_no_bias_stands_alone(graph_of: Any) -> None:
    nodes = [
        h.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        h.make_node("Add", ["a", "x"], ["b"], name="residual"),
        h.make_node("Relu", ["b"], ["y"], name="relu"),
    ]
    proto = graph_of(nodes, {"x": (FLOAT, ["n", 3])}, ["y"], {"w": drawn(3, 3)})
    assert found(proto, "residual")[0] == ["residual"]
    assert found(proto, "product")[0] == ["product"]


def test_lengths_and_prepared_weights_are_no_inputs(graph_of: Any) -> None:
    nodes = [
        h.make_node("Shape", ["x"], ["shape"], name="/Shape"),
        h.make_node("Relu", ["x"], ["r"], name="/Relu"),
        h.make_node("Transpose", ["w"], ["/head/t"], name="/head/Transpose", perm=[1, 0]),
        h.make_node("Reshape", ["r", "shape"], ["/head/r"], name="/head/Reshape"),
        h.make_node("MatMul", ["/head/r", "/head/t"], ["y"], name="/head/MatMul"),
    ]
    proto = graph_of(nodes, {"x": (FLOAT, ["n", 3])}, ["y"], {"w": drawn(2, 3)})
    nodes_, inputs, output, _ = found(proto, "head")
    assert (inputs, output) == (["r"], "y")
    assert "/head/MatMul" in nodes_


def test_a_tied_weight_belongs_to_the_module_that_computes(graph_of: Any) -> None:
    nodes = [
        h.make_node("Gather", ["embedding.weight", "x"], ["e"], name="/embedding/Gather"),
        h.make_node("Transpose", ["embedding.weight"], ["t"], name="/decoder/Transpose", perm=[1, 0]),
        h.make_node("MatMul", ["e", "t"], ["y"], name="/decoder/MatMul"),
    ]
    proto = graph_of(nodes, {"x": ("int64", ["n"])}, ["y"], {"embedding.weight": drawn(9, 4)})
    assert found(proto, "decoder")[:3] == (["/decoder/MatMul"], ["e"], "y")
    assert found(proto, "embedding")[:3] == (["/embedding/Gather"], ["x"], "e")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fcc", "did you mean 'fc'? model.replace('fc', layer)"),
        ("backbone.fc", "did you mean 'fc'? model.replace('fc', layer)"),
        ("/fc/Gem", "did you mean '/fc/Gemm'"),
        ("zzz", "the last ones are 'bn', 'pool', 'fc': model.replace('fc', layer)"),
    ],
)
def test_an_unknown_name_gets_the_line_to_write(name: str, said: str, graph_of: Any) -> None:
    with pytest.raises(ValueError, match=r"^replace: no node, value, tensor or module") as error:
        found(classifier(graph_of), name)
    assert said in str(error.value)


def test_several_results_are_named(graph_of: Any) -> None:
    nodes = [
        h.make_node("Relu", ["x"], ["/block/a"], name="/block/Relu"),
        h.make_node("Sigmoid", ["/block/a"], ["/block/b"], name="/block/Sigmoid"),
        h.make_node("Add", ["/block/a", "/block/b"], ["y"], name="/Add"),
    ]
    with pytest.raises(
        ValueError, match=re.escape("'block' gives 2 values that the rest of the graph reads ('/block/")
    ):
        found(graph_of(nodes, {"x": (FLOAT, ["n", 3])}, ["y"]), "block")


def test_what_reads_tensors_alone_is_no_layer(graph_of: Any) -> None:
    nodes = [
        h.make_node("Transpose", ["w"], ["t"], name="/turn/Transpose", perm=[1, 0]),
        h.make_node("MatMul", ["x", "t"], ["y"], name="product"),
    ]
    proto = graph_of(nodes, {"x": (FLOAT, ["n", 3])}, ["y"], {"w": drawn(2, 3)})
    for name in ("turn", "/turn/Transpose", "t"):
        with pytest.raises(ValueError, match=rf"replace: '{name}' reads only tensors of the file"):
            found(proto, name)
    with pytest.raises(TypeError, match=r"replace: the name is 3; expected a str: model.replace\('fc', layer\)"):
        found(proto, 3)  # type: ignore[arg-type]


# load(path, before=...)


@pytest.mark.parametrize("name", ["fc", "/fc/Gemm", "y", "fc.bias"])
def test_a_file_up_to_a_layer(name: str, graph_of: Any) -> None:
    model = mo.load(classifier(graph_of), before=name)
    assert model.output_names == ["/Flatten_output_0"]
    assert sorted(dict(model.named_parameters())) == ["bn.bias", "bn.weight", "conv.weight"]
    again = mo.load(mo.export(model, None))
    assert again.output_names == ["/Flatten_output_0"]


def test_a_file_up_to_what_minorm_does_not_have(graph_of: Any) -> None:
    proto = classifier(graph_of, domains=["acme"])
    proto.graph.node[-1].domain = "acme"
    assert mo.load(proto, before="fc").output_names == ["/Flatten_output_0"]


def test_a_cut_that_cannot_be(graph_of: Any) -> None:
    proto = classifier(graph_of)
    with pytest.raises(LoadError, match=r"load: before='conv' reads the input 'x' of the graph"):
        mo.load(proto, before="conv")
    with pytest.raises(LoadError, match=r"load: no node.*did you mean 'fc'\? load\(path, before='fc'\)"):
        mo.load(proto, before="fcc")
    with pytest.raises(ValueError, match=r"load: before='fc' and outputs=\['y'\]; expected only one"):
        mo.load(proto, outputs=["y"], before="fc")
