from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm import nn
from minorm.onnx.checking import verification

onnx = pytest.importorskip("onnx")


def data(*shape: int) -> mn.Tensor:
    return mn.tensor(np.random.default_rng(3).normal(1, 2, shape).astype(np.float32))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.InstanceNorm1d(4), (2, 4, 7)),
        (nn.InstanceNorm2d(4, affine=True, eps=1e-3), (2, 4, 3, 5)),
        (nn.InstanceNorm3d(4, affine=True), (2, 4, 3, 2, 2)),
    ],
    ids=str,
)
def test_instances(
    lived_in: Any, proved: Any, operators: Any, layer: nn.Module, shape: tuple[int, ...], opset: int
) -> None:
    assert operators(proved(lived_in(layer), data(*shape), opset=opset)) == ["InstanceNormalization"]


def test_inference_with_running_statistics_is_a_batch_normalization(
    lived_in: Any, proved: Any, operators: Any, opset: int
) -> None:
    layer = lived_in(nn.InstanceNorm2d(4, track_running_stats=True))
    assert operators(proved(layer, data(2, 4, 3, 5), opset=opset)) == ["BatchNormalization"]


@pytest.mark.parametrize("opset", [7, 13, 18, 26])
@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"unbiased_running_var": True, "affine": True}], ids=str)
def test_training_gives_the_running_statistics_too(lived_in: Any, options: dict[str, Any], opset: int) -> None:
    pytest.importorskip("onnxruntime")
    layer, x = lived_in(nn.InstanceNorm2d(4, track_running_stats=True, **options)), data(3, 4, 2, 5)
    proto = mo.export(layer, x, None, opset_version=opset, training=True)
    onnx.checker.check_model(proto, full_check=True)
    names = [o.name for o in proto.graph.output]
    results = dict(zip(names, verification.run(verification.start(proto), {"x": x.array}), strict=True))
    np.testing.assert_allclose(results.pop("output"), layer(x).array, atol=1e-5)
    assert len(results) == (3 if layer.momentum is None else 2)
    for name, array in results.items():
        np.testing.assert_allclose(array, layer.state_dict()[name.removesuffix(".updated")].array, rtol=1e-5)


@pytest.mark.parametrize("opset", [7, 13, 22])
@pytest.mark.parametrize("options", [{}, {"affine": True}, {"track_running_stats": True, "affine": True}], ids=str)
def test_computed_in_float64(lived_in: Any, proved: Any, options: dict[str, Any], opset: int) -> None:
    layer = lived_in(nn.InstanceNorm2d(4, compute_dtype=mn.float64, **options))
    proved(layer, data(2, 4, 3, 5) + 100, opset=opset, tolerance=1e-7)


@pytest.mark.parametrize("dtype", [mn.float16, mn.float64, mn.bfloat16])
@pytest.mark.parametrize("opset", [13, 22])
def test_other_float_types(lived_in: Any, proved: Any, dtype: Any, opset: int) -> None:
    layer = lived_in(nn.InstanceNorm2d(4, affine=True)).to(dtype)
    proved(layer, data(2, 4, 3, 5).to(dtype), opset=opset, must_run=False)
