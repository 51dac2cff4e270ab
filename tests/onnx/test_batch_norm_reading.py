"""Every version of BatchNormalization against the formula in float64, in every mode and form that it has."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.testing import gradcheck

pytest.importorskip("onnx")

import minorm.onnx as mo

EPS, MOMENTUM = 1e-5, 0.9
FLOATS = [mn.float16, mn.bfloat16, mn.float32, mn.float64]
VERSIONS = [1, 6, 7, 9, 14, 15, 28]
TRAINING = {
    1: ({"consumed_inputs": [0, 0, 0, 1, 1]}, 5),
    6: ({}, 5),
    7: ({}, 5),
    9: ({}, 5),
    14: ({"training_mode": 1}, 3),
    15: ({"training_mode": 1}, 3),
    28: ({"training_mode": 1}, 3),
}
INFERENCE: dict[int, dict[str, Any]] = {1: {"consumed_inputs": [0, 0, 0, 1, 1], "is_test": 1}, 6: {"is_test": 1}}
NAMES = ("y", "mean", "var", "saved_mean", "saved_var")


def formula(
    x: Any, s: Any, b: Any, mean: Any, var: Any, trains: bool, eps: float = EPS, momentum: float = MOMENTUM
) -> list[Any]:
    """y, the running mean and variance after it, the batch's mean and variance; in float64."""
    x, s, b, mean, var = (np.asarray(a).astype(np.float64) for a in (x, s, b, mean, var))
    if x.ndim == 1:
        y, *rest = formula(x[:, None], s, b, mean, var, trains, eps, momentum)
        return [y[:, 0], *rest]
    axes = (0,) if s.ndim > 1 else (0, *range(2, x.ndim))
    shape = (1, *s.shape) if s.ndim > 1 else (1, -1, *(1,) * (x.ndim - 2))
    m, v = x.mean(axes), x.var(axes)  # the population variance
    used = (m, v) if trains else (mean, var)
    y = (x - used[0].reshape(shape)) / np.sqrt(used[1].reshape(shape) + eps) * s.reshape(shape) + b.reshape(shape)
    blend = [old * momentum + new * (1 - momentum) for old, new in ((mean, m), (var, v))]
    return [y, *(blend if trains else (mean, var)), m, v]


def example(shape: tuple[int, ...], dtypes: Any = mn.float32, spatial: bool = True) -> list[Any]:
    """x, scale, B, mean, var; dtypes is one type, or those of x, of scale and B, of mean and var."""
    rng = np.random.default_rng(len(shape))
    one = (1,) if len(shape) == 1 else shape[1:2] if spatial else shape[1:]
    t, t1, t2 = dtypes if isinstance(dtypes, tuple) else (dtypes,) * 3
    arrays = [rng.normal(3, 2, shape), rng.normal(size=one), rng.normal(size=one), rng.normal(size=one)]
    arrays.append(rng.uniform(0.5, 2, one))
    return [array.astype(t) for array, t in zip(arrays, (t, t1, t1, t2, t2), strict=True)]


