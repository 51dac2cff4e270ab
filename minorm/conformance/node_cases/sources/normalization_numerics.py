"""Test normalizations of data with an offset or little variance, over any axes, in old versions and 16-bit types."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.base import Base
from onnx.backend.test.case.node import expect


def _standardized(x: Any, axes: Any, epsilon: float) -> Any:
    """Return (x - mean) / sqrt(var + epsilon), the mean, and 1 / sqrt(var + epsilon)."""
    mean = x.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + epsilon)
    return (x - mean) * inverse, mean, inverse


def _along_channels(parameter: Any, x: Any) -> Any:
    return parameter.reshape(1, -1, *[1] * (x.ndim - 2))


def _symmetric(offset: float, shape: tuple[int, ...]) -> Any:
    """Return float32 numbers around `offset`, half of them mirrored.

    Their mean over the last axis is exactly `offset`.
    """
    half = np.round(np.random.randn(*shape) * 4) / 4
    return (np.concatenate([half, -half], -1) + offset).astype(np.float32)


def _randn(*shape: int) -> Any:
    return np.random.randn(*shape).astype(np.float32)


def _scale_and_bias(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a random scale and bias.

    In float16 they are 1 and 0, because a sum that cancels would leave few of the 11 bits.
    """
    scale, bias = _randn(*shape), _randn(*shape)
    return (np.ones(shape, dtype), np.zeros(shape, dtype)) if dtype == np.float16 else (scale, bias)


def _expect(op_type: str, name: str, inputs: Any, outputs: Any, opset: int, **attributes: Any) -> None:
    inputs, outputs = dict(inputs), dict(outputs)
    expect(
        onnx.helper.make_node(op_type, list(inputs), list(outputs), **attributes),
        inputs=list(inputs.values()),
        outputs=list(outputs.values()),
        name=f"test_{name}",
        opset_imports=[onnx.helper.make_operatorsetid("", opset)],
    )


def _instance(name: str, x: Any, opset: int = 22, epsilon: float = 1e-5) -> None:
    s, bias = _scale_and_bias(x.shape[1:2], x.dtype)
    wide = x.astype(np.float64)
    y = _standardized(wide, tuple(range(2, x.ndim)), epsilon)[0] * _along_channels(s, x) + _along_channels(bias, x)
    given = {"x": x, "s": s, "bias": bias}
    _expect("InstanceNormalization", f"instancenorm_{name}", given, {"y": y.astype(x.dtype)}, opset, epsilon=epsilon)


class InstanceNormalization(Base):
    @staticmethod
    def export() -> None:
        for offset in (100, 1000, 10000):
            _instance(f"offset_{offset}", _symmetric(offset, (2, 3, 4, 4)))
        _instance("small_variance", _randn(2, 3, 4, 5) * np.float32(1e-3))
        _instance("small_variance_small_epsilon", _randn(2, 3, 4, 5) * np.float32(1e-4), epsilon=1e-12)
        _instance("one_position", _randn(2, 3, 1, 1))
        _instance("equal_values", np.full((2, 3, 4, 5), 7.5, np.float32))
        _instance("3d", _randn(2, 3, 7))
        _instance("5d", _randn(2, 3, 2, 3, 4))
        _instance("opset6", _randn(2, 3, 4, 5), 6)
        _instance("float16", _randn(2, 3, 4, 5).astype(np.float16))


