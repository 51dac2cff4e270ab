"""Inference by plan: the bits of node by node, and never where something else than shapes decides."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn
from minorm.graph import trace

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402

from minorm.onnx.loading.planning import plans  # noqa: E402


class Net(nn.Module):
    """Convolutions with BatchNorm, a residual, attention's products, a LayerNorm, a GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8))
        self.norm, self.wide, self.head = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        x = self.first(x)
        x = F.relu(self.second(x) + x)
        x = self.norm(x.flatten(2).transpose(1, 2))
        x = F.softmax(x @ x.transpose(1, 2) * 0.125, -1) @ x
        return self.head(F.gelu(self.wide(x)).mean(1))


def loaded(training: bool = False, opset: int = 17) -> Any:
    mn.manual_seed(0)
    model = Net()
    for _ in range(3):
        model(mn.randn(8, 3, 8, 8))  # running statistics that are not 0 and 1
    return mo.load(mo.export(model, images(), None, opset_version=opset, training=training)).eval()


def images(batch: int = 2, seed: int = 0) -> mn.Tensor:
    return mn.from_numpy(np.random.default_rng(seed).standard_normal((batch, 3, 8, 8), np.float32))


def by_node(model: Any, *given: mn.Tensor) -> list[bytes]:
    """The results node by node, whatever plans there are."""
    with mn.no_grad(), model.watching(lambda *_: None):
        y = model(*given)
    return [t.numpy().tobytes() for t in (y if isinstance(y, tuple) else (y,))]


def run(model: Any, *given: mn.Tensor) -> list[bytes]:
    with mn.no_grad():
        y = model(*given)
    return [t.numpy().tobytes() for t in (y if isinstance(y, tuple) else (y,))]


