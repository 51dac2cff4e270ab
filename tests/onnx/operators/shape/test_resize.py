"""Resize against sums over the kernel, written out element by element, in every mode, and against PyTorch."""

from __future__ import annotations

import gc
import itertools
import math
import weakref
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.testing import gradcheck

pytest.importorskip("onnx")

import minorm.onnx as mo
from minorm.onnx.operators.shape.resize import Sampling

KINDS = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
)  # fmt: skip


def place(kind: str, i: int, n: int, m: int, scale: float) -> float:
    """The specification, one element at a time."""
    if kind == "asymmetric":
        return i / scale
    if kind == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if kind == "align_corners":
        return 0.0 if m == 1 else i * (n - 1) / (scale * n - 1)
    if kind == "pytorch_half_pixel" and m == 1:
        return 0.0
    x = (i + 0.5) / scale - 0.5
    if kind == "half_pixel_symmetric":
        return n / 2 * (1 - m / (scale * n)) + x
    return x


def weight(mode: str, d: float, a: float = -0.75) -> float:
    d = abs(d)
    if mode == "linear":
        return max(0.0, 1 - d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def along(x: Any, mode: str, kind: str, scale: float, exclude: bool = False) -> Any:
    """The last axis resized, by the sum over all elements from well before the axis to well after it."""
    if scale == 1:
        return x
    n = x.shape[-1]
    m = math.floor(n * scale)
    y = np.zeros((*x.shape[:-1], m))
    for i in range(m):
        at = place(kind, i, n, m, scale)
        total = 0.0
        for j in range(-8, n + 8):
            w = weight(mode, j - at)
            if exclude and not 0 <= j < n:
                continue
            total += w
            y[..., i] += w * x[..., min(max(j, 0), n - 1)]
        y[..., i] /= total
    return y


def resize(one_node: Any, x: Any, scales: Any, opset: int = 19, **attributes: Any) -> Any:
    arrays = [x, np.zeros(0, np.float32), np.array(scales, np.float32)]
    return mo.load(one_node("Resize", arrays, opset, held=(1, 2), **attributes))


@pytest.mark.parametrize("opset", [11, 13, 18, 19])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("kind", KINDS)
def test_modes_and_coordinates(one_node: Any, rng: np.random.Generator, opset: int, mode: str, kind: str) -> None:
    if kind == "half_pixel_symmetric" and opset < 19:
        pytest.skip("since 19")
    x = rng.normal(size=(2, 1, 5, 4))
    for down, right in ((1.5, 2.0), (0.625, 0.5), (1.0, 0.25)):
        for exclude in (False, True) if mode == "cubic" else (False,):
            model = resize(
                one_node, x, (1, 1, down, right), opset, mode=mode, coordinate_transformation_mode=kind,
                exclude_outside=int(exclude),
            )  # fmt: skip
            want = along(x, mode, kind, right, exclude)
            want = along(want.swapaxes(2, 3), mode, kind, down, exclude).swapaxes(2, 3)
            np.testing.assert_allclose(model(mn.Tensor(x)).array, want, atol=1e-12)
    gradcheck(model, x)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("kind", KINDS)
def test_nearest(one_node: Any, rng: np.random.Generator, rounding: str, kind: str) -> None:
    x = rng.normal(size=(1, 2, 6))
    for scale in (2.0, 0.5, 1.5):
        m = int(6 * scale)
        where = np.array([place(kind, i, 6, m, scale) for i in range(m)])
        chosen = {
            "round_prefer_floor": [math.floor(p) if p % 1 <= 0.5 else math.ceil(p) for p in where],
            "round_prefer_ceil": [math.floor(p) if p % 1 < 0.5 else math.ceil(p) for p in where],
            "floor": [math.floor(p) for p in where],
            "ceil": [math.ceil(p) for p in where],
        }[rounding]
        model = resize(one_node, x, (1, 1, scale), nearest_mode=rounding, coordinate_transformation_mode=kind)
        np.testing.assert_array_equal(model(mn.Tensor(x)).array, x[..., np.clip(chosen, 0, 5)])
    gradcheck(model, x)


@pytest.mark.parametrize(("mode", "kind"), list(itertools.product(["bilinear", "bicubic"], [False, True])))
def test_pytorch(one_node: Any, rng: np.random.Generator, mode: str, kind: bool) -> None:
    torch = pytest.importorskip("torch")
    x = rng.normal(size=(2, 3, 5, 6))
    for size in ((10, 9), (3, 4), (1, 12)):
        want = torch.nn.functional.interpolate(torch.tensor(x), size, mode=mode, align_corners=kind)
        arrays = [x, None, None, np.array([2, 3, *size])]
        attributes = {
            "mode": mode.removeprefix("bi"),
            "coordinate_transformation_mode": "align_corners" if kind else "half_pixel",
        }
        y = mo.load(one_node("Resize", arrays, 19, held=(3,), **attributes))(mn.Tensor(x))
        np.testing.assert_allclose(y.array, want.numpy(), atol=1e-10 if mode == "bilinear" else 1e-6)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias_agrees_with_pytorch_away_from_the_ends(one_node: Any, rng: np.random.Generator, mode: str) -> None:
    torch = pytest.importorskip("torch")
    x = rng.normal(size=(1, 1, 32, 40))
    want = torch.nn.functional.interpolate(torch.tensor(x), (16, 10), mode=f"bi{mode}", antialias=True).numpy()
    arrays = [x, None, None, np.array([1, 1, 16, 10])]
    attributes = {"mode": mode, "antialias": 1, "cubic_coeff_a": -0.5, "exclude_outside": 1}
    y = mo.load(one_node("Resize", arrays, 19, held=(3,), **attributes))(mn.Tensor(x))
    np.testing.assert_allclose(y.array, want, atol=1e-6)


def test_crop_and_resize(one_node: Any) -> None:
    x = np.arange(16.0).reshape(1, 1, 4, 4)
    arrays = [x, np.array([0, 0, 0, 0.5, 1, 1, 1, 1.5]), None, np.array([1, 1, 1, 3])]
    attributes = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    model = mo.load(one_node("Resize", arrays, 19, held=(1, 3), extrapolation_value=-7.0, **attributes))
    np.testing.assert_allclose(model(mn.Tensor(x)).array, [[[[7.5, 9.0, -7.0]]]])


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_the_aspect_ratio_can_be_kept(one_node: Any, policy: str) -> None:
    x = np.arange(8.0).reshape(2, 4)
    arrays = [x, None, None, np.array([7, 8])]
    model = mo.load(one_node("Resize", arrays, 19, held=(3,), keep_aspect_ratio_policy=policy))
    assert model(mn.Tensor(x)).shape == ((4, 8) if policy == "not_larger" else (7, 14))


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float32, mn.uint8])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_types(one_node: Any, dtype: Any, mode: str) -> None:
    x = np.arange(16).reshape(1, 1, 4, 4).astype(dtype)
    y = resize(one_node, x, (1, 1, 2, 2), mode=mode)(mn.Tensor(x))
    assert (y.dtype, y.shape) == (dtype, (1, 1, 8, 8))