@pytest.mark.parametrize("held", [(), (1, 2, 3, 4)], ids=["computed", "owned"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("version", VERSIONS)
def test_inference(version: int, dtype: Any, held: Any, one_node: Any, close: Any) -> None:
    arrays = example((4, 3, 5, 2), dtype)
    model = mo.load(one_node("BatchNormalization", arrays, version, held=held, **INFERENCE.get(version, {})))
    assert not model.training
    y = model(*[mn.Tensor(a) for i, a in enumerate(arrays) if i not in held])
    close(y, formula(*arrays, trains=False)[0])
    assert y.dtype == dtype


@pytest.mark.parametrize("held", [(), (1, 2, 3, 4), (3, 4)], ids=["computed", "owned", "statistics owned"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("version", VERSIONS)
def test_training(version: int, dtype: Any, held: Any, one_node: Any, close: Any) -> None:
    attributes, count = TRAINING[version]
    arrays = example((4, 3, 5, 2), dtype)
    model = mo.load(one_node("BatchNormalization", arrays, version, NAMES[:count], held, **attributes))
    inputs = [mn.Tensor(a) for i, a in enumerate(arrays) if i not in held]
    results = model(*inputs)
    expected = formula(*arrays, trains=True)
    assert len(results) == count
    for got, want in zip(results, expected, strict=False):
        close(got, want)
        assert got.dtype == dtype
    if 3 in held:
        assert [name for name, _ in model.named_buffers()] == ["i3", "i4"]
        close(dict(model.named_buffers())["i4"], expected[2])
        first = results[1].array.copy()
        again = model(*inputs)
        np.testing.assert_array_equal(results[1].array, first)  # a result is not the buffer that later calls change
        assert (again[1].array != first).any()
    else:
        assert not list(model.buffers())


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 3, 2), (2, 3, 2, 2, 3, 2)])
@pytest.mark.parametrize("version", [6, 7, 9, 15])
def test_any_rank(version: int, shape: tuple[int, ...], one_node: Any, close: Any) -> None:
    arrays = example(shape)
    attributes, count = TRAINING[version]
    results = mo.load(one_node("BatchNormalization", arrays, version, NAMES[:count], **attributes))(
        *map(mn.Tensor, arrays)
    )
    for got, want in zip(results, formula(*arrays, trains=True), strict=False):
        close(got, want, 2)


def test_version_1_is_for_images(one_node: Any) -> None:
    model = mo.load(one_node("BatchNormalization", example((4, 3)), 1, **INFERENCE[1]))
    with pytest.raises(ValueError, match=r"node 'node': x has shape \(4, 3\); expected \(N, C, H, W\)"):
        model(*map(mn.Tensor, example((4, 3))))
    with pytest.raises(ValueError, match="lacks the attribute 'consumed_inputs'"):
        mo.load(one_node("BatchNormalization", example((4, 3, 2, 2)), 1))


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("version", [9, 14, 15])
def test_a_single_axis_is_the_batch_of_one_channel(version: int, trains: bool, one_node: Any, close: Any) -> None:
    arrays = example((7,))
    attributes, count = TRAINING[version] if trains else ({}, 1)
    model = mo.load(one_node("BatchNormalization", arrays, version, NAMES[:count], **attributes))
    result = model(*map(mn.Tensor, arrays))
    for got, want in zip(result if trains else [result], formula(*arrays, trains=trains), strict=False):
        close(got, want, 2)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("spatial", [0, 1])
@pytest.mark.parametrize("version", [1, 6, 7])
def test_the_shapes_say_what_spatial_means(version: int, spatial: int, trains: bool, one_node: Any, close: Any) -> None:
    arrays = example((5, 3, 4, 2), spatial=bool(spatial))
    attributes, count = TRAINING[version] if trains else (INFERENCE.get(version, {}), 1)
    model = mo.load(
        one_node("BatchNormalization", arrays, version, NAMES[:count], (3, 4), spatial=spatial, **attributes)
    )
    result = model(*map(mn.Tensor, arrays[:3]))
    for got, want in zip(result if trains else [result], formula(*arrays, trains=trains), strict=False):
        close(got, want, 2)


@pytest.mark.parametrize("version", [1, 6])
def test_without_is_test_versions_1_and_6_train(version: int, one_node: Any, close: Any) -> None:
    arrays = example((4, 3, 5, 2))
    extra = {"consumed_inputs": [0, 0, 0, 1, 1]} if version == 1 else {}
    model = mo.load(one_node("BatchNormalization", arrays, version, held=(1, 2, 3, 4), **extra))
    assert model.training
    close(model(mn.Tensor(arrays[0])), formula(*arrays, trains=True)[0])
    close(dict(model.named_buffers())["i3"], formula(*arrays, trains=True)[1])  # in place, as the text says


@pytest.mark.parametrize(
    ("version", "outputs"),
    [
        (7, ("y", "", "", "saved_mean", "")),
        (9, ("y", "mean", "", "", "saved_var")),
        (14, ("y", "", "")),
        (15, ("y", "", "var")),
    ],
)
def test_outputs_may_be_left_out(version: int, outputs: tuple[str, ...], one_node: Any, close: Any) -> None:
    arrays = example((4, 3, 5))
    model = mo.load(one_node("BatchNormalization", arrays, version, outputs, (3, 4), **TRAINING[version][0]))
    assert model.training
    result = model(*map(mn.Tensor, arrays[:3]))
    results = result if isinstance(result, tuple) else (result,)
    expected = dict(zip(NAMES, formula(*arrays, trains=True), strict=True))
    assert len(results) == len(model.output_names)
    for name, got in zip(model.output_names, results, strict=True):
        close(got, expected[name], 2)


@pytest.mark.parametrize("version", [7, 9])
def test_outputs_without_names_are_not_there(version: int, one_node: Any, close: Any) -> None:
    arrays = example((4, 3, 5))
    model = mo.load(one_node("BatchNormalization", arrays, version, ("y", "", "", "", ""), (3, 4)))
    assert not model.training
    close(model(*map(mn.Tensor, arrays[:3])), formula(*arrays, trains=False)[0])


def test_inference_from_14_on_has_one_output(one_node: Any) -> None:
    with pytest.raises(mo.LoadError, match="3 outputs and training_mode=0"):
        mo.load(one_node("BatchNormalization", example((4, 3, 5)), 15, NAMES[:3]))


def test_saved_var_is_the_variance_unless_asked_for_what_onnxruntime_gives(one_node: Any, close: Any) -> None:
    arrays = example((4, 3, 5))
    model = mo.load(one_node("BatchNormalization", arrays, 9, NAMES))
    expected = formula(*arrays, trains=True)[4]
    close(model(*map(mn.Tensor, arrays))[4], expected, 2)
    for module in model.children():
        module.inverse_saved_var = True
    close(model(*map(mn.Tensor, arrays))[4], 1 / np.sqrt(expected + EPS), 2)


@pytest.mark.parametrize("held", [(), (1, 2, 3, 4)], ids=["computed", "owned"])
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("t2", FLOATS, ids=lambda t: f"statistics {t}")
@pytest.mark.parametrize("t1", FLOATS, ids=lambda t: f"scale {t}")
@pytest.mark.parametrize("t", FLOATS, ids=lambda t: f"x {t}")
def test_three_types(t: Any, t1: Any, t2: Any, trains: bool, held: Any, one_node: Any, close: Any) -> None:
    arrays = example((4, 3, 5), (t, t1, t2))
    attributes, count = TRAINING[15] if trains else ({}, 1)
    model = mo.load(one_node("BatchNormalization", arrays, 15, NAMES[:count], held, **attributes))
    result = model(*[mn.Tensor(a) for i, a in enumerate(arrays) if i not in held])
    types = (t, t2, t2)
    for got, want, dtype in zip(result if trains else [result], formula(*arrays, trains=trains), types, strict=False):
        assert got.dtype == dtype
        # Statistics of float32 data carry the rounding of float32, in whatever type they are kept.
        close(got.to(mn.float32) if dtype == mn.float64 and t != mn.float64 else got, want, 2)


def test_momentum_is_the_decimal_that_was_written_and_never_warns(one_node: Any) -> None:
    arrays = example((4, 3, 5), mn.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = mo.load(one_node("BatchNormalization", arrays, 15, NAMES[:3], training_mode=1))(
            *map(mn.Tensor, arrays)
        )
        np.testing.assert_allclose(results[1].array, formula(*arrays, trains=True)[1], rtol=1e-14)
        low = mo.load(
            one_node("BatchNormalization", arrays, 15, NAMES[:3], (3, 4), training_mode=1, momentum=0.1, epsilon=0.25)
        )
        results = low(*map(mn.Tensor, arrays[:3]))
    expected = formula(*arrays, trains=True, eps=0.25, momentum=0.1)
    for got, want in zip(results, expected, strict=False):
        np.testing.assert_allclose(got.array, want, rtol=1e-13)


@pytest.mark.parametrize("held", [(), (1, 2, 3, 4)], ids=["computed", "owned"])
@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1, 1)])
def test_one_value_a_channel_gives_the_bias(shape: tuple[int, ...], held: Any, one_node: Any, close: Any) -> None:
    arrays = example(shape)
    model = mo.load(one_node("BatchNormalization", arrays, 15, NAMES[:3], held, training_mode=1))
    inputs = [mn.tensor(a, requires_grad=True) for i, a in enumerate(arrays) if i not in held]
    y, mean, var = model(*inputs)
    np.testing.assert_array_equal(y.array.reshape(3), arrays[2])
    close(mean, arrays[3] * MOMENTUM + arrays[0].reshape(3) * (1 - MOMENTUM))
    close(var, arrays[4] * MOMENTUM)
    y.sum().backward()
    np.testing.assert_array_equal(inputs[0].grad.array, np.zeros(shape))


