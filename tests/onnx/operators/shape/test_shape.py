from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo


@pytest.fixture
def x(rng: np.random.Generator) -> mn.Tensor:
    return mn.tensor(rng.normal(size=(2, 3, 4)).astype(np.float32))


def test_reshape_follows_the_batch(proved: Any, x: mn.Tensor, opset: int) -> None:
    proved(
        lambda x: (
            x.flatten(1),
            x.reshape(x.shape[0], 2, 6),
            x.reshape(-1),
            x.reshape(x.shape[0] * 3, 4),
            x.reshape(2, x.shape[0], 6),
            x.unsqueeze(0).squeeze(0),
            x.transpose(0, 1).reshape(3, -1, 2),
        ),
        x,
        opset=opset,
    )


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("allowzero", [0, 1])
@pytest.mark.parametrize(
    ("before", "target"),
    [((0, 3), (3, 0)), ((0, 3), (0, 3)), ((0, 3), (0, 0)), ((0, 3), (-1, 3)), ((0, 3), (0, -1)), ((2, 0), (-1, 0)),
     ((0, 3), (0, 0, 0)), ((0, 3), (0, 3, 0)), ((2, 3), (0, 3)), ((2, 3), (0, -1)), ((0,), ()), ((), (0,))],
)  # fmt: skip
def test_a_0_in_the_target_is_as_in_x_or_an_empty_axis(
    before: tuple[int, ...], target: tuple[int, ...], allowzero: int, fixed: bool
) -> None:
    """As onnx's reference; it refuses what the specification forbids."""
    onnx = pytest.importorskip("onnx")
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    kinds = [helper.make_tensor_value_info("x", 1, before), helper.make_tensor_value_info("shape", 7, [len(target)])]
    held = [helper.make_tensor("shape", 7, [len(target)], target)] if fixed else []
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], allowzero=allowzero)
    result = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], "reshape", kinds[: 2 - len(held)], [result], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    feed = {"x": np.zeros(before, np.float32)} | ({} if fixed else {"shape": np.array(target, np.int64)})
    inputs = [mn.tensor(array) for array in feed.values()]
    try:
        [expected] = ReferenceEvaluator(onnx.load_from_string(model.SerializeToString())).run(None, feed)
    except (ValueError, IndexError):
        with pytest.raises(ValueError, match="Reshape") as caught:
            mo.load(model)(*inputs)
        assert "allowzero=1" in str(caught.value) or "does not hold" in str(caught.value)
    else:
        assert mo.load(model)(*inputs).shape == expected.shape


def test_two_free_lengths_at_new_places_are_computed(proved: Any, x: mn.Tensor, operators: Any) -> None:
    axes = {"x": {0: "batch", 1: "length"}}
    model = mo.export(lambda x: x.permute(1, 0, 2).reshape(2 * x.shape[1], 2 * x.shape[0]), x, None, dynamic_axes=axes)
    assert operators(model).count("Shape") >= 1
    dims = [d.dim_param for d in model.graph.output[0].type.tensor_type.shape.dim]
    assert dims == ["2*length", "2*batch"]


def test_permute(proved: Any, x: mn.Tensor, opset: int) -> None:
    proved(lambda x: (x.permute(2, 0, 1), x.mT, x.T), x, opset=opset)


def test_expand(proved: Any, x: mn.Tensor, opset: int) -> None:
    token = mn.tensor(np.arange(4, dtype=np.float32))
    proved(
        lambda x: (
            x[:, :1].expand(-1, 5, -1),
            token.expand(x.shape[0], 1, 4),
            mn.cat([token.expand(x.shape[0], 1, 4), x], 1),
        ),
        x,
        opset=opset,
    )


def test_cat_stack_split(proved: Any, x: mn.Tensor, opset: int) -> None:
    proved(lambda x: (mn.cat([x, x], 0), mn.stack([x, -x], 1), *x.split(2, 1), *x.unbind(2)), x, opset=opset)


def test_pad_and_crop(proved: Any, x: mn.Tensor, opset: int) -> None:
    cut = -1 if opset <= 26 else 0  # the reference that runs newer opsets does not take negative amounts
    proved(lambda x: (mn.pad(x, (1, 2)), mn.pad(x, (0, cut, 2, 0), 0.5)), x, opset=opset)


def test_repeat(proved: Any, x: mn.Tensor, opset: int) -> None:
    proved(lambda x: (x.repeat(1, 2, 3), x.repeat(2, 1, 1, 1)), x, opset=opset)


def test_flip(proved: Any, x: mn.Tensor, opset: int) -> None:
    proved(lambda x: (x.flip(1), x.flip(1, 2)), x, opset=opset)
    if opset >= 10:
        proved(lambda x: x.flip(0), x, opset=opset)


def test_fillings_that_follow_the_batch(proved: Any, x: mn.Tensor, opset: int) -> None:
    proved(lambda x: x + mn.zeros(x.shape[0], 1, 4) + mn.full((x.shape[0], 3, 1), x.shape[0]), x, opset=opset)


def test_an_empty_axis(proved: Any, x: mn.Tensor) -> None:
    proved(lambda x: mn.cat([x[:, :0].reshape(x.shape[0], 0, 2, 2).reshape(x.shape[0], 0), x.flatten(1)], 1), x)
