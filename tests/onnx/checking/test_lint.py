"""Each oddity in a model that has it, and silence in one that has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402

from minorm.onnx.checking import inspection  # noqa: E402
from tests.onnx.loading import norms  # noqa: E402

GOOD = {"s": [1.0, 2.0], "b": [0.0, 1.0], "m": [0.5, 0.1], "v": [1.5, 2.0]}


def norm(
    tmp_path: Path,
    operator: str = "BatchNormalization",
    opset: int = 15,
    outputs: Any = ("y",),
    dtype: Any = np.float32,
    wanted: Any = None,
    held: Any = None,
    extra: Any = (),
    **attributes: Any,
) -> Any:
    """The first normalization of a model that holds one, as `inspect` describes it."""
    values = {name: np.asarray(value).astype(dtype) for name, value in (GOOD if held is None else held).items()}
    node = helper.make_node(operator, ["x", *values], list(outputs), name="n", **attributes)
    graph = helper.make_graph(
        [*extra, node],
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [4, 2, 3])],
        [helper.make_tensor_value_info(name, 1, None) for name in (wanted or outputs)],
        [onnx.numpy_helper.from_array(array, name) for name, array in values.items()],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    (found,) = inspection.inspect(path).norms
    return found


def test_a_healthy_layer_is_not_odd(tmp_path: Path) -> None:
    found = norm(tmp_path)
    assert found.odd == []
    assert (found.node, found.operator, found.since, found.mode) == ("n", "BatchNormalization", 15, "inference")
    assert (found.momentum, found.over) == (np.float32(0.9), "2 channels")
    assert found.eps == np.float32(1e-5)
    trains = norm(tmp_path, outputs=("y", "nm", "nv"), training_mode=1)
    assert (trains.mode, trains.odd) == ("training", [])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"held": GOOD | {"m": [0.0, 0.0], "v": [1.0, 1.0]}}, "stale statistics: mean 0 and variance 1 everywhere"),
        ({"held": GOOD | {"v": [-1.0, 1.0]}}, "the variance is negative in 1 of 2 channels"),
        ({"held": GOOD | {"v": [0.0, 0.0]}}, "the variance is 0 in all channels"),
        ({"held": GOOD | {"v": [1e-6, 1.0]}}, "the variance is below eps 1e-05 in 1 of 2 channels"),
        ({"held": GOOD | {"m": [np.nan, 1.0]}}, "running statistics hold NaN or infinity"),
        ({"held": GOOD | {"s": [np.inf, 1.0]}}, "scale holds NaN or infinity"),
        ({"held": GOOD | {"s": [0.0, 1.0]}}, "scale is 0 in 1 of 2 channels: the output there is the bias"),
        ({"dtype": np.float16}, "statistics in float16: small updates are lost in rounding"),
        ({"dtype": np.float16, "epsilon": 1e-8}, "eps 1e-08 is 0 in float16"),
        ({"epsilon": 0.0}, "eps is 0: constant inputs divide by 0"),
        ({"epsilon": 0.5}, "eps 0.5 is large beside a variance of 1"),
        ({"momentum": 0.1}, "momentum 0.1 keeps 10% of the old statistics: is PyTorch's 0.9 meant?"),
        ({"momentum": 0.0}, "momentum 0 forgets the past"),
        ({"momentum": 1.0}, "momentum 1 never changes the running statistics"),
        ({"momentum": 1.5}, "momentum 1.5 is not between 0 and 1"),
        (
            {"outputs": ("y", "nm", "nv"), "wanted": ["y"], "training_mode": 1},
            "the node trains, but nothing reads the running statistics",
        ),
        ({"opset": 6, "outputs": ("y", "nm", "nv")}, "is_test is absent, so the node trains"),
        (
            {"opset": 9, "outputs": ("y", "", "", "", "")},
            "have no names, so they do not exist and the node does inference",
        ),
        (
            {"opset": 7, "held": {n: np.ones((2, 3)) * 2 for n in GOOD}, "spatial": 0},
            "statistics for every position (spatial=0)",
        ),
        (
            {"operator": "GroupNormalization", "opset": 18, "num_groups": 2, "held": {"s": [1.0, 2], "b": [1.0, 2]}},
            "version 18 has one scale per group and is deprecated",
        ),
        (
            {"operator": "LayerNormalization", "opset": 17, "stash_type": 16, "held": {"s": [1.0, 2, 3]}},
            "stash_type asks for statistics in 16 bits",
        ),
        ({"operator": "MeanVarianceNormalization", "opset": 13, "held": {}, "axes": [0, 2]}, "of constant data"),
        ({"operator": "LRN", "opset": 13, "held": {}, "size": 4}, "the window is even"),
    ],
)
def test_each_oddity_is_said(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    found = norm(tmp_path, **options)
    assert any(said in sentence for sentence in found.odd), found.odd


def test_statistics_that_other_nodes_compute(tmp_path: Path) -> None:
    held = GOOD | {"half": [1.0, 1.0]}
    graph = {name: np.float32(value) for name, value in held.items() if name != "v"}
    add = helper.make_node("Add", ["half", "half"], ["v"])
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], name="n")
    proto = helper.make_graph(
        [add, node],
        "g",
        [helper.make_tensor_value_info("x", 1, [4, 2])],
        [helper.make_tensor_value_info("y", 1, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in graph.items()],
    )
    onnx.save(helper.make_model(proto, opset_imports=[helper.make_opsetid("", 15)]), tmp_path / "m.onnx")
    (found,) = inspection.inspect(tmp_path / "m.onnx").norms
    assert found.odd == ["other nodes compute the statistics, so train() and eval() have no effect here"]


@pytest.mark.parametrize(
    ("operator", "opset", "held", "attributes", "over"),
    [
        ("GroupNormalization", 21, {"s": [1.0, 1], "b": [0.0, 0]}, {"num_groups": 1}, "1 groups of 2"),
        ("InstanceNormalization", 6, {"s": [1.0, 1], "b": [0.0, 0]}, {}, "2 channels"),
        ("LayerNormalization", 17, {"s": [1.0, 1, 1]}, {}, "axes -1 to the last"),
        ("LRN", 13, {}, {"size": 3}, "3 channels"),
        ("LpNormalization", 1, {}, {"axis": 1}, "axis 1"),
        ("MeanVarianceNormalization", 9, {}, {"axes": [0, 2]}, "axes 0, 2"),
    ],
)
def test_the_other_operators(operator: str, opset: int, held: Any, attributes: Any, over: str, tmp_path: Path) -> None:
    found = norm(tmp_path, operator, opset, held=held, **attributes)
    assert (found.mode, found.momentum, found.over) == ("", None, over)


def test_a_norm_in_other_operators_is_shown_as_the_layer_that_it_is(tmp_path: Path) -> None:
    for name, kind, over in (
        ("group, instances", "GroupNorm", "2 groups, in 5 nodes"),
        ("layer, Div, Pow", "LayerNorm", "axes -1, in 9 nodes"),
        ("rms, Reciprocal", "RMSNorm", "axes -1, in 7 nodes"),
    ):
        onnx.save(norms.WAYS[name]()[1], tmp_path / "m.onnx")
        found = inspection.inspect(tmp_path / "m.onnx")
        [shown] = found.norms  # and not the InstanceNormalization that it is made of
        assert (shown.node, shown.operator, shown.since, shown.eps, shown.over) == ("norm", kind, 0, 1e-5, over)
        assert {weight.name for weight in found.weights} <= {"norm.weight", "norm.bias"}