@pytest.mark.parametrize("held", [(), (1, 2, 3, 4)], ids=["computed", "owned"])
@pytest.mark.parametrize("shape", [(0, 3, 2, 2), (2, 3, 0), (0, 3)])
def test_an_empty_batch_changes_nothing(shape: tuple[int, ...], held: Any, one_node: Any) -> None:
    arrays = example(shape)
    model = mo.load(one_node("BatchNormalization", arrays, 15, NAMES[:3], held, training_mode=1))
    y, mean, var = model(*[mn.Tensor(a) for i, a in enumerate(arrays) if i not in held])
    assert y.shape == shape
    np.testing.assert_array_equal(mean.array, arrays[3])
    np.testing.assert_array_equal(var.array, arrays[4])


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (3, 2, 4), (1, 2, 1)])
def test_gradients_through_all_five_inputs(shape: tuple[int, ...], trains: bool, one_node: Any) -> None:
    arrays = example(shape, mn.float64)
    attributes, count = TRAINING[15] if trains else ({}, 1)
    model = mo.load(one_node("BatchNormalization", arrays, 15, NAMES[:count], **attributes))
    gradcheck(model, *arrays)


@pytest.mark.parametrize("version", [6, 7, 9, 14, 15])
def test_gradients_of_a_layer_that_owns_its_statistics(version: int, one_node: Any) -> None:
    attributes, count = TRAINING[version]
    arrays = example((4, 3, 2), mn.float64)
    model = mo.load(
        one_node("BatchNormalization", arrays, version, NAMES[:count], (3, 4), declared=["y"], **attributes)
    )
    gradcheck(model, *arrays[:3])