def test_an_empty_batch_stays_empty(one_node: Any) -> None:
    x = np.zeros((0, 3, 4, 4), np.float32)
    for mode in ("nearest", "linear"):
        assert resize(one_node, x, (1, 1, 2, 2), mode=mode)(mn.Tensor(x)).shape == (0, 3, 8, 8)


def test_what_cannot_be_is_an_error(one_node: Any) -> None:
    x = mn.Tensor(np.zeros((1, 1, 4, 4)))
    with pytest.raises(mo.LoadError, match="mode is 'area'"):
        resize(one_node, x.array, (1, 1, 2, 2), mode="area")
    with pytest.raises(ValueError, match="expected numbers above 0"):
        resize(one_node, x.array, (1, 1, -2, 2))(x)
    with pytest.raises(ValueError, match="more than max_bytes"):
        resize(one_node, x.array, (1, 1, 1e9, 1e9))(x)
    with pytest.raises(ValueError, match="at least 1"):
        resize(one_node, x.array, (1, 1, 0.1, 1))(x)


@pytest.mark.parametrize(("scale", "picked"), [(0.6, [0, 2, 4, 5]), (0.5, [0, 2, 4]), (0.7, [0, 2, 3, 5]), (1.5, None)])
def test_version_10_rounds_up_where_an_axis_shrinks(scale: float, picked: Any, one_node: Any) -> None:
    x = np.arange(7 if scale == 0.6 else 6, dtype=np.float32).reshape(1, 1, 1, -1)
    scales = np.array([1, 1, 1, scale], np.float32)
    y = mo.load(one_node("Resize", [x, scales], 10, held=(1,), mode="nearest"))(mn.Tensor(x))
    assert y.array.reshape(-1).tolist() == (picked or [0, 0, 1, 2, 2, 3, 4, 4, 5])
    ort = pytest.importorskip("onnxruntime")
    proto = one_node("Resize", [x, scales], 10, held=(1,), mode="nearest")
    proto.graph.output[0].type.tensor_type.elem_type = 1
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(y.array, session.run(None, {proto.graph.input[0].name: x})[0])


