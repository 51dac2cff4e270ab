from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402

F32 = np.float32
ONE = np.ones((), F32)


def parameters(graph_of: Any, nodes: list[Any], outputs: list[str], **initializers: Any) -> list[str]:
    inputs = {"x": (F32, [2, 3, 4, 4])}
    model = mo.load(graph_of(nodes, inputs, outputs, initializers))
    return [name for name, _ in model.named_parameters()]


@pytest.mark.parametrize(
    ("between", "trained"),
    [
        ([h.make_node("Reshape", ["w", "shape"], ["v"])], True),
        ([h.make_node("Unsqueeze", ["w", "axes"], ["v"])], True),
        ([h.make_node("Transpose", ["w"], ["v"])], True),
        ([h.make_node("Mul", ["w", "w"], ["v"])], True),
        ([h.make_node("Cast", ["w"], ["d"], to=11), h.make_node("Cast", ["d"], ["v"], to=1)], True),
        ([h.make_node("Cast", ["w"], ["i"], to=7), h.make_node("Cast", ["i"], ["v"], to=1)], False),
        ([h.make_node("Shape", ["w"], ["i"]), h.make_node("ReduceSum", ["i"], ["n"]),
          h.make_node("Cast", ["n"], ["v"], to=1)], False),
        ([h.make_node("Greater", ["w", "w"], ["b"]), h.make_node("Cast", ["b"], ["v"], to=1)], False),
        ([h.make_node("ArgMax", ["w"], ["i"]), h.make_node("Cast", ["i"], ["v"], to=1)], False),
        ([h.make_node("Where", ["yes", "w", "zero"], ["v"])], True),
    ],
)  # fmt: skip
def test_gradient_decides(between: list[Any], trained: bool, graph_of: Any) -> None:
    found = parameters(
        graph_of,
        [*between, h.make_node("Add", ["x", "v"], ["y"])],
        ["y"],
        w=np.ones((1, 1), F32),
        shape=np.array([1, 1, 1]),
        axes=np.array([0]),
        yes=np.array(True),
        zero=np.zeros((), F32),
    )
    assert ("w" in found) == trained


def test_operands_without_a_gradient_are_constants(graph_of: Any) -> None:
    nodes = [
        h.make_node("Clip", ["x", "low", "high"], ["a"]),
        h.make_node("Pad", ["a", "pads", "fill"], ["b"]),
        h.make_node("Resize", ["b", "", "scales"], ["c"]),
        h.make_node("Dropout", ["c", "ratio"], ["d"]),
        h.make_node("Mul", ["d", "w"], ["y"]),
    ]
    scales, pads = np.ones(4, F32), np.zeros(8, np.int64)
    values = {"low": -ONE, "high": ONE, "pads": pads, "fill": ONE, "scales": scales, "ratio": ONE / 2, "w": ONE}
    assert parameters(graph_of, nodes, ["y"], **values) == ["w"]


def test_what_no_output_needs_is_left_out(graph_of: Any) -> None:
    nodes = [h.make_node("Mul", ["x", "w"], ["y"]), h.make_node("Mul", ["y", "v"], ["z"])]
    v = np.arange(4, dtype=F32)
    assert parameters(graph_of, nodes, ["y"], w=ONE, v=v) == ["w"]
    assert parameters(graph_of, nodes, ["z"], w=ONE, v=v, u=v) == ["w", "v"]


def batch_norm(name: str, reads: str, writes: str, parts: list[str], **options: Any) -> Any:
    return h.make_node("BatchNormalization", [reads, *parts], [writes], name, **options)


