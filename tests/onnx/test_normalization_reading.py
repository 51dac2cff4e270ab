"""Every version of the other normalizations against its formula in float64; input gradients by finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.testing import gradcheck

pytest.importorskip("onnx")

import minorm.onnx as mo

EPS = 1e-5
FLOATS = [mn.float16, mn.bfloat16, mn.float32, mn.float64]
CODES = {mn.float32: 1, mn.float16: 10, mn.float64: 11, mn.bfloat16: 16}

float_types = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def standard(x: Any, axes: Any, eps: float = EPS) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def wide(*arrays: Any) -> list[Any]:
    return [np.asarray(a).astype(np.float64) for a in arrays]


def draw(shape: tuple[int, ...], dtype: Any = np.float64, offset: float = 3) -> Any:
    return np.random.default_rng(sum(shape)).normal(offset, 2, shape).astype(dtype)


def run(proto: Any, *arrays: Any) -> Any:
    return mo.load(proto)(*map(mn.Tensor, arrays))


# InstanceNormalization


def instance(x: Any, s: Any, b: Any, eps: float = EPS) -> Any:
    x, s, b = wide(x, s, b)
    shape = (-1, *(1,) * (x.ndim - 2))
    return standard(x, tuple(range(2, x.ndim)), eps) * s.reshape(shape) + b.reshape(shape)


@float_types
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 7), (2, 3, 2, 3, 2)])
@pytest.mark.parametrize("version", [1, 6, 22])
def test_instance(version: int, shape: tuple[int, ...], dtype: Any, one_node: Any, close: Any) -> None:
    arrays = [draw(shape, dtype), draw((3,), dtype), draw((3,), dtype)]
    extra = {"consumed_inputs": [0, 0, 0]} if version == 1 else {}
    if version == 1 and len(shape) != 4:
        with pytest.raises(ValueError, match=r"expected \(N, C, H, W\)"):
            run(one_node("InstanceNormalization", arrays, version, **extra), *arrays)
        return
    y = run(one_node("InstanceNormalization", arrays, version, **extra), *arrays)
    close(y, instance(*arrays), 4)
    assert y.dtype == dtype


@pytest.mark.parametrize("shape", [(2, 3, 1, 1), (2, 3, 1), (2, 3)])
def test_an_instance_of_one_position_is_its_bias(shape: tuple[int, ...], one_node: Any) -> None:
    arrays = [draw(shape, np.float32), draw((3,), np.float32), draw((3,), np.float32, 1)]
    y = run(one_node("InstanceNormalization", arrays, 22), *arrays)
    np.testing.assert_array_equal(y.array, np.broadcast_to(arrays[2].reshape(3, *(1,) * (len(shape) - 2)), shape))


def test_instance_epsilon_gradients_and_errors(one_node: Any, close: Any) -> None:
    arrays = [draw((2, 3, 4)), draw((3,)), draw((3,))]
    proto = one_node("InstanceNormalization", arrays, 6, epsilon=0.5)
    close(run(proto, *arrays), instance(*arrays, eps=0.5), 10)
    gradcheck(mo.load(proto), *arrays)
    with pytest.raises(ValueError, match=r"node 'node': instance_norm: weight has shape \(4,\)"):
        run(proto, draw((2, 3, 4)), draw((4,)), draw((3,)))


# GroupNormalization


def group(x: Any, groups: int, s: Any, b: Any, eps: float = EPS) -> Any:
    x, s, b = wide(x, s, b)
    n, c = x.shape[:2]
    y = standard(x.reshape(n, groups, -1), (2,), eps).reshape(x.shape)
    s, b = (np.repeat(p, c // len(p)).reshape(-1, *(1,) * (x.ndim - 2)) for p in (s, b))
    return y * s + b


@float_types
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("shape", [(2, 6, 3, 4), (3, 6, 5), (2, 6, 2, 2, 3)])
@pytest.mark.parametrize("version", [18, 21])
def test_group(version: int, shape: tuple[int, ...], groups: int, dtype: Any, one_node: Any, close: Any) -> None:
    numbers = groups if version == 18 else 6
    arrays = [draw(shape, dtype), draw((numbers,), dtype), draw((numbers,), dtype, 1)]
    y = run(one_node("GroupNormalization", arrays, version, num_groups=groups), *arrays)
    close(y, group(arrays[0], groups, *arrays[1:]), 4)
    assert y.dtype == dtype


@pytest.mark.parametrize("stash", FLOATS, ids=lambda t: f"stash {t}")
@float_types
def test_group_stash_types_are_never_less_precise_than_what_minorm_computes_in(
    dtype: Any, stash: Any, one_node: Any, close: Any
) -> None:
    arrays = [draw((2, 4, 6), dtype), draw((4,), dtype), draw((4,), dtype)]
    y = run(one_node("GroupNormalization", arrays, 21, num_groups=2, stash_type=CODES[stash]), *arrays)
    close(y, group(arrays[0], 2, *arrays[1:]), 4)
    assert y.dtype == dtype


@pytest.mark.parametrize("version", [18, 21])
def test_group_gradients(version: int, one_node: Any) -> None:
    numbers = 2 if version == 18 else 4
    arrays = [draw((2, 4, 3)), draw((numbers,)), draw((numbers,))]
    gradcheck(mo.load(one_node("GroupNormalization", arrays, version, num_groups=2)), *arrays)


def test_group_errors_say_what_the_version_wants(one_node: Any) -> None:
    x = draw((2, 4, 3), np.float32)
    channels, groups = (np.ones(n, np.float32) for n in (4, 2))
    with pytest.raises(
        ValueError, match=r"scale has shape \(4,\); expected \(2,\): version 18 has one number per group"
    ):
        run(one_node("GroupNormalization", [x, channels, channels], 18, num_groups=2), x, channels, channels)
    with pytest.raises(ValueError, match=r"scale has shape \(2,\); expected \(4,\): version 21 has one .* per channel"):
        run(one_node("GroupNormalization", [x, groups, groups], 21, num_groups=2), x, groups, groups)
    with pytest.raises(ValueError, match="num_groups=3 must divide channels=4"):
        run(one_node("GroupNormalization", [x, channels, channels], 21, num_groups=3), x, channels, channels)
    with pytest.raises(mo.LoadError, match="num_groups is 0; expected at least 1"):
        mo.load(one_node("GroupNormalization", [x, channels, channels], 21, num_groups=0))
    with pytest.raises(mo.LoadError, match="lacks the attribute 'num_groups'"):
        mo.load(one_node("GroupNormalization", [x, channels, channels], 21))
    with pytest.raises(mo.LoadError, match="stash_type is int64; expected a float type"):
        mo.load(one_node("GroupNormalization", [x, channels, channels], 21, num_groups=2, stash_type=7))


# LayerNormalization and RMSNormalization


def layer(x: Any, s: Any, b: Any, axis: int = -1, eps: float = EPS) -> list[Any]:
    x, s, b = wide(x, s, 0 if b is None else b)
    axes = tuple(range(axis % x.ndim, x.ndim))
    return [
        standard(x, axes, eps) * s + b,
        x.mean(axes, keepdims=True),
        1 / np.sqrt(x.var(axes, keepdims=True) + eps),
    ]


@float_types
@pytest.mark.parametrize("axis", [-1, 1, -3, 0])
@pytest.mark.parametrize("biased", [True, False])
def test_layer_and_its_three_outputs(biased: bool, axis: int, dtype: Any, one_node: Any, close: Any) -> None:
    x = draw((2, 3, 4), dtype)
    arrays = [x, draw(x.shape[axis:], dtype), *([draw(x.shape[axis:], dtype)] if biased else [])]
    proto = one_node("LayerNormalization", arrays, 17, ("y", "mean", "inverse"), axis=axis)
    results = run(proto, *arrays)
    for got, want in zip(results, layer(x, arrays[1], arrays[2] if biased else None, axis), strict=True):
        close(got if got.shape == x.shape else got.to(mn.float32), want, 4)
    assert [r.dtype for r in results] == [dtype, mn.float32, mn.float32]
    assert len(run(one_node("LayerNormalization", arrays, 17, axis=axis), *arrays).shape) == 3


@pytest.mark.parametrize("outputs", [("y", "", "inverse"), ("y", "mean")])
def test_layer_outputs_may_be_left_out(outputs: Any, one_node: Any, close: Any) -> None:
    arrays = [draw((3, 4), np.float32), draw((4,), np.float32)]
    _, other = run(one_node("LayerNormalization", arrays, 17, outputs), *arrays)
    close(other, layer(*arrays, None)[1 if "mean" in outputs else 2], 4)


@pytest.mark.parametrize("stash", [mn.bfloat16, mn.float32], ids=str)
@float_types
def test_layer_statistics_are_of_the_stash_type(dtype: Any, stash: Any, one_node: Any, close: Any) -> None:
    arrays = [draw((3, 8), dtype), draw((8,), dtype)]
    results = run(one_node("LayerNormalization", arrays, 17, ("y", "m", "i"), stash_type=CODES[stash]), *arrays)
    assert [r.dtype for r in results] == [dtype, stash, stash]
    for got, want in zip(results, layer(*arrays, None), strict=True):
        close(got, want, 4)


@float_types
@pytest.mark.parametrize(
    ("scale", "bias"), [((4,), (4,)), ((1, 4), (3, 1)), ((1,), (2, 3, 4)), ((), (4,)), ((3, 4), ())]
)
def test_layer_scale_and_bias_stretch_one_way(scale: Any, bias: Any, dtype: Any, one_node: Any, close: Any) -> None:
    arrays = [draw((2, 3, 4), dtype), draw(scale, dtype), draw(bias, dtype)]
    y = run(one_node("LayerNormalization", arrays, 17, axis=1), *arrays)
    close(y, layer(*arrays, axis=1)[0], 4)
    assert y.dtype == dtype


def test_layer_scale_must_not_stretch_x(one_node: Any) -> None:
    arrays = [draw((1, 4), np.float32), draw((3, 4), np.float32)]
    with pytest.raises(ValueError, match=r"scale has shape \(3, 4\); expected a shape that broadcasts to \(1, 4\)"):
        run(one_node("LayerNormalization", arrays, 17), *arrays)
    with pytest.raises(ValueError, match="node 'node': LayerNormalization: dim=5 is out of range"):
        run(one_node("LayerNormalization", arrays, 17, axis=5), *arrays)


@pytest.mark.parametrize("count", [1, 3])
def test_layer_gradients(count: int, one_node: Any) -> None:
    arrays = [draw((2, 3, 4)), draw((3, 4)), draw((3, 4))]
    proto = one_node("LayerNormalization", arrays, 17, ("y", "m", "i")[:count], axis=1)
    gradcheck(lambda *x: mo.load(proto)(*x) if count == 1 else mo.load(proto)(*x)[0], *arrays)


@float_types
@pytest.mark.parametrize("other", FLOATS, ids=lambda t: f"scale {t}")
@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_rms_is_of_the_scales_type(axis: int, other: Any, dtype: Any, one_node: Any, close: Any) -> None:
    x = draw((2, 3, 4), dtype)
    arrays = [x, draw(x.shape[axis:], other)]
    y = run(one_node("RMSNormalization", arrays, 23, axis=axis, epsilon=0.5), *arrays)
    x64, s64 = wide(*arrays)
    want = x64 / np.sqrt((x64 * x64).mean(tuple(range(axis % 3, 3)), keepdims=True) + 0.5) * s64
    assert y.dtype == other
    close(y if dtype == mn.float64 or other != mn.float64 else y.to(mn.float32), want, 4)


def test_rms_stretches_its_scale_and_has_gradients(one_node: Any, close: Any) -> None:
    arrays = [draw((2, 3, 4)), draw((1,))]
    proto = one_node("RMSNormalization", arrays, 23, axis=1)
    x = arrays[0]
    close(run(proto, *arrays), x / np.sqrt((x * x).mean((1, 2), keepdims=True) + EPS) * arrays[1], 10)
    gradcheck(mo.load(proto), *arrays)
    arrays = [draw((2, 4)), draw((4,))]
    gradcheck(mo.load(one_node("RMSNormalization", arrays, 23, stash_type=11)), *arrays)


# MeanVarianceNormalization


@float_types
@pytest.mark.parametrize("axes", [None, (0,), (1, -1), (0, 1, 2, 3)])
@pytest.mark.parametrize("version", [9, 13])
def test_mean_variance(version: int, axes: Any, dtype: Any, one_node: Any, close: Any) -> None:
    x = draw((2, 3, 4, 5), dtype)
    y = run(one_node("MeanVarianceNormalization", [x], version, **({} if axes is None else {"axes": axes})), x)
    x64 = x.astype(np.float64)
    axes = (0, 2, 3) if axes is None else axes
    close(y, (x64 - x64.mean(axes, keepdims=True)) / (x64.std(axes, keepdims=True) + 1e-9), 4)
    assert y.dtype == dtype


def test_mean_variance_of_constants_is_0_and_far_from_0_it_is_exact(one_node: Any, close: Any) -> None:
    proto = one_node("MeanVarianceNormalization", [draw((2, 3, 4, 5), np.float32)], 13)
    constant = np.full((2, 3, 4, 5), 12345.678, np.float32)
    np.testing.assert_array_equal(run(proto, constant).array, np.zeros_like(constant))
    far = draw((2, 3, 4, 5), np.float32, 1e6)
    x = far.astype(np.float64)
    close(run(proto, far), (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True), 10)
    gradcheck(mo.load(one_node("MeanVarianceNormalization", [draw((2, 3, 2))], 13, axes=[0, 2])), draw((2, 3, 2)))
    with pytest.raises(ValueError, match=r"axes .* go beyond the 2 axes"):
        run(one_node("MeanVarianceNormalization", [draw((2, 3), np.float32)], 9), draw((2, 3), np.float32))


# LpNormalization and LRN


@float_types
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("version", [1, 22])
def test_lp(version: int, axis: int, p: int, dtype: Any, one_node: Any, close: Any) -> None:
    x = draw((3, 4, 5), dtype, 0)
    x[:, :, 2] = 0  # norms of 0 along axis 0 and 1
    y = run(one_node("LpNormalization", [x], version, axis=axis, p=p), x)
    x64 = x.astype(np.float64)
    norm = np.linalg.norm(x64, p, axis, keepdims=True)
    close(y, x64 / np.where(norm == 0, 1, norm))
    assert y.dtype == dtype


def test_lp_defaults_tiny_vectors_gradients_and_errors(one_node: Any, close: Any) -> None:
    proto = one_node("LpNormalization", [draw((2, 3))], 22)
    tiny = np.array([[3e-30, -4e-30, 0], [0, 0, 0]])
    x = mn.tensor(tiny, requires_grad=True)
    y = mo.load(proto)(x)
    close(y, [[0.6, -0.8, 0], [0, 0, 0]])
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.array[1], np.zeros(3))
    gradcheck(mo.load(proto), draw((2, 3)))
    gradcheck(mo.load(one_node("LpNormalization", [draw((2, 3))], 1, p=1, axis=0)), draw((2, 3)))
    with pytest.raises(mo.LoadError, match="p is 3; expected 1 or 2"):
        mo.load(one_node("LpNormalization", [draw((2, 3))], 22, p=3))


@float_types
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 15])
@pytest.mark.parametrize("version", [1, 13])
def test_lrn_of_odd_and_even_sizes(version: int, size: int, dtype: Any, one_node: Any, close: Any) -> None:
    x = draw((2, 7, 3, 4), dtype)
    y = run(one_node("LRN", [x], version, size=size, alpha=0.5, beta=0.6, bias=1.5), x)
    x64 = x.astype(np.float64)
    alpha, beta = 0.5, 0.6
    want = np.empty_like(x64)
    for c in range(7):
        low, high = max(0, c - (size - 1) // 2), min(6, c + -(-(size - 1) // 2))  # floor below, ceil above
        want[:, c] = x64[:, c] / (1.5 + alpha / size * (x64[:, low : high + 1] ** 2).sum(1)) ** beta
    close(y, want, 2)
    assert y.dtype == dtype


def test_lrn_defaults_gradients_and_errors(one_node: Any, close: Any) -> None:
    x = draw((2, 5, 3))
    proto = one_node("LRN", [x], 13, size=4)
    gradcheck(mo.load(proto), x)
    sums = np.stack([(x[:, max(0, c - 1) : c + 3] ** 2).sum(1) for c in range(5)], 1)
    close(run(proto, x), x / (1 + 1e-4 / 4 * sums) ** 0.75, 10)
    with pytest.raises(mo.LoadError, match="size is 0; expected at least 1"):
        mo.load(one_node("LRN", [x], 13, size=0))