def test_nearest_looks_where_float32_says(one_node: Any) -> None:
    """The scale 0.6 is a little more in float32, 1.5 / 0.6 a little less than 2.5 in float64: it must stay 2.5."""
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 1, -1)
    scales = np.array([1, 1, 1, 0.6], np.float32)
    options = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor"}
    y = mo.load(one_node("Resize", [x, None, scales], 19, held=(2,), **options))(mn.Tensor(x))
    assert y.array.reshape(-1).tolist() == [0, 2, 3]


class Attributes(dict[str, Any]):
    operator, since = "Resize", 19


def test_nothing_of_a_node_waits_for_the_garbage_collector() -> None:
    node = Attributes(mode="linear", nearest_mode="floor")
    gc.disable()
    try:
        sampling = Sampling(node)  # type: ignore[arg-type]
        gone = weakref.ref(sampling)
        del sampling
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("operator", "opset"), [("Upsample", 9), ("Resize", 10), ("Resize", 11), ("Resize", 13), ("Resize", 19)]
)
@pytest.mark.parametrize(("scale", "lengths"), [(2.6, (5, 10, 20)), (1.4, (5, 10)), (1.8, (5, 15)), (3.6, (5, 10))])
def test_lengths_are_those_of_onnxruntime(
    one_node: Any, operator: str, opset: int, scale: float, lengths: tuple[int, ...]
) -> None:
    """float32(2.6) is a little less than 2.6, and 5 times that is 13 in float32, 12.9999998 in float64."""
    ort = pytest.importorskip("onnxruntime")
    for n in lengths:
        x = np.arange(n, dtype=np.float32).reshape(1, 1, 1, n)
        scales = np.array([1, 1, 1, scale], np.float32)
        late = opset > 10
        proto = one_node(operator, [x, None, scales] if opset > 11 else [x, np.zeros(0, np.float32), scales] if late
                         else [x, scales], opset, held=(2,) if opset > 11 else (1, 2) if late else (1,))  # fmt: skip
        proto.graph.output[0].type.tensor_type.elem_type = 1
        session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        want = session.run(None, {"i0": x})[0].shape
        assert want[3] == round(n * scale)
        assert mo.load(proto)(mn.Tensor(x)).shape == want


@pytest.mark.parametrize("scale", [0.58, 2.3, 2.6, 1.1])
@pytest.mark.parametrize("opset", [11, 19])
def test_the_file_of_a_fixed_picture_has_the_lengths_of_the_model(scale: float, opset: int) -> None:
    """2.3 * 50 is 114.99999999999999 in float64, where the model and PyTorch count, and 115 in float32."""
    ort, torch = pytest.importorskip("onnxruntime"), pytest.importorskip("torch")
    x = np.arange(50, dtype=np.float32).reshape(1, 1, 5, 10).repeat(5, 3)
    model = mn.nn.Upsample(scale_factor=scale, mode="bilinear")
    proto = mo.export(model, mn.Tensor(x), opset_version=opset)
    want = torch.nn.functional.interpolate(torch.tensor(x), scale_factor=scale, mode="bilinear").numpy()
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for y in (session.run(None, {proto.graph.input[0].name: x})[0], mo.load(proto)(mn.Tensor(x)).array):
        assert y.shape == want.shape
        if scale != 1.1:  # onnxruntime copies an axis of 5 that becomes 5
            np.testing.assert_allclose(y, want, atol=1e-4)