def has_plan(model: Any) -> bool:
    return any(isinstance(plan, plans.Plan) for plan in model._plans._known.values())


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many runs went by a plan so far."""
    count = [0]
    original = plans.Plan.run

    def counted(self: plans.Plan, given: Any) -> Any:
        count[0] += 1
        return original(self, given)

    monkeypatch.setattr(plans.Plan, "run", counted)
    return lambda: count[0]


@pytest.mark.parametrize("opset", [13, 17, 20])
def test_the_third_run_goes_by_a_plan_to_the_same_bits(opset: int, planned: Any) -> None:
    model = loaded(opset=opset)
    for seed in range(5):
        x = images(seed=seed)
        assert run(model, x) == by_node(model, x)
    assert planned() == 3
    [plan] = model._plans._known.values()
    text = " ".join(map(repr, plan.applications))
    assert "Convolution + NormalizeWith + Relu6" in text
    assert "Add + Relu" in text
    assert f"nodes; in inference with input (2, 3, 8, 8): {len(plan.applications)} passes" in repr(model)


def test_every_shape_has_its_own(planned: Any) -> None:
    model = loaded()
    model = mo.load(mo.export(Net(), images(), None, dynamic_axes={"x": {0: "n"}}, input_names=["x"])).eval()
    for _ in range(3):
        for batch in (1, 2, 3):
            assert run(model, images(batch)) == by_node(model, images(batch))
    assert planned() == 3
    for batch in range(4, 4 + plans.KEPT):
        run(model, images(batch))
    assert len(model._plans._known) <= plans.KEPT


def test_one_tensor_in_two_places_makes_no_plan(planned: Any) -> None:
    nodes = [helper.make_node("Sub", ["x", "y"], ["d"]), helper.make_node("Mul", ["d", "w"], ["z"])]
    kinds = {name: helper.make_tensor_value_info(name, 1, [2, 3]) for name in "xyz"}
    weight = numpy_helper.from_array(np.full((2, 3), 2, np.float32), "w")
    graph = helper.make_graph(nodes, "twice", [kinds["x"], kinds["y"]], [kinds["z"]], [weight])
    opsets = [helper.make_opsetid("", 17)]
    model = mo.load(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()).eval()
    a, b, (w,) = mn.tensor(np.float32([[1, 2, 3]] * 2)), mn.tensor(np.ones((2, 3), np.float32)), model.parameters()
    with mn.no_grad():
        for given in ((a, a), (a, a), (w, b), (w, b)):
            model(*given)
        assert planned() == 0
        for _ in range(3):
            np.testing.assert_array_equal(model(a, b).numpy(), 2 * (a - b).numpy())
    assert planned() > 0


def test_weights_and_statistics_are_read_at_every_run(planned: Any) -> None:
    model, x = loaded(), images()
    for _ in range(3):
        run(model, x)
    for tensor in model.tensors_by_name().values():
        before = run(model, x)
        tensor.array[...] += np.asarray(0.5).astype(tensor.dtype)
        assert run(model, x) == by_node(model, x) != before
    model.load_state_dict(loaded().state_dict())
    assert run(model, x) == by_node(loaded(), x)
    assert planned() > 20


def test_gradients_hooks_training_and_traces_go_node_by_node(planned: Any) -> None:
    model, x = loaded(training=True), images()
    layer = next(m for m in model.modules() if type(m).__name__ == "BatchNormalization")
    for _ in range(3):
        run(model, x)
    assert planned() == 1
    y = model(x)  # gradients
    y.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    seen = []
    with layer.register_forward_hook(lambda *_: seen.append(1)):
        run(model, x)
    assert seen == [1]
    with mn.no_grad(), trace.record() as calls:
        model(x)
    assert calls
    mo.export(model, x, None)
    assert planned() == 1
    before = model.state_dict()
    before = {name: tensor.numpy().copy() for name, tensor in before.items()}
    model.train()
    run(model, x)
    assert any((before[name] != tensor.numpy()).any() for name, tensor in model.state_dict().items())
    assert planned() == 1
    model.eval()
    for _ in range(3):  # its layers were others meanwhile: a new plan
        assert run(model, x) == by_node(model, x)
    assert planned() == 2


def test_an_option_that_changes_is_seen(planned: Any) -> None:
    model, x = loaded(), images()
    for _ in range(3):
        run(model, x)
    before = run(model, x)
    next(m for m in model.modules() if type(m).__name__ == "BatchNormalization").eps = 0.5
    assert run(model, x) == by_node(model, x) != before
    assert planned() == 2


def test_autocast_goes_node_by_node(planned: Any) -> None:
    model, x = loaded(), images()
    for _ in range(3):
        run(model, x)
    with mn.amp.autocast("cpu", dtype=mn.bfloat16):
        assert run(model, x) != by_node(loaded(), x)
    assert planned() == 1


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float64], ids=str)
@pytest.mark.parametrize("opset", [13, 20])
def test_a_converted_graph_has_plans_of_its_type(dtype: Any, opset: int, planned: Any) -> None:
    """The bits of node by node; and what the network is in float64, as far as the type holds it."""
    model, exact = loaded(opset=opset), loaded(opset=opset).to(mn.float64)
    for _ in range(3):
        run(model, images())  # a plan of float32, which must not be taken
    model.to(dtype)
    for seed in range(5):
        x = images(seed=seed).to(dtype)
        assert run(model, x) == by_node(model, x)
    assert planned() == 4
    plan = next(plan for key, plan in model._plans._known.items() if key[0] == dtype)
    text = " ".join(map(repr, plan.applications))
    assert "Convolution + NormalizeWith + Relu6" in text
    assert "Add + Relu" in text
    with mn.no_grad():
        y, want = model(x), exact(x.to(mn.float64)).numpy()
    unit = {"float16": 2e-3, "bfloat16": 2e-2}.get(str(np.dtype(dtype)), 1e-12)
    assert y.dtype == dtype
    np.testing.assert_allclose(y.array.astype(np.float64), want, atol=unit * abs(want).max(), rtol=0)


def test_integers_alone_do_not_hide_that_a_graph_was_converted(planned: Any) -> None:
    """Inputs of both types are the same: the plan of the one type must not serve the other."""
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["rows"]), helper.make_node("Mul", ["rows", "half"], ["halves"]),
        helper.make_node("Exp", ["halves"], ["y"]),
    ]  # fmt: skip
    table = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    model = graph(nodes, {"i": [2]}, ["y"], {"table": table, "half": np.float32(0.5)})
    i = mn.tensor(np.array([1, 3]))
    for dtype in (mn.float32, mn.bfloat16, mn.float64, mn.bfloat16, mn.float32):
        model.to(dtype)
        before = planned()
        for _ in range(4):
            with mn.no_grad():
                y = model(i)
            assert y.dtype == dtype
            exact = table.astype(dtype).astype(np.float64)[[1, 3]]
            np.testing.assert_allclose(y.array.astype(np.float64), np.exp(exact / 2), rtol=1e-2)
            assert run(model, i) == by_node(model, i)
        assert planned() > before


def test_weights_of_a_converted_graph_are_read_at_every_run(planned: Any) -> None:
    model, x = loaded().to(mn.bfloat16), images().to(mn.bfloat16)
    for _ in range(3):
        run(model, x)
    seen = []
    for tensor in model.tensors_by_name().values():
        before = run(model, x)
        tensor.array[...] += np.asarray(0.5).astype(tensor.dtype)
        assert run(model, x) == by_node(model, x)
        seen.append(run(model, x) != before)
    assert sum(seen) > len(seen) // 2  # what comes before a normalization may vanish in rounding
    assert planned() > 20


def test_a_copy_is_a_model_of_its_own() -> None:
    model, x = loaded(), images()
    for _ in range(3):
        want = run(model, x)
    other = copy.deepcopy(model)
    assert has_plan(model)
    assert not has_plan(other)
    for tensor in model.parameters():
        tensor.array[...] = 0
    for _ in range(4):
        assert run(other, x) == want


def test_a_run_that_fails_names_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = loaded(), images()
    for _ in range(3):
        run(model, x)

    def fails(*_: Any, **__: Any) -> Any:
        raise MemoryError("none left")

    monkeypatch.setattr("minorm.ops.convolution.Convolution.forward", fails)
    monkeypatch.setattr("minorm.kernels.cpu.conv.forward", fails)
    with pytest.raises(MemoryError, match=r"Conv.*none left"):
        run(model, x)


# Graphs by hand


def graph(nodes: list[Any], given: dict[str, list[Any]], outputs: list[str], held: dict[str, Any] | None = None) -> Any:
    types = {"x": onnx.TensorProto.FLOAT, "i": onnx.TensorProto.INT64, "b": onnx.TensorProto.BOOL}
    return mo.load(
        helper.make_model(
            helper.make_graph(
                nodes,
                "g",
                [helper.make_tensor_value_info(name, types[name[0]], shape) for name, shape in given.items()],
                [helper.make_value_info(name, onnx.TypeProto()) for name in outputs],
                [numpy_helper.from_array(np.asarray(array), name) for name, array in (held or {}).items()],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
        )
    ).eval()


def floats(*shape: int) -> mn.Tensor:
    return mn.from_numpy(np.random.default_rng(len(shape)).standard_normal(shape, np.float32))


def test_a_shape_may_decide(planned: Any) -> None:
    """Shape, Gather, Concat and Reshape: integers that follow from shapes."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["target"], axis=0), helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "target"], ["y"]),
    ]  # fmt: skip
    model = graph(nodes, {"x": ["n", 2, 3]}, ["y"], {"zero": np.int64([0]), "rest": np.int64([-1])})
    for n in (2, 3, 2, 3, 2, 3):
        assert run(model, floats(n, 2, 3)) == by_node(model, floats(n, 2, 3))
    assert planned() == 2