def test_one_layer_called_twice_has_one_set_of_statistics(graph_of: Any) -> None:
    parts = ["bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"]
    nodes = [batch_norm("a", "x", "h", parts), batch_norm("b", "h", "y", parts)]
    values = {name: np.full(3, i + 0.5, F32) for i, name in enumerate(parts)}
    model = mo.load(graph_of(nodes, {"x": (F32, [None, 3])}, ["y"], values))
    assert list(model.state_dict()) == parts
    assert [path for path, m in model.named_modules() if path] == ["bn", "bn_1"]
    model.train()(mn.randn(5, 3))
    model.get_submodule("bn").freeze()
    assert not any(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("scale", ["Constant", "initializer"])
def test_equal_constants_as_scale_and_bias_are_those_of_one_layer(scale: str, graph_of: Any) -> None:
    """PyTorch's older exporter writes the ones and zeros of a BatchNorm without weights anew for each call."""
    names = ["s", "b", "s2", "b2"]
    arrays = {name: np.full(3, name[0] == "s", F32) for name in names}
    constants = [h.make_node("Constant", [], [name], value_floats=arrays[name]) for name in names]
    nodes = [
        batch_norm("a", "x", "h", ["s", "b", "bn.running_mean", "bn.running_var"]),
        batch_norm("c", "h", "y", ["s2", "b2", "bn.running_mean", "bn.running_var"]),
    ]
    values = {"bn.running_mean": np.zeros(3, F32), "bn.running_var": np.ones(3, F32)}
    proto = graph_of(constants + nodes, {"x": (F32, [None, 3])}, ["y"], values)
    if scale == "initializer":
        proto = graph_of(nodes, {"x": (F32, [None, 3])}, ["y"], {**values, **arrays})
    model = mo.load(proto, trainable=[])
    assert [name for name, _ in model.named_buffers()] == ["bn.running_mean", "bn.running_var"]
    x = np.random.default_rng(0).normal(5, 3, (6, 3)).astype(F32)
    model.train()(mn.tensor(x))
    inner = (x - x.mean(0)) / np.sqrt(x.var(0, dtype=np.float64) + 1e-5)
    mean = 0.9 * (0.1 * x.mean(0)) + 0.1 * inner.mean(0)
    np.testing.assert_allclose(model.state_dict()["bn.running_mean"].array, mean, rtol=1e-5)


def test_other_constants_as_scale_are_those_of_another_layer(graph_of: Any) -> None:
    parts = ["bn.running_mean", "bn.running_var"]
    nodes = [batch_norm("a", "x", "h", ["s", "b", *parts]), batch_norm("c", "h", "y", ["s2", "b", *parts])]
    values = {"s": np.ones(3, F32), "s2": np.full(3, 2, F32), "b": np.zeros(3, F32)}
    values |= {"bn.running_mean": np.zeros(3, F32), "bn.running_var": np.ones(3, F32)}
    model = mo.load(graph_of(nodes, {"x": (F32, [None, 3])}, ["y"], values), trainable=[])
    assert len(list(model.named_buffers())) == 4


def test_statistics_handed_on_by_identity_belong_to_the_layer_that_reads_them(graph_of: Any) -> None:
    """PyTorch's exporter writes equal initializers once, and hands them on to the other layers by Identity."""
    parts = ["1.weight", "1.bias", "1.running_mean", "1.running_var"]
    others = ["2.weight", "2.bias", "2.running_mean", "2.running_var"]
    nodes = [
        *[h.make_node("Identity", [a], [b]) for a, b in zip(parts, others, strict=True)],
        batch_norm("a", "x", "h", parts, epsilon=1.0),
        batch_norm("b", "h", "y", others),
    ]
    values = {name: np.full(3, i + 0.5, F32) for i, name in enumerate(parts)}
    model = mo.load(graph_of(nodes, {"x": (F32, [None, 3])}, ["y"], values))
    assert [name for name, _ in model.named_parameters()] == [*parts[:2], *others[:2]]
    assert [name for name, _ in model.named_buffers()] == [*parts[2:], *others[2:]]
    model.train()(mn.randn(5, 3))
    buffers = dict(model.named_buffers())
    assert (buffers["1.running_var"].array != buffers["2.running_var"].array).all()


def test_statistics_in_constant_nodes_are_the_layers_own(graph_of: Any) -> None:
    nodes = [
        h.make_node("Constant", [], ["m"], value_floats=[0.0, 1.0, 2.0]),
        h.make_node("Constant", [], ["v"], value_floats=[1.0, 2.0, 3.0]),
        batch_norm("n", "x", "y", ["s", "b", "m", "v"]),
    ]
    values = {"s": np.ones(3, F32), "b": np.zeros(3, F32)}
    model = mo.load(graph_of(nodes, {"x": (F32, [None, 3])}, ["y"], values))
    assert list(model.state_dict()) == ["s", "b", "m", "v"]
    model.train()(mn.randn(5, 3))
    assert model.state_dict()["m"].tolist() != [0, 1, 2]


def test_no_gradient_passes_integers_so_an_exponent_of_them_is_a_constant(graph_of: Any) -> None:
    nodes = [
        h.make_node("Pow", ["n", "p"], ["m"]),
        h.make_node("Add", ["m", "m"], ["twice"]),
        h.make_node("Cast", ["twice"], ["f"], to=1),
        h.make_node("Mul", ["f", "w"], ["y"]),
    ]
    half = {"p": np.array(0.5, F32), "w": np.ones(2, F32)}
    first = mo.load(graph_of(nodes, {"n": (np.int64, [None])}, ["y"], half))
    x = mn.tensor(np.array([4, 9]))
    assert first(x).tolist() == [4, 6]
    second = mo.load(mo.export(first, x, dynamic_axes={}))
    for model in (first, second):
        assert [name for name, _ in model.named_parameters()] == ["w"]
    of_floats = [h.make_node("Relu", ["x"], ["r"]), h.make_node("Pow", ["r", "pool.p"], ["y"])]
    moving = mo.load(graph_of(of_floats, {"x": (F32, [2])}, ["y"], {"pool.p": half["p"]}))
    assert [name for name, _ in moving.named_parameters()] == ["pool.p"]
    of_floats[0].op_type = "Neg"  # a negative number has no power with a fraction, and no gradient of the exponent
    assert not list(mo.load(graph_of(of_floats, {"x": (F32, [2])}, ["y"], {"pool.p": half["p"]})).parameters())


def test_statistics_that_many_layers_share_get_names_in_linear_time(graph_of: Any) -> None:
    n = 1500
    names = ["x", *(f"v{i}" for i in range(n - 1)), "y"]
    scales = {f"s{i}": np.full(3, i, F32) for i in range(n)}
    nodes = [
        h.make_node("BatchNormalization", [names[i], f"s{i}", "one", "one", "one"], [names[i + 1]]) for i in range(n)
    ]
    model = mo.load(graph_of(nodes, {"x": (F32, [2, 3, 4, 4])}, ["y"], {**scales, "one": np.ones(3, F32)}))
    buffers = [name for name, _ in model.named_buffers()]
    assert buffers[:3] == ["one_1", "one_2", "one_3"]
    assert len(set(buffers)) == len(buffers) == 2 * n


# What is a weight


def vector(*numbers: float) -> Any:
    return np.array(numbers, F32)


@pytest.mark.parametrize(
    "name",
    [
        "onnx::Pow_7", "val_12", "scalar_tensor_default", "123", "/Constant_3_output_0", "p2o.Constant.4", "mul_3",
        "model/norm/add/y:0", "lifted_tensor_0",
    ],
)  # fmt: skip
def test_numbers_that_exporters_made_are_constants_and_an_sgd_step_changes_nothing_of_them(
    name: str, graph_of: Any
) -> None:
    nodes = [
        h.make_node("Pow", ["x", name], ["a"]),
        h.make_node("Mul", ["a", f"{name}_1"], ["b"]),
        h.make_node("Add", ["b", f"{name}_2"], ["c"]),
        h.make_node("Mul", ["c", "layer.gamma"], ["y"]),
    ]
    values = {name: np.array(2.0, F32), f"{name}_1": np.array([0.5], F32), f"{name}_2": np.array(1e-5, F32)}
    proto = graph_of(nodes, {"x": (F32, [2, 3])}, ["y"], {**values, "layer.gamma": vector(1, 2, 3)})
    model, x = mo.load(proto), mn.tensor(-np.ones((2, 3), F32))
    assert [n for n, _ in model.named_parameters()] == ["layer.gamma"]
    model(x).sum().backward()
    mn.optim.SGD(model.parameters(), lr=1.0).step()
    gamma = vector(1, 2, 3) - 2 * (0.5 + F32(1e-5))
    np.testing.assert_allclose(model(x).array, np.broadcast_to(0.50001 * gamma, (2, 3)), rtol=1e-6)


@pytest.mark.parametrize("name", ["layer1.0.conv.weight", "0.bias", "cls_token", "a/dense/BiasAdd/ReadVariableOp:0"])
def test_a_given_name_makes_a_parameter_wherever_it_stands(name: str, graph_of: Any) -> None:
    nodes = [h.make_node("Sub", ["x", "held"], ["a"]), h.make_node("Div", ["a", name], ["y"])]
    values = {name: np.full((2, 3), 2, F32), "held": vector(1, 2, 3)}
    found = mo.load(graph_of(nodes, {"x": (F32, [2, 3])}, ["y"], values))
    assert [n for n, _ in found.named_parameters()] == [name, "held"]


def anonymous(graph_of: Any, operator: str, place: int, array: Any, constant: bool, **attributes: Any) -> list[str]:
    """The parameters of one node, whose input at `place` has an exporter's name and lies in the file."""
    schema = onnx.defs.get_schema(operator, 17)
    names = ["x", *(f"input{i}" for i in range(1, max(schema.min_input, place + 1)))]
    names[place] = "onnx::Anything_1"
    kinds = {"x": (F32, None), **dict.fromkeys(names, (np.int64 if operator == "Gather" else F32, None))}
    kinds = {n: kind for n, kind in kinds.items() if n in names and n != "onnx::Anything_1"}
    held = [h.make_node("Constant", [], ["onnx::Anything_1"], value=onnx.numpy_helper.from_array(array))]
    nodes = [*(held if constant else []), h.make_node(operator, names, ["y"], **attributes)]
    model = mo.load(graph_of(nodes, kinds, ["y"], {} if constant else {"onnx::Anything_1": array}))
    return [n for n, _ in model.named_parameters()]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("operator", "place", "shape", "weight"),
    [
        ("Conv", 1, (4, 3, 3, 3), True),
        ("Conv", 2, (4,), True),
        ("ConvTranspose", 1, (3, 4, 2, 2), True),
        ("Gemm", 1, (3, 4), True),
        ("Gemm", 2, (4,), True),
        ("MatMul", 1, (3, 4), True),
        ("MatMul", 0, (3, 4), True),
        ("PRelu", 1, (3, 1, 1), True),
        ("Gather", 0, (7, 4), True),
        ("BatchNormalization", 1, (3,), True),
        ("LayerNormalization", 2, (3,), True),
        ("Mul", 1, (3, 1, 1), True),
        ("Add", 0, (1, 3, 1, 1), True),
        ("Add", 1, (3,), True),
        ("Add", 1, (3, 4), False),
        ("Mul", 1, (), False),
        ("Mul", 1, (1,), False),
        ("Sub", 1, (3,), False),
        ("Div", 1, (3,), False),
        ("Pow", 1, (3,), False),
        ("Max", 1, (3,), True),
    ],
)
def test_a_tensor_without_a_name_is_a_weight_where_operators_have_weights(
    operator: str, place: int, shape: tuple[int, ...], weight: bool, constant: bool, graph_of: Any
) -> None:
    array = np.linspace(1, 2, int(np.prod(shape)), dtype=F32).reshape(shape)
    assert anonymous(graph_of, operator, place, array, constant) == (["onnx::Anything_1"] if weight else [])