# Modes


def test_train_and_eval_switch_a_layer_that_owns_its_statistics(one_node: Any, close: Any) -> None:
    arrays = example((4, 3, 5))
    model = mo.load(one_node("BatchNormalization", arrays, 15, held=(1, 2, 3, 4)))
    x = mn.Tensor(arrays[0])
    assert [name for name, _ in model.named_parameters()] == ["i1", "i2"]
    model.train()
    close(model(x), formula(*arrays, trains=True)[0], 2)
    _, mean, var, *_ = formula(*arrays, trains=True)
    model.eval()
    close(model(x), formula(*arrays[:3], mean, var, trains=False)[0], 3)
    model.train().freeze().train()
    close(model(x), formula(*arrays[:3], mean, var, trains=False)[0], 3)
    assert not any(p.requires_grad for p in model.parameters())
    model.unfreeze()
    close(model(x), formula(*arrays, trains=True)[0], 2)


@pytest.mark.parametrize("trains", [False, True])
def test_where_the_graph_computes_the_statistics_the_form_stays(trains: bool, one_node: Any, close: Any) -> None:
    arrays = example((4, 3, 5))
    attributes, count = TRAINING[15] if trains else ({}, 1)
    model = mo.load(one_node("BatchNormalization", arrays, 15, NAMES[:count], (1, 2, 3), declared=["y"], **attributes))
    assert [name for name, _ in model.named_parameters()] == (["i1", "i2", "i3"] if not trains else ["i1", "i2"])
    assert not list(model.buffers())
    for mode in (True, False):
        model.train(mode)
        close(model(mn.Tensor(arrays[0]), mn.Tensor(arrays[4])), formula(*arrays, trains=trains)[0], 2)


def test_statistics_behind_a_computation_train_and_those_that_are_as_they_are_do_not(close: Any) -> None:
    from onnx import TensorProto, helper, numpy_helper

    x, s, b, mean, var = example((4, 3, 5))
    half = np.array(0.5, np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["var", "half"], ["v"]),
            helper.make_node("BatchNormalization", ["x", "s", "b", "mean", "v"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for a, n in ((s, "s"), (b, "b"), (mean, "mean"), (var, "var"), (half, "half"))],
    )
    model = mo.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8))
    assert {name for name, _ in model.named_parameters()} == {"s", "b", "var"}  # the mean stays a mean
    y = model.train()(mn.Tensor(x))
    close(y, formula(x, s, b, mean, var + half, trains=False)[0], 2)
    y.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("opset", [7, 9, 14, 15, 26])