@pytest.mark.parametrize(
    ("nodes", "given"),
    [
        (
            [helper.make_node("Reshape", ["x", "i"], ["r"]), helper.make_node("Relu", ["r"], ["y"])],
            [floats(2, 3), [3, 2]],
        ),
        ([helper.make_node("Clip", ["x", "x1"], ["y"])], [floats(2, 3), floats()]),
        ([helper.make_node("Range", ["x", "x1", "x2"], ["y"])], [mn.tensor(0.0), mn.tensor(4.0), mn.tensor(1.0)]),
        ([helper.make_node("Reshape", ["x", "minus"], ["y"])], [floats(2, 3)]),  # memory of the input
        ([helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Flatten", ["y"], ["z"])], [floats(2, 3)]),
        ([helper.make_node("Dropout", ["x"], ["y"])], [floats(2, 3)]),
    ],
    ids=["shape that is fed", "bound that is fed", "Range", "view of the input", "two of one memory", "identity"],
)
def test_no_plan_where_values_decide_or_memory_is_shared(nodes: list[Any], given: list[Any], planned: Any) -> None:
    names = [name for name in dict.fromkeys(n for node in nodes for n in node.input) if name[0] in "xi"]
    tensors = [x if isinstance(x, mn.Tensor) else mn.tensor(np.int64(x)) for x in given]
    outputs = ["y", "z"] if nodes[-1].output[0] == "z" else ["y"]
    shapes: dict[str, Any] = {name: list(t.shape) for name, t in zip(names, tensors, strict=True)}
    model = graph(nodes, shapes, outputs, {"minus": np.int64([-1])} if "minus" in nodes[0].input else None)
    for _ in range(5):
        run(model, *tensors)
    assert planned() == 0
    assert not has_plan(model)


def test_ids_that_are_looked_up(planned: Any) -> None:
    """Integers of the input that say what, not how much."""
    nodes = [helper.make_node("Gather", ["table", "i"], ["e"]), helper.make_node("Erf", ["e"], ["y"])]
    model = graph(nodes, {"i": [3]}, ["y"], {"table": np.arange(8, dtype=np.float32).reshape(4, 2)})
    for ids in ([0, 1, 2], [3, 3, 3], [1, 0, 1], [2, 2, 0]):
        i = mn.tensor(np.int64(ids))
        assert run(model, i) == by_node(model, i)


# Which rules read elements


@pytest.mark.parametrize(
    ("nodes", "held"),
    [
        ([helper.make_node("Max", ["x", "w"], ["m"]), helper.make_node("Erf", ["m"], ["y"])], {"w": floats(4).array}),
        ([helper.make_node("Resize", ["x", "", "scales"], ["y"])], {"scales": np.float32([1, 1, 2, 2])}),
        (
            [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")],
            {"scales": np.float32([1, 1, 1.5, 2])},
        ),
        ([helper.make_node("TopK", ["x", "k"], ["y", "places"])], {"k": np.int64([2])}),
        ([helper.make_node("ReduceMax", ["x"], ["y"], axes=[3])], {}),
        ([helper.make_node("Hardmax", ["x"], ["y"])], {}),
        (
            [helper.make_node("Greater", ["x", "w"], ["b"]), helper.make_node("Where", ["b", "x", "w"], ["y"])],
            {"w": floats(4).array},
        ),
        ([helper.make_node("CumSum", ["x", "axis"], ["y"])], {"axis": np.int64(1)}),
        ([helper.make_node("Einsum", ["x", "x"], ["y"], equation="abcd,abed->ace")], {}),
    ],
    ids=["Max", "Resize", "linear Resize", "TopK", "ReduceMax", "Hardmax", "Where", "CumSum", "Einsum"],
)
def test_a_plan_holds_whatever_decides_by_shapes(nodes: list[Any], held: dict[str, Any], planned: Any) -> None:
    model = graph(nodes, {"x": [1, 2, 3, 4]}, ["y"], held)
    for seed in range(5):
        x = mn.from_numpy(np.random.default_rng(seed).standard_normal((1, 2, 3, 4), np.float32))
        assert run(model, x) == by_node(model, x)
    assert planned() == 3


def test_a_recurrent_layer_is_one_pass(planned: Any) -> None:
    held = {"w": floats(1, 8, 4).array, "r": floats(1, 8, 2).array}
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2)
    model = graph([node], {"x": [5, 1, 4]}, ["y"], held)
    for seed in range(4):
        x = mn.from_numpy(np.random.default_rng(seed).standard_normal((5, 1, 4), np.float32))
        assert run(model, x) == by_node(model, x)
    assert planned() == 2
    assert "1 passes" in repr(model)


def test_lengths_that_are_given_are_read(planned: Any) -> None:
    held = {"w": floats(1, 8, 4).array, "r": floats(1, 8, 2).array}
    node = helper.make_node("LSTM", ["x", "w", "r", "", "i"], ["y"], hidden_size=2)
    model = graph([node], {"x": [5, 2, 4], "i": [2]}, ["y"], held)
    for lengths in ([5, 5], [5, 5], [5, 5], [1, 4], [3, 2]):
        given = floats(5, 2, 4), mn.tensor(np.int64(lengths))
        assert run(model, *given) == by_node(model, *given)
    assert planned() == 0


def test_indices_beyond_the_table_are_an_error_in_a_plan_too(planned: Any) -> None:
    nodes = [helper.make_node("Gather", ["table", "i"], ["e"]), helper.make_node("Erf", ["e"], ["y"])]
    model = graph(nodes, {"i": [3]}, ["y"], {"table": np.arange(8, dtype=np.float32).reshape(4, 2)})
    for ids in ([0, 1, 2], [3, 3, 3], [1, 0, -1]):
        i = mn.tensor(np.int64(ids))
        assert run(model, i) == by_node(model, i)
    assert planned() == 1
    with pytest.raises(ValueError, match=r"Gather.*index 4 is out of bounds"):
        run(model, mn.tensor(np.int64([0, 4, 0])))
    i = mn.tensor(np.int64([2, 2, 0]))
    assert run(model, i) == by_node(model, i)


def test_the_caller_never_gets_a_stand_in() -> None:
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    model = graph(nodes, {"x": [2, 3]}, ["y", "a"])
    for _ in range(3):
        with mn.no_grad():
            assert [type(y) for y in model(floats(2, 3))] == [mn.Tensor, mn.Tensor]


@pytest.mark.parametrize("operator", ["GatherElements", "ScatterElements"])
def test_positions_are_refused_in_a_plan_as_without(operator: str, planned: Any) -> None:
    values = ["w"] if operator == "ScatterElements" else []
    nodes = [helper.make_node(operator, ["x", "i", *values], ["z"], axis=1), helper.make_node("Erf", ["z"], ["y"])]
    held = {"w": floats(2, 2).array} if values else {}
    model = graph(nodes, {"x": [2, 3], "i": [2, 2]}, ["y"], held)
    x = floats(2, 3)
    for places in ([[0, 1], [2, 0]], [[0, 1], [2, 0]], [[2, 1], [-1, -3]], [[1, 0], [0, 1]]):
        given = x, mn.tensor(np.int64(places))
        assert run(model, *given) == by_node(model, *given)
    assert planned() == 2
    with pytest.raises(ValueError, match=rf"{operator}.*hold(s)? 3; expected -3 to 2"):
        run(model, x, mn.tensor(np.int64([[0, 3], [0, 0]])))


def test_arrays_of_numpy_go_by_the_plan_too(planned: Any) -> None:
    model, x = loaded(), images()
    for _ in range(3):
        with mn.no_grad():
            model(x.numpy())
    assert planned() == 1
    for wrong in (x.double(), x[:, :2], x.numpy().astype(np.int64), 3):
        with mn.no_grad(), pytest.raises((TypeError, ValueError), match="input 'x'"):
            model(wrong)
    assert planned() == 1


@pytest.mark.parametrize("dtype", [mn.float32, mn.bfloat16], ids=str)
def test_a_sequence_of_shapes_among_the_outputs(dtype: Any) -> None:
    """A sequence has no register, so there is no plan; every run goes node by node."""
    nodes = [
        helper.make_node("Shape", ["x"], ["a"]), helper.make_node("SequenceConstruct", ["a", "a"], ["s"]),
        helper.make_node("Relu", ["x"], ["y"]),
    ]  # fmt: skip
    model, x = graph(nodes, {"x": ["n"]}, ["s", "y"]).to(dtype), mn.ones(3).to(dtype)
    for _ in range(4):
        with mn.no_grad():
            (first, second), y = model(x)
        assert (first.tolist(), second.tolist(), y.tolist(), y.dtype) == ([3], [3], [1, 1, 1], dtype)