@pytest.mark.parametrize("constant", [False, True])
def test_weights_are_found_behind_what_moves_them(constant: bool, graph_of: Any) -> None:
    w = np.arange(6, dtype=F32).reshape(2, 3)
    held = [h.make_node("Constant", [], ["linear_0.w_0"], value=onnx.numpy_helper.from_array(w))]
    nodes = [
        *(held if constant else []),
        h.make_node("Transpose", ["linear_0.w_0" if constant else "onnx::Transpose_3"], ["t"]),
        h.make_node("Cast", ["t"], ["d"], to=11),
        h.make_node("Cast", ["d"], ["f"], to=1),
        h.make_node("Unsqueeze", ["f", "axes"], ["u"]),
        h.make_node("Reshape", ["u", "shape"], ["r"]),
        h.make_node("Identity", ["r"], ["i"]),
        h.make_node("MatMul", ["x", "i"], ["y"]),
    ]
    values: dict[str, Any] = {"axes": np.array([0]), "shape": np.array([3, 2])}
    values |= {} if constant else {"onnx::Transpose_3": w}
    model = mo.load(graph_of(nodes, {"x": (F32, [1, 3])}, ["y"], values))
    [p] = model.parameters()
    model(mn.tensor(vector(1, 2, 4)[None])).sum().backward()
    np.testing.assert_array_equal(p.grad.array, [[1, 2, 4], [1, 2, 4]])
    again = mo.load(mo.export(model, mn.ones(1, 3)))
    assert [p.shape for p in again.parameters()] == [(2, 3)]