@pytest.mark.parametrize("training", [False, True])
def test_there_and_back_again(training: bool, opset: int, lived_in: Any) -> None:
    net = nn.Sequential(nn.Conv2d(2, 3, 1), lived_in(nn.BatchNorm2d(3)), nn.ReLU(), lived_in(nn.BatchNorm2d(3)))
    net[3].freeze()
    x = mn.randn(4, 2, 3, 3)
    file = mo.export(net, x, opset_version=opset, training=training)
    model = mo.load(file.SerializeToString())
    state = {name for name in net.state_dict() if not name.endswith("num_batches_tracked")}
    assert set(model.state_dict()) == state
    assert [(m.training, m.frozen) for m in (model.get_submodule("1"), model.get_submodule("3"))] == [
        (training, False),
        (False, True),
    ]
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["3.weight", "3.bias"]
    again = mo.load(mo.export(model, x, opset_version=opset, training=training))
    assert (again.input_names, again.output_names) == (model.input_names, model.output_names)
    assert list(again.state_dict()) == list(model.state_dict())
    net.train(training)
    want = net(x)
    for loaded in (model, again):
        got = loaded(x)
        got = got if isinstance(got, tuple) else (got,)
        np.testing.assert_allclose(got[0].array, want.array, rtol=1e-5, atol=1e-6)
        for name, value in loaded.state_dict().items():
            np.testing.assert_allclose(value.array, net.state_dict()[name].array, rtol=1e-6, atol=1e-7)


