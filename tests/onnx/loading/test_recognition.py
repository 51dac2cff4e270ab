"""Norms that a file writes in other operators, as the layers that they become: places, training, writing back."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F

onnx = pytest.importorskip("onnx")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.onnx.operators.norm.recognised import GroupNorm, LayerNorm, RMSNorm  # noqa: E402
from minorm.tensor.tensor import Tensor  # noqa: E402
from tests.onnx.loading import norms  # noqa: E402

KINDS = {"GroupNorm": GroupNorm, "LayerNorm": LayerNorm, "RMSNorm": RMSNorm}


def layers(model: Any) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, tuple(KINDS.values()))]


def test_what_is_asked_for_in_between_keeps_the_nodes(rng: Any) -> None:
    _, proto, _, [shape, *_] = norms.WAYS["layer, Div, Pow"]()
    names = [name for node in proto.graph.node for name in node.output if node.op_type != "Constant"]
    assert len(names) == 9
    for name in names[:-3]:  # up to the quotient, which is the norm without weights
        assert not layers(mo.load(proto, outputs=[name, "y"])), name
    assert [layer.weight for layer in layers(mo.load(proto, outputs=[names[-3], "y"]))] == [None]
    cut = mo.load(proto, outputs=["scaled"])  # the norm without its bias
    [layer] = layers(cut)
    assert layer.bias is None
    x = Tensor(rng.standard_normal(shape).astype(np.float32))
    whole = mo.load(proto)
    np.testing.assert_allclose((cut(x) + whole.get_submodule("norm").bias).array, whole(x).array, rtol=1e-6, atol=1e-6)


def test_a_tensor_that_the_caller_wants_to_train_is_no_fixed_number() -> None:
    _, proto, _, _ = norms.WAYS["layer, Div, Pow"]()
    proto.graph.node.remove(next(node for node in proto.graph.node if "eps" in node.output))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1e-5, np.float32), "eps"))
    assert len(layers(mo.load(proto))) == 1
    assert "eps" not in dict(mo.load(proto).named_parameters())
    model = mo.load(proto, trainable=["eps"])
    assert not layers(model)
    assert list(dict(model.named_parameters())) == ["eps"]


def test_a_place_is_frozen_trained_copied_and_converted_as_any_other(rng: Any) -> None:
    _, proto, _, [shape, *_] = norms.WAYS["group, instances"]()
    model = mo.load(proto)
    x = Tensor(rng.standard_normal(shape).astype(np.float32))
    place = model.get_submodule("norm")
    assert repr(place) == "GroupNorm(num_groups=2, eps=1e-05)"
    assert "GroupNorm(num_groups=2, eps=1e-05)" in repr(model)
    assert [p.shape for p in (place.weight, place.bias)] == [(6,), (6,)]
    y = model(x)
    np.testing.assert_array_equal(copy.deepcopy(model)(x).array, y.array)
    np.testing.assert_allclose(model.double()(x.to(mn.float64)).array, y.array, rtol=1e-4, atol=1e-5)
    model.float().requires_grad_()
    place.requires_grad_(False)
    assert not any(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("name", ["group, instances", "layer, Div, Pow", "rms, Reciprocal"])
def test_written_back_it_keeps_the_nodes_of_its_file(name: str, rng: Any) -> None:
    _, proto, _, [shape, *_] = norms.WAYS[name]()
    model = mo.load(proto)
    x = Tensor(rng.standard_normal(shape).astype(np.float32))
    optimizer = mn.optim.SGD(model.parameters(), lr=0.1)
    (model(x) ** 2).sum().backward()
    optimizer.step()
    for cut in (None, ["y"]):
        source = model if cut is None else mo.load(proto, outputs=cut)
        again = mo.export(source, None, None)
        assert [node.op_type for node in again.graph.node] == [node.op_type for node in proto.graph.node]
        onnx.checker.check_model(again)
        np.testing.assert_allclose(mo.load(again)(x).array, source(x).array, rtol=1e-6, atol=1e-6)


def test_in_a_function_and_in_a_branch(rng: Any) -> None:
    from onnx import TensorProto, helper

    _, proto, _, [shape, *_] = norms.WAYS["layer, Div, Pow"]()
    body = list(proto.graph.node)
    names = ["norm.weight", "norm.bias"]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Norm", ["x", *names], ["y"], body, opsets[:1])
    twice = [
        helper.make_node("Norm", ["x", *names], ["h"], "first", domain="own"),
        helper.make_node("Norm", ["h", *names], ["y"], "second", domain="own"),
    ]
    called = onnx.ModelProto()
    called.CopyFrom(proto)
    del called.graph.node[:]
    called.graph.node.extend(twice)
    called.functions.append(function)
    called.opset_import.append(opsets[1])
    branch = helper.make_graph(body, "then", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["z"])], "else", [], [helper.make_tensor_value_info("z", 1, None)]
    )
    chosen = onnx.ModelProto()
    chosen.CopyFrom(proto)
    del chosen.graph.node[:]
    chosen.graph.node.append(helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other))
    chosen.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    x, once = Tensor(rng.standard_normal(shape).astype(np.float32)), mo.load(proto)
    for model, count, given, want in (
        (called, 2, (x,), once(once(x))),
        (chosen, 1, (x, mn.tensor(True)), once(x)),
        (chosen, 1, (x, mn.tensor(False)), x),
    ):
        loaded = mo.load(model)
        assert [type(layer) for layer in layers(loaded)] == [LayerNorm] * count
        np.testing.assert_allclose(loaded(*given).array, want.array, rtol=1e-5, atol=1e-5)
        again = mo.export(loaded, None, None)
        assert [node.op_type for node in again.graph.node] == [node.op_type for node in model.graph.node]
        np.testing.assert_allclose(mo.load(again)(*given).array, want.array, rtol=1e-5, atol=1e-5)


# What PyTorch writes


def families() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    nn, tF = torch.nn, torch.nn.functional

    class Rms(nn.Module):  # as language models write it
        def __init__(self, size: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(size))

        def forward(self, x: Any) -> Any:
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    class Layer(nn.Module):  # as the first transformers wrote it
        def __init__(self, size: int) -> None:
            super().__init__()
            self.a_2, self.b_2 = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

        def forward(self, x: Any) -> Any:
            mean = x.mean(-1, keepdim=True)
            return self.a_2 * (x - mean) / torch.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-6) + self.b_2

    class Residual(nn.Module):
        def __init__(self, norm: Any, inner: Any) -> None:
            super().__init__()
            self.norm, self.inner = norm, inner

        def forward(self, x: Any) -> Any:
            return x + self.inner(tF.gelu(self.norm(x)))

    images, words = torch.randn(2, 3, 8, 8), torch.randn(2, 5, 6)
    return {
        "groups": (
            nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.SiLU(), nn.Conv2d(8, 4, 3), nn.GroupNorm(1, 4)),
            images,
            {"1": GroupNorm, "4": GroupNorm},
        ),
        "groups of signals": (
            nn.Sequential(nn.Conv1d(5, 4, 3), nn.GroupNorm(2, 4), nn.ReLU()), words, {"1": GroupNorm}
        ),
        "groups in blocks": (
            nn.Sequential(nn.Conv2d(3, 6, 1), Residual(nn.GroupNorm(3, 6), nn.Conv2d(6, 6, 3, padding=1))),
            images,
            {"1.norm": GroupNorm},
        ),
        "root mean squares": (
            nn.Sequential(nn.Linear(6, 4), Residual(Rms(4), nn.Linear(4, 4)), Rms(4)),
            words,
            {"1.norm": RMSNorm, "2": RMSNorm},
        ),
        "formulas": (
            nn.Sequential(Residual(Layer(6), nn.Linear(6, 6)), Layer(6)),
            words,
            {"0.norm": LayerNorm, "1": LayerNorm},
        ),
        "layers": (
            nn.Sequential(Residual(nn.LayerNorm(6), nn.Linear(6, 6)), nn.LayerNorm((5, 6))),
            words,
            {"0.norm": LayerNorm, "1": LayerNorm},
        ),
    }  # fmt: skip


FAMILIES = ["groups", "groups of signals", "groups in blocks", "root mean squares", "formulas", "layers"]


def written(model: Any, x: Any, way: str) -> Any:
    torch = pytest.importorskip("torch")

    exporter, opset, *folded = way.split()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            pytest.importorskip("onnxscript")
            free = ({0: torch.export.Dim("batch")},)
            return torch.onnx.export(
                model, (x,), dynamo=True, optimize=bool(folded), opset_version=int(opset), dynamic_shapes=free,
                verbose=False,
            ).model_proto  # fmt: skip
        file = io.BytesIO()
        torch.onnx.export(
            model, (x,), file, dynamo=False, opset_version=int(opset), do_constant_folding=bool(folded),
            input_names=["x"], dynamic_axes={"x": {0: "batch"}},
        )  # fmt: skip
        return onnx.load_from_string(file.getvalue())


SCRIPT = [f"script {opset}{folded}" for opset in (9, 13, 16) for folded in ("", " folded")]
DYNAMO = ["dynamo 18", "dynamo 18 folded"]


@pytest.mark.parametrize("way", [*SCRIPT, *[pytest.param(way, marks=pytest.mark.slow) for way in DYNAMO]])
@pytest.mark.parametrize("name", FAMILIES)
def test_pytorchs_files_train_as_its_layers_do(name: str, way: str) -> None:
    torch = pytest.importorskip("torch")

    torch.manual_seed(3)
    model, x, places = families()[name]
    model, x = model.double(), x.double()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    if name == "layers" and "dynamo" in way:
        places = {}  # LayerNormalization itself
    proto = written(model.eval(), x, way)
    loaded = mo.load(proto)
    found = layers(loaded)
    assert sorted(type(layer).__name__ for layer in found) == sorted(kind.__name__ for kind in places.values())
    assert sum(p.array.size for p in loaded.parameters()) == sum(p.numel() for p in model.parameters())
    theirs = dict(model.named_parameters())
    if "folded" not in way:
        assert {path: type(loaded.get_submodule(path)) for path in places} == places
        assert {n: p.shape for n, p in loaded.named_parameters()} == {n: tuple(p.shape) for n, p in theirs.items()}
    for batch in (2, 3):  # the batch is free
        x = torch.randn(batch, *x.shape[1:], dtype=torch.float64)
        want, got = model(x), loaded(Tensor(x.numpy()))
        tolerance = 1e-5 if "dynamo" in way else 1e-9  # the newer exporter rounds an eps to float32
        np.testing.assert_allclose(got.array, want.detach().numpy(), rtol=tolerance, atol=tolerance)
        model.zero_grad()
        loaded.zero_grad()
        want.square().sum().backward()
        (got * got).sum().backward()
        for n, p in loaded.named_parameters():
            if n in theirs and theirs[n].shape == p.shape:
                expected = theirs[n].grad.numpy()
                np.testing.assert_allclose(p.grad.array, expected, rtol=tolerance, atol=tolerance * abs(expected).max())


@pytest.mark.parametrize("opset", [7, 13, 17, 22])
def test_what_minorm_wrote_at_lower_opsets_is_read_as_its_layers(opset: int, rng: Any) -> None:
    for dtype in (mn.float32, mn.float64):
        model = mn.nn.Sequential(
            mn.nn.Linear(6, 6), mn.nn.LayerNorm(6), mn.nn.GroupNorm(2, 4), mn.nn.RMSNorm(6, eps=1e-6)
        ).to(dtype)  # fmt: skip
        for p in model.parameters():
            p.array[...] = rng.uniform(0.5, 1.5, p.shape)
        x = Tensor(rng.standard_normal((3, 4, 6)).astype(dtype))
        loaded = mo.load(mo.export(model, x, None, opset_version=opset))
        places = {"1": LayerNorm, "2": GroupNorm, "3": RMSNorm}
        if dtype == mn.float32:  # the operators themselves
            places = {path: kind for path, kind in places.items() if opset < {"1": 17, "2": 21, "3": 23}[path]}
        assert {path: type(loaded.get_submodule(path)) for path in places} == places
        assert set(loaded.state_dict()) == set(model.state_dict())
        np.testing.assert_allclose(loaded(x).array, model(x).array, rtol=1e-5, atol=1e-5)
        y = F.relu(loaded(x))
        y.sum().backward()
        assert all(p.grad is not None for p in loaded.parameters())
