"""`model.replace`: what runs, trains and is saved afterwards, and what an error leaves alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn, optim

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from tests.onnx.loading.exchange.nets import FLOAT, classifier, drawn, plain  # noqa: E402

X = mn.tensor(drawn(6, 3, 5, 5))


def test_the_head_gives_way_to_another(graph_of: Any) -> None:
    proto, head = classifier(graph_of), nn.Linear(4, 2)
    features = mo.load(proto, outputs=["/Flatten_output_0"])(X).detach().numpy()
    model = mo.load(proto)
    model.replace("fc", head)
    expected = features.astype(float) @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    np.testing.assert_allclose(model(X).detach().numpy(), expected, atol=1e-6)
    assert model.get_submodule("fc") is head
    assert sorted(model.state_dict()) == sorted(mo.load(proto).state_dict())  # the same names, one other shape
    assert [name for name, _ in model.named_modules()] == [name for name, _ in mo.load(proto).named_modules()]


def test_a_step_changes_what_it_changes_in_a_sequence(graph_of: Any) -> None:
    proto, head = classifier(graph_of), nn.Linear(4, 2)
    other = nn.Sequential(mo.load(proto, outputs=["/Flatten_output_0"]), copy.deepcopy(head)).train()
    model = mo.load(proto)
    model.replace("fc", head)
    model.train()
    for whole in (model, other):
        optimizer = optim.SGD(whole.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            nn.CrossEntropyLoss()(whole(X), mn.tensor([0, 1, 0, 1, 1, 0])).backward()
            optimizer.step()
    theirs = {name.removeprefix("0.").replace("1.", "fc."): value for name, value in other.state_dict().items()}
    assert theirs.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), theirs[name].numpy(), err_msg=name)


def test_a_layer_in_the_middle(graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.replace("bn", nn.GroupNorm(2, 4))
    assert sorted(model.state_dict()) == ["bn.bias", "bn.weight", "conv.weight", "fc.bias", "fc.weight"]
    conv = mo.load(classifier(graph_of), outputs=["/conv/Conv_output_0"])(X).detach().numpy().astype(float)
    groups = conv.reshape(6, 2, -1)
    normed = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    pooled = np.maximum(normed.reshape(conv.shape), 0).mean((2, 3))
    expected = pooled @ drawn(7, 4).T.astype(float) + drawn(7)
    np.testing.assert_allclose(model(X).detach().numpy(), expected, atol=1e-5)


def test_nodes_without_modules(graph_of: Any) -> None:
    proto = plain(graph_of)
    model = mo.load(proto)
    model.replace("MatMul.1", nn.Linear(4, 2))
    assert sorted(model.state_dict()) == ["MatMul_1.bias", "MatMul_1.weight", "first.b_0", "first.w_0"]
    assert model(mn.ones(5, 3)).shape == (5, 2)
    np.testing.assert_allclose(model(mn.ones(5, 3)).sum(1).detach().numpy(), np.ones(5), rtol=1e-6)  # the Softmax stays


def test_a_layer_of_several_inputs_gets_them_in_order(graph_of: Any) -> None:
    nodes = [
        h.make_node("Relu", ["a"], ["ra"], name="/Relu"),
        h.make_node("Sub", ["ra", "b"], ["d"], name="/mix/Sub"),
        h.make_node("Mul", ["d", "ra"], ["y"], name="/mix/Mul"),
    ]

    class Mix(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a - 10 * b

    model = mo.load(graph_of(nodes, {"a": (FLOAT, ["n"]), "b": (FLOAT, ["n"])}, ["y"]))
    model.replace("mix", Mix())
    np.testing.assert_array_equal(model(mn.tensor([-1.0, 3.0]), mn.tensor([1.0, 2.0])).numpy(), [-10.0, -17.0])


def test_it_takes_the_mode_of_the_graph(graph_of: Any) -> None:
    model, head = mo.load(classifier(graph_of)), nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))
    model.replace("fc", head)
    assert not head.training
    assert not head[0].training
    model.train()
    assert head[0].training
    model.get_submodule("bn").freeze()
    model.eval()
    assert not head.training


def test_freezing_and_rates_by_name(graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.requires_grad_(False)
    model.replace("fc", nn.Linear(4, 2))
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["fc.weight", "fc.bias"]
    model.get_submodule("bn").requires_grad_(True)
    assert model.get_parameter("conv.weight").shape == (4, 3, 1, 1)
    assert model.get_parameter("fc.bias") is model.get_submodule("fc").get_parameter("bias")
    assert model.get_submodule("bn").get_buffer("running_mean") is model.get_buffer("bn.running_mean")
    groups = [
        {"params": model.get_submodule("bn").parameters(), "lr": 1e-3},
        {"params": model.get_submodule("fc").parameters(), "lr": 1e-1},
    ]
    optimizer = optim.SGD(groups, lr=1.0)
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    model(X).sum().backward()
    optimizer.step()
    changed = {name for name, value in model.state_dict().items() if (value.numpy() != before[name]).any()}
    assert changed == {"bn.weight", "bn.bias", "fc.weight", "fc.bias"}


def test_a_state_goes_out_and_in(graph_of: Any) -> None:
    models = [mo.load(classifier(graph_of)) for _ in range(2)]
    for model in models:
        model.replace("fc", nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)))
    assert not models[0](X).allclose(models[1](X))
    assert str(models[1].load_state_dict(models[0].state_dict())) == "<All keys matched successfully>"
    assert models[0](X).allclose(models[1](X))
    with pytest.raises(ValueError, match=r"unexpected keys: fc.weight"):
        models[0].load_state_dict(mo.load(classifier(graph_of)).state_dict())


def test_below_a_place_that_stays(graph_of: Any) -> None:
    nodes = [
        h.make_node("Gemm", ["x", "head.0.weight"], ["a"], name="/head/head.0/Gemm"),
        h.make_node("Gemm", ["a", "head.1.weight"], ["y"], name="/head/head.1/Gemm"),
    ]
    held = {"head.0.weight": drawn(3, 4), "head.1.weight": drawn(4, 2)}
    model = mo.load(graph_of(nodes, {"x": (FLOAT, ["n", 3])}, ["y"], held))
    model.replace("head.1", nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)))
    head = model.get_submodule("head")
    own = ["0.weight", "1.0.weight", "1.0.bias", "1.1.weight", "1.1.bias"]
    assert [name for name, _ in head.named_parameters()] == own
    assert list(head.state_dict())[:3] == own[:3]
    assert {f"head.{name}" for name in head.state_dict()} == model.state_dict().keys()
    head.load_state_dict({name: value * 0 for name, value in head.state_dict().items()})
    assert not model(mn.ones(2, 3)).detach().numpy().any()
    model.zero_grad()
    head.requires_grad_(False)
    assert not any(p.requires_grad for p in model.parameters())


def test_a_tied_weight_stays_where_it_is_read_on(graph_of: Any) -> None:
    nodes = [
        h.make_node("Gather", ["embedding.weight", "x"], ["e"], name="/embedding/Gather"),
        h.make_node("Transpose", ["embedding.weight"], ["t"], name="/decoder/Transpose", perm=[1, 0]),
        h.make_node("MatMul", ["e", "t"], ["y"], name="/decoder/MatMul"),
    ]
    model = mo.load(graph_of(nodes, {"x": ("int64", ["n"])}, ["y"], {"embedding.weight": drawn(9, 4)}))
    model.replace("decoder", nn.Linear(4, 2))
    assert sorted(model.state_dict()) == ["decoder.bias", "decoder.weight", "embedding.weight"]
    model.replace("embedding", nn.Embedding(3, 4))
    assert model.state_dict()["embedding.weight"].shape == (3, 4)
    assert model(mn.tensor([0, 2])).shape == (2, 2)


def test_twice_and_once_more(graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    for classes in (2, 3):
        model.replace("fc", nn.Linear(4, classes))
        assert model(X).shape == (6, classes)
    model.replace("y", nn.Linear(4, 4))
    model.replace("bn", nn.Identity())
    assert model(X).shape == (6, 4)
    assert sorted(model.state_dict()) == ["conv.weight", "fc.bias", "fc.weight"]
    assert repr(model).count("Linear") == 1


def test_plans_are_made_anew(graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    with mn.no_grad():
        for _ in range(3):
            model(X)
        assert "in inference with input" in repr(model)
        model.replace("fc", head := nn.Linear(4, 2))
        assert "in inference with input" not in repr(model)
        for _ in range(3):
            planned = model(X)
        assert "in inference with input" in repr(model)
        head.weight.fill_(0)
        assert model(X).allclose(head.bias.expand(6, 2))  # the plan reads the parameters as they are
        head.weight = nn.Parameter(mn.ones(2, 4))
        assert not model(X).allclose(head.bias.expand(6, 2))  # and other ones
    assert planned.shape == (6, 2)


def test_a_layer_of_the_users_makes_no_plan(graph_of: Any) -> None:
    class Counting(nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x[:, :2] * self.calls

    model, head = mo.load(classifier(graph_of)), Counting()
    model.replace("fc", head)
    with mn.no_grad():
        results = [model(X).numpy() for _ in range(4)]
    assert head.calls == 4
    np.testing.assert_allclose(results[3], 4 * results[0], rtol=1e-6)


def test_a_copy_has_layers_of_its_own(graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.replace("fc", nn.Linear(4, 2))
    other = copy.deepcopy(model)
    assert other(X).allclose(model(X))
    other.get_submodule("fc").weight.detach().fill_(0)
    assert not other(X).allclose(model(X))
    assert mo.load(mo.export(other, None)).state_dict()["fc.weight"].numpy().sum() == 0


def test_half_precision(graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.replace("fc", nn.Linear(4, 2))
    single = model(X).detach().numpy()
    model.half()
    assert model.get_submodule("fc").weight.dtype == mn.float16
    np.testing.assert_allclose(model(X.half()).detach().numpy(), single, atol=5e-3)
    model.replace("bn", nn.Identity().half())
    model.replace("fc", nn.Linear(4, 3).half())
    assert model(X.half()).dtype == mn.float16


WRONG: dict[str, tuple[Callable[[Any], None], str]] = {
    "a class": (lambda model: model.replace("fc", nn.Linear), r"layer is the class Linear; expected an nn.Module"),
    "a function": (
        lambda model: model.replace("fc", abs),
        r"layer is a builtin_function_or_method; expected an nn.Mod",
    ),
    "a part of it": (
        lambda model: model.replace("fc", model.get_submodule("bn")),
        r"layer is already a part of the model",
    ),
    "itself": (lambda model: model.replace("fc", nn.Sequential(model)), r"layer is already a part of the model"),
    "no such name": (lambda model: model.replace("fd", nn.Linear(4, 2)), r"model.replace\('fc', layer\)"),
    "assignment": (lambda model: setattr(model, "fc", nn.Linear(4, 2)), r"write model.replace\('fc', layer\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_changes_nothing(case: str, graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    before = repr(model), list(model.state_dict()), model(X).detach().numpy()
    act, said = WRONG[case]
    with pytest.raises((TypeError, ValueError), match=said):
        act(model)
    assert (repr(model), list(model.state_dict())) == before[:2]
    np.testing.assert_array_equal(model(X).detach().numpy(), before[2])


def test_a_branch_is_no_place(graph_of: Any) -> None:
    def branch(operator: str) -> Any:
        return h.make_graph(
            [h.make_node(operator, ["r"], [f"{operator}_y"], name=f"/{operator}")],
            operator, [], [h.make_tensor_value_info(f"{operator}_y", onnx.TensorProto.FLOAT, None)],
        )  # fmt: skip

    nodes = [
        h.make_node("Relu", ["x"], ["r"], name="/Relu"),
        h.make_node("If", ["c"], ["i"], name="/If", then_branch=branch("Neg"), else_branch=branch("Sigmoid")),
        h.make_node("MatMul", ["i", "fc.weight"], ["y"], name="/fc/MatMul"),
    ]
    held = {"fc.weight": drawn(3, 2)}
    model = mo.load(graph_of(nodes, {"x": (FLOAT, ["n", 3]), "c": (bool, [])}, ["y"], held))
    inside = next(spot for step in model._steps if (spot := step.node).endswith("Sigmoid"))
    with pytest.raises(ValueError, match=r"is in a branch of an If"):
        model.replace(inside, nn.ReLU())
    model.replace("fc", nn.Linear(3, 5))
    for condition in (True, False):
        assert model(mn.ones(2, 3), mn.tensor(condition)).shape == (2, 5)
    again = mo.load(mo.export(model, None))  # the If has another place in the list now
    x = mn.tensor(drawn(2, 3))
    for condition in (True, False):
        assert again(x, mn.tensor(condition)).allclose(model(x, mn.tensor(condition)))


def test_what_does_not_fit_is_named_when_it_runs(graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.replace("fc", nn.Linear(5, 2))
    with pytest.raises(ValueError, match=r"^'fc', a Linear: "):
        model(X)
