from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn

onnx = pytest.importorskip("onnx")


def dims(value: Any) -> list[Any]:
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))


X = mn.ones(2, 1, 8, 8)


def test_the_file_is_the_model_that_is_returned(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    proto = mo.export(net(), X, path)
    assert onnx.load(path) == proto
    assert mo.export(net(), X, str(path), opset_version=9) == onnx.load(path)
    buffer = io.BytesIO()
    assert mo.export(net(), X, buffer).SerializeToString() == buffer.getvalue()
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_a_failed_export_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    with pytest.raises(mo.ExportError):
        mo.export(lambda x: x * x.sum().item(), X, path)
    assert path.read_bytes() == b"old"
    with pytest.raises(FileNotFoundError, match="export: the folder"):
        mo.export(net(), X, tmp_path / "nowhere" / "model.onnx")


def test_a_name_that_means_a_folder_is_refused_before_the_model_runs(tmp_path: Path) -> None:
    def never(x: mn.Tensor) -> mn.Tensor:
        pytest.fail("the model ran")

    (tmp_path / "there.onnx").write_bytes(b"old")
    (tmp_path / "ring").symlink_to("ring")
    for external in (None, True):
        with pytest.raises(OSError, match=r"^export: '.*there.onnx/' names a folder; expected a file name$"):
            mo.export(never, X, f"{tmp_path}/there.onnx/", external_data=external)
        with pytest.raises(OSError, match=r"^export: cannot write '.*ring': Too many levels of symbolic links$"):
            mo.export(never, X, tmp_path / "ring", external_data=external)
    assert (tmp_path / "there.onnx").read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ring", "there.onnx"]


def test_what_the_file_says_about_itself() -> None:
    model = net()
    model[0].freeze()
    proto = mo.export(model, X, None)
    assert (proto.producer_name, proto.producer_version) == ("minorm", mn.__version__)
    assert proto.graph.name == "Sequential"
    assert proto.opset_import[0].version == 17
    assert {p.key: p.value for p in proto.metadata_props} == {"minorm.frozen": '["0"]', "minorm.training": "false"}


def test_names_are_those_of_forward_and_the_batch_is_free() -> None:
    class Two(nn.Module):
        def forward(self, image: mn.Tensor, scale: float, mask: mn.Tensor) -> Any:
            return {"masked": image * mask * scale, "sum": image.sum()}

    proto = mo.export(Two(), (mn.ones(4, 3), 2.0, mn.ones(4, 1)), None)
    assert [(v.name, dims(v)) for v in proto.graph.input] == [("image", ["batch", 3]), ("mask", ["batch", 1])]
    assert [(v.name, dims(v)) for v in proto.graph.output] == [("masked", ["batch", 3]), ("sum", [])]


def test_names_can_be_given() -> None:
    proto = mo.export(net(), X, None, input_names=["image"], output_names=["logits"])
    assert proto.graph.input[0].name == "image"
    assert proto.graph.output[0].name == "logits"
    with pytest.raises(ValueError, match="input_names has 2 names; args has 1 Tensors"):
        mo.export(net(), X, None, input_names=["a", "b"])
    with pytest.raises(ValueError, match="output_names has 0 names; the model returns 1 Tensors"):
        mo.export(net(), X, None, output_names=[])
    with pytest.raises(mo.ExportError, match=r"the name '0.weight' is taken by a parameter"):
        mo.export(net(), X, None, input_names=["0.weight"])


def test_parameters_keep_their_keys_whatever_inputs_are_called(proved: Any) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = nn.Parameter(mn.ones(3))
            self.output = nn.Parameter(mn.ones(3))

        def forward(self, x: mn.Tensor) -> mn.Tensor:
            return x * self.x + self.output

    proto = proved(Net(), mn.ones(2, 3))
    assert [t.name for t in proto.graph.initializer] == ["x", "output"]
    assert (proto.graph.input[0].name, proto.graph.output[0].name) == ("x_1", "output_1")


def test_free_axes_can_be_chosen() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.ReLU())
    proto = mo.export(model, X, None, dynamic_axes={"x": {0: "n", 2: "h", -1: "w"}})
    assert dims(proto.graph.input[0]) == ["n", 1, "h", "w"]
    assert dims(proto.graph.output[0])[:2] == ["n", 4]
    assert all(isinstance(d, str) for d in dims(proto.graph.output[0])[2:])
    assert dims(mo.export(model, X, None, dynamic_axes={}).graph.input[0]) == [2, 1, 8, 8]
    listed = mo.export(model, X, None, dynamic_axes={"x": [0]})
    assert dims(listed.graph.output[0]) == ["x_axis_0", 4, 4, 4]
    # As in PyTorch, an output may be named too; what its axes follow is known without being told.
    told = mo.export(model, X, None, output_names=["y"], dynamic_axes={"x": {0: "n"}, "y": {0: "n"}})
    assert dims(told.graph.output[0]) == ["n", 4, 4, 4]