def test_a_group_norm_written_with_an_instance_norm_has_two_weights(graph_of: Any) -> None:
    nodes = [
        h.make_node("Reshape", ["x", "split"], ["a"]),
        h.make_node("InstanceNormalization", ["a", "val_1", "val_2"], ["b"]),
        h.make_node("Reshape", ["b", "back"], ["c"]),
        h.make_node("Mul", ["c", "val_3"], ["d"]),
        h.make_node("Add", ["d", "val_4"], ["y"]),
    ]
    lengths = {"split": np.array([0, 2, -1]), "back": np.array([2, 4, 3, 3])}
    values = {"val_1": np.ones(2, F32), "val_2": np.zeros(2, F32)}
    affine = {"val_3": np.ones((4, 1, 1), F32), "val_4": np.zeros((4, 1, 1), F32)}
    model = mo.load(graph_of(nodes, {"x": (F32, [2, 4, 3, 3])}, ["y"], {**lengths, **values, **affine}))
    assert [n for n, _ in model.named_parameters()] == ["val_3", "val_4"]
    values["val_1"][0] = 2  # it was trained
    model = mo.load(graph_of(nodes, {"x": (F32, [2, 4, 3, 3])}, ["y"], {**lengths, **values, **affine}))
    assert [n for n, _ in model.named_parameters()] == ["val_1", "val_2", "val_3", "val_4"]