def test_merged_initializers_of_a_fresh_model_do_not_share_statistics(close: Any) -> None:
    """scale is var, B is mean, and both layers name the same tensors: what optimizers make of ones and zeros."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(3)
    x = rng.normal(2, 3, (6, 4)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("BatchNormalization", ["x", "ones", "zeros", "zeros", "ones"], ["h", "m", "v"], **MODE),
            helper.make_node("Add", ["h", "shift"], ["k"]),
            helper.make_node("BatchNormalization", ["k", "ones2", "zeros", "zeros", "ones"], ["y", "n", "w"], **MODE),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "m", "n")],
        [
            numpy_helper.from_array(np.ones(4, np.float32), "ones"),
            numpy_helper.from_array(np.zeros(4, np.float32), "zeros"),
            numpy_helper.from_array(np.ones(4, np.float32), "ones2"),
            numpy_helper.from_array(np.float32(5), "shift"),
        ],
    )
    model = mo.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8))
    assert {name for name, _ in model.named_parameters()} == {"ones", "zeros", "ones2"}
    assert len(list(model.buffers())) == 4
    _, m, n = model(mn.Tensor(x))
    close(m, x.mean(0, np.float64) * (1 - MOMENTUM), 2)
    close(n, np.full(4, 5 * (1 - MOMENTUM)), 2)
    np.testing.assert_array_equal(dict(model.named_parameters())["zeros"].array, np.zeros(4))


MODE = {"training_mode": 1}


def test_statistics_that_a_tool_made_of_scale_and_bias_are_not_those(graph_of: Any, close: Any) -> None:
    """PyTorch's exporter, of a fresh model: running_mean = Identity(bias), since both are zeros."""
    from onnx import helper

    x, s, b, *_ = example((6, 3, 5))
    graph = graph_of(
        [
            helper.make_node("Identity", ["bn.bias"], ["bn.running_mean"]),
            helper.make_node("Identity", ["bn.weight"], ["bn.running_var"]),
            helper.make_node(
                "BatchNormalization",
                ["x", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"],
                ["y", "m", "v"],
                training_mode=1,
            ),
        ],
        {"x": (np.float32, [None, 3, 5])},
        ["y"],
        {"bn.weight": s, "bn.bias": b},
        opset=15,
    )
    model = mo.load(graph)
    assert [name for name, _ in model.named_buffers()] == ["bn.running_mean", "bn.running_var"]
    y, mean, var, *_ = formula(x, s, b, b, s, trains=True)
    close(model(mn.Tensor(x)), y, 2)
    state = model.state_dict()
    close(state["bn.running_mean"], mean, 2)
    close(state["bn.running_var"], var, 2)
    np.testing.assert_array_equal(state["bn.bias"].array, b)
    np.testing.assert_array_equal(state["bn.weight"].array, s)
    again = mo.load(mo.export(model, mn.Tensor(x), None, training=None))
    assert set(again.state_dict()) == set(state)
    assert again.output_names == ["y"]


@pytest.mark.parametrize("opset", [9, 15, 22])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.BatchNorm2d(3, momentum=None), (4, 3, 2, 2)),
        (lambda: nn.BatchNorm2d(3, unbiased_running_var=True), (4, 3, 2, 2)),
        (lambda: nn.BatchNorm1d(3, momentum=None, unbiased_running_var=True, affine=False), (4, 3)),
        (lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), (4, 3, 2, 2)),
        (lambda: nn.InstanceNorm2d(3, track_running_stats=True, momentum=None), (4, 3, 2, 2)),
    ],
)
def test_training_graphs_whose_statistics_other_nodes_blend(make: Any, shape: Any, opset: int, lived_in: Any) -> None:
    net = nn.Sequential(lived_in(make()), nn.ReLU())
    x = mn.randn(*shape)
    proto = mo.export(net, x, opset_version=opset, training=True)
    names = [entry.name for entry in proto.graph.output]
    assert names[0] == "output"
    assert {"0.running_mean.updated", "0.running_var.updated"} <= set(names[1:])
    model = mo.load(proto)
    second = mo.export(model, x, opset_version=opset, training=True)
    assert [entry.name for entry in second.graph.output] == names
    asis = mo.export(mo.load(proto), x, opset_version=opset, training=None)
    assert [entry.name for entry in asis.graph.output] == names
    again = mo.load(second)
    whole = mo.load(asis, outputs=names)
    cut = mo.load(proto, outputs=["output"])
    assert model.output_names == again.output_names == cut.output_names == ["output"]
    for loaded in (model, again, whole, cut):
        assert [name for name, _ in loaded.named_parameters()] == [name for name, _ in net.named_parameters()]
        assert {name for name, _ in loaded.named_buffers()} <= {name for name, _ in net.named_buffers()}
        assert {"0.running_mean", "0.running_var"} <= {name for name, _ in loaded.named_buffers()}
    net.train()
    for step in range(3):
        x = mn.randn(*shape)
        want = net(x)
        state = net.state_dict()
        for loaded in (model, again, whole, cut):
            y = loaded(x)
            if loaded is whole:
                y, *new = y
                for name, value in zip(names[1:], new, strict=True):
                    key = name.removesuffix(".updated")
                    np.testing.assert_allclose(value.array, state[key].array, rtol=1e-5, atol=1e-6, err_msg=name)
            np.testing.assert_array_equal(y.array, want.array)
            # Nodes blend the new statistics, and round once more, only if the graph returns them.
            exact = {"rtol": 1e-5, "atol": 1e-6} if loaded is whole else {"rtol": 0}
            for name, buffer in loaded.named_buffers():
                np.testing.assert_allclose(buffer.array, state[name].array, **exact, err_msg=f"{name} {step}")
        with mn.no_stats_update():
            model(x)
    before = {name: buffer.array.copy() for name, buffer in model.named_buffers()}
    blended = {name: buffer.array.copy() for name, buffer in whole.named_buffers()}
    model.eval()
    whole.eval()
    net.eval()
    y = model(x)
    _, *kept = whole(x)
    for name, value in zip(names[1:], kept, strict=True):
        np.testing.assert_array_equal(value.array, blended[name.removesuffix(".updated")])
    inference = mo.export(model, x, opset_version=opset)
    assert [entry.name for entry in inference.graph.output] == ["output"]
    np.testing.assert_allclose(mo.load(inference)(x).array, y.array, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(y.array, net(x).array)
    for name, buffer in model.named_buffers():
        np.testing.assert_array_equal(buffer.array, before[name])


def test_arithmetic_with_running_statistics_sees_them_as_they_were(graph_of: Any, close: Any) -> None:
    from onnx import helper

    x, s, b, mean, var = example((4, 3, 5))
    graph = graph_of(
        [
            helper.make_node("BatchNormalization", ["x", "s", "b", "mean", "var"], ["y", "m", "v"], training_mode=1),
            helper.make_node("Sub", ["m", "mean"], ["step"]),
        ],
        {"x": (np.float32, [None, 3, 5])},
        ["y", "step"],
        {"s": s, "b": b, "mean": mean, "var": var},
    )
    model = mo.load(graph)
    assert [name for name, _ in model.named_buffers()] == ["mean", "var"]
    new = formula(x, s, b, mean, var, trains=True)[1]
    close(model(mn.Tensor(x))[1], new - mean, 2)
    close(model(mn.Tensor(x))[1], formula(x, s, b, new, var, trains=True)[1] - new, 2)