def _group(name: str, x: Any, groups: int = 2, opset: int = 21, epsilon: float = 1e-5, **attributes: Any) -> None:
    """Add a case of GroupNormalization. Scale and bias are per group in version 18, and per channel in version 21."""
    size = groups if opset < 21 else x.shape[1]
    scale, bias = _scale_and_bias((size,), x.dtype)
    rows = x.astype(np.float64).reshape(x.shape[0], groups, -1)
    y = _standardized(rows, (2,), epsilon)[0].reshape(x.shape)
    s, b = (np.repeat(p, x.shape[1] // groups) if opset < 21 else p for p in (scale, bias))
    y = y * _along_channels(s, x) + _along_channels(b, x)
    given = {"x": x, "scale": scale, "bias": bias}
    attributes = {"num_groups": groups, "epsilon": epsilon, **attributes}
    _expect("GroupNormalization", f"group_normalization_{name}", given, {"y": y.astype(x.dtype)}, opset, **attributes)


class GroupNormalization(Base):
    @staticmethod
    def export() -> None:
        for opset in (18, 21):
            ending = "_opset18" if opset == 18 else ""
            for offset in (100, 1000, 10000):
                _group(f"offset_{offset}{ending}", _symmetric(offset, (2, 4, 3, 2)), opset=opset)
            _group(f"small_variance{ending}", _randn(2, 4, 3, 4) * np.float32(1e-3), opset=opset)
            tiny = _randn(2, 4, 3, 4) * np.float32(1e-4)
            _group(f"small_variance_small_epsilon{ending}", tiny, opset=opset, epsilon=1e-12)
            _group(f"one_group{ending}", _randn(2, 4, 3, 4), 1, opset)
            _group(f"group_of_each_channel{ending}", _randn(2, 4, 3, 4), 4, opset)
            _group(f"equal_values{ending}", np.full((2, 4, 3, 4), 7.5, np.float32), opset=opset)
            _group(f"3d{ending}", _randn(2, 6, 7), 3, opset)
            _group(f"5d{ending}", _randn(2, 4, 3, 2, 2), opset=opset)
        _group("float16", _randn(2, 4, 3, 4).astype(np.float16))
        _group("float16_stash_float", _randn(2, 4, 3, 4).astype(np.float16) + np.float16(100), stash_type=1)


def _layer(name: str, x: Any, axis: int = -1, shape: Any = None, **more: Any) -> None:
    """Add a case of LayerNormalization.

    Scale and bias have `shape`; bias=False omits the bias, and statistics=True adds the outputs Mean and InvStdDev.
    """
    with_bias, statistics = more.pop("bias", True), more.pop("statistics", False)
    epsilon = more.get("epsilon", 1e-5)
    scale, bias = _scale_and_bias(shape or x.shape[axis:], x.dtype)
    axes = tuple(range(axis % x.ndim, x.ndim))
    y, mean, inverse = _standardized(x.astype(np.float64), axes, epsilon)
    y = y * scale + (bias if with_bias else 0)
    given = {"X": x, "W": scale, **({"B": bias} if with_bias else {})}
    outputs = {"Y": y.astype(x.dtype)}
    if statistics:
        outputs |= {"Mean": mean.astype(np.float32), "InvStdDev": inverse.astype(np.float32)}
    _expect("LayerNormalization", f"layer_normalization_{name}", given, outputs, 17, axis=axis, **more)


class LayerNormalization(Base):
    @staticmethod
    def export() -> None:
        for offset in (100, 1000, 10000):
            _layer(f"offset_{offset}", _symmetric(offset, (2, 3, 8)))
            _layer(f"offset_{offset}_statistics", _symmetric(offset, (2, 3, 8)), statistics=True)
        _layer("small_variance", _randn(2, 3, 8) * np.float32(1e-3))
        _layer("small_variance_small_epsilon", _randn(2, 3, 8) * np.float32(1e-4), epsilon=1e-12, statistics=True)
        _layer("equal_values", np.full((2, 3, 8), 7.5, np.float32), statistics=True)
        _layer("one_element", _randn(2, 3, 1))
        _layer("no_bias", _randn(2, 3, 8), bias=False)
        _layer("scale_broadcasts", _randn(2, 3, 8), 1, (1, 8))
        _layer("scale_of_each_row", _randn(2, 3, 8), -1, (3, 8))
        _layer("float16", _randn(2, 3, 8).astype(np.float16))
        _layer("float16_statistics_float", _randn(2, 3, 8).astype(np.float16), statistics=True, stash_type=1)


def _rms(name: str, x: Any, axis: int = -1, scale: Any = None, **attributes: Any) -> None:
    """Add a case of RMSNormalization, where Y has the type of scale."""
    scale = np.random.randn(*x.shape[axis:]).astype(x.dtype) if scale is None else scale
    axes, wide = tuple(range(axis % x.ndim, x.ndim)), x.astype(np.float64)
    y = wide / np.sqrt((wide**2).mean(axes, keepdims=True) + attributes.get("epsilon", 1e-5)) * scale
    given, outputs = {"X": x, "W": scale}, {"Y": y.astype(scale.dtype)}
    _expect("RMSNormalization", f"rms_normalization_{name}", given, outputs, 23, axis=axis, **attributes)


class RMSNormalization(Base):
    @staticmethod
    def export() -> None:
        _rms("small_values", _randn(2, 3, 8) * np.float32(1e-3))
        _rms("small_values_small_epsilon", _randn(2, 3, 8) * np.float32(1e-4), epsilon=1e-12)
        _rms("large_values", _randn(2, 3, 8) * np.float32(1e15))
        _rms("offset_10000", _symmetric(10000, (2, 3, 8)))
        _rms("zeros", np.zeros((2, 3, 8), np.float32))
        _rms("one_element", _randn(2, 3, 1))
        _rms("scale_broadcasts", _randn(2, 3, 8), 1, _randn(1, 8))
        _rms("float16_values_300", (_randn(2, 3, 8) * 300).astype(np.float16), -1, np.ones(8, np.float16))


def _mvn(name: str, x: Any, opset: int = 13, **attributes: Any) -> None:
    """Add a case of MeanVarianceNormalization, which adds 1e-9 to the standard deviation, not under the root."""
    attributes.setdefault("axes", [0, 2, 3])
    axes, wide = tuple(attributes["axes"]), x.astype(np.float64)
    centred = wide - wide.mean(axes, keepdims=True)
    y = centred / (wide.std(axes, keepdims=True) + 1e-9)
    _expect("MeanVarianceNormalization", f"mvn_{name}", {"X": x}, {"Y": y.astype(x.dtype)}, opset, **attributes)


class MeanVarianceNormalization(Base):
    @staticmethod
    def export() -> None:
        for opset in (9, 13):
            ending = "_opset9" if opset == 9 else ""
            for offset in (100, 1000, 10000):
                _mvn(f"offset_{offset}{ending}", _symmetric(offset, (2, 3, 4, 4)), opset)
            _mvn(f"axes_2_3{ending}", _randn(2, 3, 4, 5), opset, axes=[2, 3])
            _mvn(f"axis_1_of_2d{ending}", _randn(4, 8), opset, axes=[1])
            _mvn(f"axis_negative_1{ending}", _randn(2, 3, 8), opset, axes=[-1])
            _mvn(f"equal_values{ending}", np.full((2, 3, 4, 5), 7.5, np.float32), opset)
            _mvn(f"small_values{ending}", _randn(2, 3, 4, 5) * np.float32(1e-4), opset)


def _lp(name: str, x: Any, p: int, axis: int = -1, opset: int = 22) -> None:
    """Add a case of LpNormalization. If the norm is 0, the result is 0."""
    wide = x.astype(np.float64)
    norm = (np.abs(wide) ** p).sum(axis, keepdims=True) ** (1 / p)
    y = np.divide(wide, norm, out=np.zeros_like(wide), where=norm != 0)
    _expect("LpNormalization", f"l{p}normalization_{name}", {"x": x}, {"y": y.astype(x.dtype)}, opset, axis=axis, p=p)


class LpNormalization(Base):
    @staticmethod
    def export() -> None:
        for p in (1, 2):
            _lp("negative_values", -np.abs(_randn(3, 4, 5)), p)
            _lp("axis_1_of_3d", _randn(3, 4, 5), p, 1)
            _lp("offset_10000", _symmetric(10000, (3, 4)), p)
            _lp("small_values", _randn(3, 4, 5) * np.float32(1e-10), p)
            _lp("float16", _randn(3, 4, 5).astype(np.float16), p)
            _lp("opset1", _randn(3, 4, 5), p, opset=1)
            _lp("zeros", np.concatenate([np.zeros((1, 5), np.float32), _randn(2, 5)]), p)


def _lrn(name: str, x: Any, size: int, opset: int = 13, **attributes: Any) -> None:
    """Add a case of LRN. If the size is even, the window has one more channel above than below."""
    given = {"alpha": 0.5, "beta": 0.75, "bias": 1.0, **attributes}
    wide, energy = x.astype(np.float64), np.zeros(x.shape)
    for c in range(x.shape[1]):
        energy[:, c] = (wide[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1] ** 2).sum(1)
    y = wide / (given["bias"] + given["alpha"] / size * energy) ** given["beta"]
    _expect("LRN", f"lrn_{name}", {"x": x}, {"y": y.astype(x.dtype)}, opset, size=size, **given)


class LRN(Base):
    @staticmethod
    def export() -> None:
        for size in (1, 2, 4, 5):
            _lrn(f"size_{size}", _randn(2, 7, 3, 4), size)
        _lrn("window_wider_than_channels", _randn(2, 3, 4, 5), 9)
        _lrn("more_samples_than_channels", _randn(7, 3, 2, 2), 3)
        _lrn("bias_2_beta_0_5", _randn(2, 7, 3, 4), 3, bias=2.0, beta=0.5)
        _lrn("offset_1000", _symmetric(1000, (2, 7, 3, 2)), 3)
        _lrn("opset1", _randn(2, 7, 3, 4), 3, 1)