def test_what_pytorch_says_of_a_tensor_decides(graph_of: Any) -> None:
    names = {"a.scale": "PARAMETER", "a.table": "BUFFER", "c": "CONSTANT_TENSOR"}
    places = ["x", "h0", "h1", "h2", "y"]
    nodes = [h.make_node("Add", [places[i], name], [places[i + 1]]) for i, name in enumerate([*names, "a.unsaid"])]
    proto = graph_of(nodes, {"x": (F32, [2, 3])}, ["y"], {n: np.ones((2, 3), F32) for n in [*names, "a.unsaid"]})
    for name, kind in names.items():
        entry = proto.graph.value_info.add(name=name)
        entry.metadata_props.add(key="pkg.torch.export.graph_signature.InputSpec.kind", value=kind)
    assert [n for n, _ in mo.load(proto).named_parameters()] == ["a.scale"]


def test_equal_weights_that_an_exporter_merged_train_apart(graph_of: Any) -> None:
    nodes = [
        h.make_node("Identity", ["1.weight"], ["2.weight"]),
        h.make_node("Identity", ["2.weight"], ["3.weight"]),
        h.make_node("Mul", ["x", "1.weight"], ["a"]),
        h.make_node("Add", ["a", "2.weight"], ["b"]),
        h.make_node("Mul", ["b", "3.weight"], ["y"]),
    ]
    model = mo.load(graph_of(nodes, {"x": (F32, [2])}, ["y"], {"1.weight": vector(1, 2)}))
    found = dict(model.named_parameters())
    assert list(found) == ["1.weight", "2.weight", "3.weight"]
    model(mn.tensor(vector(5, 7))).sum().backward()  # (x w1 + w2) w3
    grads = {"1.weight": [5, 14], "2.weight": [1, 2], "3.weight": [6, 16]}
    assert {n: p.grad.tolist() for n, p in found.items()} == grads


