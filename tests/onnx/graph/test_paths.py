from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from onnx import helper

from minorm.onnx.graph import paths


@pytest.mark.parametrize(
    ("name", "path"),
    [
        # PyTorch's older exporter: the last word of each module's path, and the numbers behind it
        ("/layer1/layer1.0/conv1/Conv", "layer1.0.conv1"),
        ("/features/features.1/conv/conv.0/conv.0.0/Conv", "features.1.conv.0.0"),
        ("/blocks.0/attn/q/MatMul", "blocks.0.attn.q"),  # a ModuleList is not called itself
        ("/stages.0/blocks.1/norm/LayerNormalization", "stages.0.blocks.1.norm"),
        ("/0/0.1/0.1.2/Conv", "0.1.2"),
        ("/layer1/layer10/Conv", "layer1.layer10"),  # no child of a Sequential
        ("/Flatten", ""),
        ("Conv_12", ""),
        ("", ""),
        # others
        ("model/conv1/Conv2D", "model.conv1"),
        ("StatefulPartitionedCall/model/conv1/Conv2D", "model.conv1"),
        ("layer1.0.conv1/Conv", "layer1.0.conv1"),
        # of no user
        ("//a///b/Conv", "a.b"),
        ("/" * 50, ""),
        ("/../__class__/Conv", "...__class__"),
        ("/" + "a/" * 5000, ""),
    ],
)
def test_names_of_nodes(name: str, path: str) -> None:
    assert paths.of_name(name) == path
    assert paths.of(helper.make_node("Conv", ["x", "w"], ["y"], name=name)) == path


@pytest.mark.parametrize(
    ("scopes", "path", "call"),
    [
        ("['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_3']", "layer1.0.conv1", "conv2d_3"),
        ("['', 'add']", "", "add"),
        ('["", "it\'s", "add"]', "it's", "add"),
        ("[]", "", ""),
        ("nonsense", "", ""),
        ("['', 'a', 'b'" + " " * 5000, "a", ""),  # too long to be read: the name counts
    ],
)
def test_metadata_of_the_newer_exporter(scopes: str, path: str, call: str) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="a/Conv")
    entry = node.metadata_props.add()
    entry.key, entry.value = paths.SCOPES, scopes
    assert (paths.of(node), paths.call(node)) == (path, call)


def test_a_module_that_is_called_again_is_the_same() -> None:
    assert paths.uncalled("body.0_1.norm_12") == "body.0.norm"
    assert paths.uncalled("conv2d.0") == "conv2d.0"


def test_the_module_of_a_tensor() -> None:
    assert paths.prefix("layer1.0.weight") == "layer1.0"
    assert paths.prefix("onnx::Conv_12") == ""