def test_wrong_free_axes() -> None:
    with pytest.raises(ValueError, match=r"dynamic_axes names 'z'; expected an input \(x\)"):
        mo.export(net(), X, None, dynamic_axes={"z": [0]})
    with pytest.raises(ValueError, match="names axis 4 of 'x', whose shape is"):
        mo.export(net(), X, None, dynamic_axes={"x": [4]})
    with pytest.raises(ValueError, match="dynamic axis 'n' has length 2 in one input, but length 3 in 'b'"):
        mo.export(
            lambda a, b: a.sum() + b.sum(), (mn.ones(2), mn.ones(3)), None, dynamic_axes={"a": {0: "n"}, "b": {0: "n"}}
        )


def test_wrong_opsets() -> None:
    for opset in (6, 99, True, "17", 17.0):
        with pytest.raises(ValueError, match=r"opset_version is .* expected an int from 7 to"):
            mo.export(net(), X, None, opset_version=opset)  # type: ignore[arg-type]


def test_a_model_must_be_callable() -> None:
    with pytest.raises(TypeError, match="export: the model returned NoneType; expected a Tensor, or a tuple, list"):
        mo.export(lambda _: None, mn.ones(2), None)
    with pytest.raises(TypeError, match=r"export: model is dict; expected an nn\.Module or a function"):
        mo.export(net().state_dict(), X, None)  # type: ignore[arg-type]


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.ReLU())
    model[2].eval()
    state = {key: value.array.copy() for key, value in model.state_dict().items()}
    mn.manual_seed(3)
    expected = mn.randn(2)
    mn.manual_seed(3)
    for training in (False, True):
        mo.export(model, mn.ones(2, 3), None, training=training)
    assert mn.randn(2).tolist() == expected.tolist()
    assert [m.training for m in model.modules()] == [True, True, True, False]
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(value.array, state[key])
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_a_plain_function_can_be_exported(proved: Any) -> None:
    proto = mo.export(lambda a, b: F.relu(a) + b, (mn.ones(2, 3), mn.ones(3)), None)
    assert [v.name for v in proto.graph.input] == ["a", "b"]
    assert dims(proto.graph.input[1]) == [3]


def test_verify_compares_with_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    mo.export(net(), X, None, verify=True)
    from minorm.onnx.graph import registry
    from minorm.onnx.operators.math import activation

    wrong = [registry.Writer(F.relu, None, (), lambda g, x: g.add("Neg", x))]
    monkeypatch.setitem(registry.WRITERS, F.relu, wrong)
    assert activation
    with pytest.raises(mo.VerifyError, match=r"with x \(2, 1, 8, 8\), output 'output' differs by .* of node '1/Neg' "):
        mo.export(net(), X, None, verify=True)


def test_importing_minorm_does_not_import_onnx() -> None:
    code = "import sys, minorm; assert 'onnx' not in sys.modules and 'minorm.onnx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_onnx_package_it_is_named() -> None:
    code = "import sys; sys.modules['onnx'] = None\nimport minorm.onnx"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    wanted = "ImportError: minorm.onnx needs the onnx package; install it with: pip install onnx onnxruntime"
    assert wanted in result.stderr