def test_a_weight_that_folding_expanded_to_a_batch_is_one_weight(graph_of: Any) -> None:
    token, places = vector(1, 2, 4)[None, None], np.arange(12, dtype=F32).reshape(1, 4, 3) ** 2
    held = {"onnx::Concat_7": np.repeat(token, 2, 0), "onnx::Concat_8": np.zeros((2, 1, 3), F32), "pos": places}
    nodes = [
        h.make_node("Concat", ["onnx::Concat_7", "x", "onnx::Concat_8"], ["a"], axis=1),
        h.make_node("Add", ["a", "pos"], ["y"]),
    ]
    model = mo.load(graph_of(nodes, {"x": (F32, [2, 2, 3])}, ["y"], held))
    assert {name: p.shape for name, p in model.named_parameters()} == {"onnx::Concat_7": (1, 1, 3), "pos": (1, 4, 3)}
    x = mn.ones(2, 2, 3)
    want = np.concatenate([held["onnx::Concat_7"], x.array, held["onnx::Concat_8"]], 1) + places
    np.testing.assert_array_equal(model(x).array, want)
    model(x).sum().backward()
    assert dict(model.named_parameters())["onnx::Concat_7"].grad.tolist() == [[[2, 2, 2]]]


# What the caller says


def network(graph_of: Any) -> Any:
    nodes = [
        h.make_node("Mul", ["x", "body.weight"], ["a"]),
        h.make_node("Pow", ["a", "val_1"], ["b"]),
        h.make_node("Add", ["b", "head.bias"], ["c"]),
        h.make_node("Constant", [], ["k"], value_float=3.0),
        h.make_node("Mul", ["c", "k"], ["d"]),
        h.make_node("Reshape", ["d", "shape"], ["y"]),
    ]
    values = {"body.weight": vector(1, 2), "val_1": np.array(2.0, F32), "head.bias": vector(0, 0)}
    return graph_of(nodes, {"x": (F32, [2])}, ["y"], {**values, "shape": np.array([2])})


@pytest.mark.parametrize(
    ("trainable", "names"),
    [
        (None, ["body.weight", "head.bias"]),
        (["head.*"], ["head.bias"]),
        ("*.weight", ["body.weight"]),
        (["val_1", "body.weight"], ["body.weight", "val_1"]),
        (["*"], ["body.weight", "val_1", "head.bias", "k"]),
        ([], []),
        (lambda name, array: array.ndim == 0, ["val_1", "k"]),
        (lambda name, array: np.bool_(name.endswith("bias")), ["head.bias"]),
    ],
)
def test_trainable_overrides(trainable: Any, names: list[str], graph_of: Any) -> None:
    model = mo.load(network(graph_of), trainable=trainable)
    assert [name for name, _ in model.named_parameters()] == names
    x = mn.tensor(vector(1, 2))
    assert model(x).tolist() == [3, 48]
    if names:
        model(x).sum().backward()
        assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize(
    ("trainable", "error", "words"),
    [
        (["head.bias", "heat.bias"], mo.LoadError, "'heat.bias', which matches no tensor .*; did you mean 'head.bias'"),
        (["layer4.*"], mo.LoadError, "'layer4.*', which matches no tensor that can train; `minorm check` lists"),
        (["shape"], mo.LoadError, "'shape', which cannot train: it is not a float tensor of the file"),
        (["x"], mo.LoadError, "'x', which cannot train"),
        ([3], TypeError, "trainable holds 3; expected names and patterns, or a function"),
        (3, TypeError, "trainable is int; expected names and patterns, or a function"),
        (
            lambda name, array: array,
            TypeError,
            r"trainable\('body.weight', array\) returned .*; expected True or False",
        ),
    ],
)
def test_what_trainable_cannot_mean(trainable: Any, error: type[Exception], words: str, graph_of: Any) -> None:
    with pytest.raises(error, match=words):
        mo.load(network(graph_of), trainable=trainable)


def test_a_function_for_trainable_cannot_change_the_file(graph_of: Any) -> None:
    def spoil(name: str, array: Any) -> bool:
        array[...] = 0
        return True

    with pytest.raises(ValueError, match="read-only"):
        mo.load(network(graph_of), trainable=spoil)