def test_metadata_is_written_and_comes_back(tmp_path: Path) -> None:
    """As onnx reads it, also of a loaded graph that is written back, verified or not, and at another opset."""
    model = nn.Sequential(nn.Linear(3, 2)).eval()
    said = {"classes": ["cat", "dög"], "preprocessing": {"mean": [0.5], "size": 8}, "author": "me"}
    mo.export(model, mn.ones(2, 3), tmp_path / "m.onnx", metadata=said, verify=True)
    stored = {entry.key: entry.value for entry in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert json.loads(stored["classes"]) == ["cat", "dög"]
    assert json.loads(stored["preprocessing"]) == said["preprocessing"]
    assert stored["author"] == "me"
    graph = mo.load(tmp_path / "m.onnx")
    again = mo.load(mo.export(graph, None, metadata={"author": "you"}, verify=True)).metadata
    assert again == {**graph.metadata, "author": "you"}
    assert json.loads(again["classes"]) == ["cat", "dög"]
    mo.convert(tmp_path / "m.onnx", tmp_path / "old.onnx", opset_version=13)
    assert mo.load(tmp_path / "old.onnx").metadata == graph.metadata


def test_metadata_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(3, 2)), mn.ones(2, 3)
    for said, words in (
        ({"classes": ["a", "b", "c"]}, "names 3 classes and the output has 2; expected one name for each class"),
        (
            {"minorm.training": "true"},
            "has the key 'minorm.training'; expected keys that are texts and do not begin with 'minorm.'",
        ),
        ({1: "a"}, "has the key 1; expected keys"),
        ({"a": {1, 2}}, "metadata has a set; expected a text, or a JSON value"),
    ):
        for source in (model, mo.load(mo.export(model, x))):
            with pytest.raises(ValueError, match=words):
                mo.export(source, x, tmp_path / "m.onnx", metadata=said)
    assert not (tmp_path / "m.onnx").exists()


def test_a_call_of_torch_onnx_export_is_taken_as_it_is_written(tmp_path: Path) -> None:
    """The words that old and new PyTorch have; the file is the one that onnxruntime runs at any batch size."""
    ort = pytest.importorskip("onnxruntime")
    mn.manual_seed(0)
    model = net()
    names: dict[str, Any] = {"input_names": ["images"], "output_names": ["scores"], "opset_version": 13}
    names["dynamic_axes"] = {"images": {0: "n"}, "scores": {0: "n"}}
    mo.export(
        model,
        (X,),
        f=str(tmp_path / "model.onnx"),
        **names,
        export_params=True,
        verbose=False,
        do_constant_folding=True,
        keep_initializers_as_inputs=False,
        dynamo=False,
        kwargs=None,
        dynamic_shapes=None,
        custom_opsets=None,
        autograd_inlining=True,
    )
    proto = onnx.load(tmp_path / "model.onnx")
    assert (proto.opset_import[0].version, dims(proto.graph.input[0])) == (13, ["n", 1, 8, 8])
    x = np.random.default_rng(0).standard_normal((5, 1, 8, 8), np.float32)
    (scores,) = ort.InferenceSession(tmp_path / "model.onnx").run(["scores"], {"images": x})
    np.testing.assert_allclose(scores, model(mn.tensor(x)).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"export_params": False},
            "export: export_params=False; expected True, or a call without export_params: the parameters",
        ),
        ({"dynamic_shapes": {"x": {0: "n"}}}, r'expected None, .*dynamic_axes=\{"x": \{0: "batch"\}\}'),
        ({"kwargs": {"y": X}}, r"expected None, or a call without kwargs: give the arguments in their order"),
        ({"keep_initializers_as_inputs": True}, "expected False, or a call without keep_initializers_as_inputs"),
    ],
)
def test_words_of_pytorchs_that_would_change_the_file(options: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        mo.export(net(), X, tmp_path / "model.onnx", **options)
    assert not list(tmp_path.iterdir())


def test_the_path_before_the_example(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"path a Tensor; expected the order export\(model, x, path"):
        mo.export(net(), str(tmp_path / "model.onnx"), X)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="export: there is no argument 'do_folding'"):
        mo.export(net(), X, do_folding=True)  # type: ignore[call-arg]
