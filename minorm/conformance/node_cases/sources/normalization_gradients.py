"""Test the operator Gradient: gradients of sum(y * dy) with respect to a normalization's input and parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.base import Base
from onnx.backend.test.case.model import expect
from onnx.defs import AI_ONNX_PREVIEW_TRAINING_DOMAIN, ONNX_DOMAIN


def _standardized(x: Any, axes: Any, epsilon: float) -> Any:
    """Return (x - mean) / root, and the root = sqrt(var + epsilon)."""
    root = np.sqrt(x.var(axes, keepdims=True) + epsilon)
    return (x - x.mean(axes, keepdims=True)) / root, root


def _backward(g: Any, xhat: Any, root: Any, axes: Any) -> Any:
    """Return the gradient of x, where g is the gradient of xhat = (x - mean) / root, and mean and root depend on x."""
    return (g - g.mean(axes, keepdims=True) - xhat * (g * xhat).mean(axes, keepdims=True)) / root


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


def _expect(
    node: Any, given: dict[str, Any], dy: Any, y: Any, gradients: dict[str, Any], opset: int, name: str
) -> None:
    """Add a case whose model computes y, loss = sum(y * dy) and gradients of the loss.

    `gradients` has the expected gradient for each input.
    """
    others = [key for key in (*given, "dy") if key not in gradients]
    nodes = [
        node,
        onnx.helper.make_node("Mul", ["y", "dy"], ["weighted"]),
        onnx.helper.make_node("ReduceSum", ["weighted"], ["loss"], keepdims=0),
        onnx.helper.make_node(
            "Gradient",
            [*gradients, *others],
            [f"d{key}" for key in gradients],
            domain=AI_ONNX_PREVIEW_TRAINING_DOMAIN,
            xs=list(gradients),
            zs=others,
            y="loss",
        ),
    ]
    inputs = {**given, "dy": dy}
    outputs = {"y": y, **{f"d{key}": value for key, value in gradients.items()}}
    outputs = {key: value.astype(np.float32) for key, value in outputs.items()}
    infos = [
        [onnx.helper.make_tensor_value_info(key, onnx.TensorProto.FLOAT, value.shape) for key, value in arrays.items()]
        for arrays in (inputs, outputs)
    ]
    opsets = [
        onnx.helper.make_operatorsetid(ONNX_DOMAIN, opset),
        onnx.helper.make_operatorsetid(AI_ONNX_PREVIEW_TRAINING_DOMAIN, 1),
    ]
    model = onnx.helper.make_model_gen_version(
        onnx.helper.make_graph(nodes, name, *infos), producer_name="backend-test", opset_imports=opsets
    )
    expect(model, inputs=list(inputs.values()), outputs=list(outputs.values()), name=f"test_gradient_of_{name}")


def _batch(name: str, x: Any, training: bool = True, **attributes: Any) -> None:
    s, bias, mean, dy = _randn(x.shape[1]), _randn(x.shape[1]), _randn(x.shape[1]), _randn(*x.shape)
    var = (np.random.rand(x.shape[1]) + 0.5).astype(np.float32)
    wide, g, axes = x.astype(np.float64), dy.astype(np.float64), (0, *range(2, x.ndim))
    epsilon, scale = attributes.get("epsilon", 1e-5), _along_channels(s.astype(np.float64), x)
    if training:
        xhat, root = _standardized(wide, axes, epsilon)
        dx = _backward(g * scale, xhat, root, axes)
    else:
        root = np.sqrt(_along_channels(var.astype(np.float64), x) + epsilon)
        xhat = (wide - _along_channels(mean, x)) / root
        dx = g * scale / root
    node = onnx.helper.make_node(
        "BatchNormalization", ["x", "s", "bias", "mean", "var"],
        ["y", "output_mean", "output_var"][: 3 if training else 1], training_mode=int(training), **attributes,
    )  # fmt: skip
    given = {"x": x, "s": s, "bias": bias, "mean": mean, "var": var}
    y = xhat * scale + _along_channels(bias, x)
    _expect(node, given, dy, y, {"x": dx, "s": (g * xhat).sum(axes), "bias": g.sum(axes)}, 15, f"batchnorm_{name}")


def _grouped(name: str, x: Any, groups: int, opset: int | None, **attributes: Any) -> None:
    """Add a case of GroupNormalization.

    If `opset` is None, add a case of InstanceNormalization, with one group per channel.
    """
    channels, epsilon = x.shape[1], attributes.get("epsilon", 1e-5)
    size = groups if opset == 18 else channels
    s, bias, dy = _randn(size), _randn(size), _randn(*x.shape)
    wide, g = x.astype(np.float64), dy.astype(np.float64)
    repeats, rows = channels // size, (x.shape[0], groups, -1)
    scale = _along_channels(np.repeat(s.astype(np.float64), repeats), x)
    xhat, root = _standardized(wide.reshape(rows), (2,), epsilon)
    dx = _backward((g * scale).reshape(rows), xhat, root, (2,)).reshape(x.shape)
    xhat = xhat.reshape(x.shape)
    y = xhat * scale + _along_channels(np.repeat(bias, repeats), x)
    over = (0, *range(2, x.ndim))
    ds, dbias = ((a.sum(over)).reshape(size, repeats).sum(1) for a in (g * xhat, g))
    op_type = "InstanceNormalization" if opset is None else "GroupNormalization"
    groups_too = {} if opset is None else {"num_groups": groups}
    node = onnx.helper.make_node(op_type, ["x", "s", "bias"], ["y"], **groups_too, **attributes)
    _expect(node, {"x": x, "s": s, "bias": bias}, dy, y, {"x": dx, "s": ds, "bias": dbias}, opset or 22, name)


def _trailing(name: str, x: Any, axis: int, centred: bool, **attributes: Any) -> None:
    """Add a case of LayerNormalization, or, if `centred` is False, of RMSNormalization."""
    s, bias, dy = _randn(*x.shape[axis:]), _randn(*x.shape[axis:]), _randn(*x.shape)
    wide, g, epsilon = x.astype(np.float64), dy.astype(np.float64), attributes.get("epsilon", 1e-5)
    axes, over = tuple(range(axis % x.ndim, x.ndim)), tuple(range(axis % x.ndim))
    if centred:
        xhat, root = _standardized(wide, axes, epsilon)
        dx = _backward(g * s, xhat, root, axes)
    else:
        root = np.sqrt((wide**2).mean(axes, keepdims=True) + epsilon)
        xhat = wide / root
        dx = (g * s - xhat * (g * s * xhat).mean(axes, keepdims=True)) / root
    op_type, keys = ("LayerNormalization", ["x", "s", "bias"]) if centred else ("RMSNormalization", ["x", "s"])
    node = onnx.helper.make_node(op_type, keys, ["y"], axis=axis, **attributes)
    y = xhat * s + (bias if centred else 0)
    gradients = {"x": dx, "s": (g * xhat).sum(over), "bias": g.sum(over)}
    given = {"x": x, "s": s, "bias": bias}
    chosen = ({key: arrays[key] for key in keys} for arrays in (given, gradients))
    _expect(node, next(chosen), dy, y, next(chosen), 17 if centred else 23, name)


class Gradient(Base):
    @staticmethod
    def export_batchnorm() -> None:
        _batch("training_mode", _randn(2, 3, 4, 5))
        _batch("training_mode_offset_1000", _symmetric(1000, (2, 3, 4, 4)))
        _batch("training_mode_small_variance", _randn(2, 3, 4, 5) * np.float32(1e-3))
        _batch("training_mode_2d", _randn(8, 3))
        _batch("test_mode", _randn(2, 3, 4, 5), training=False)

    @staticmethod
    def export_instancenorm_and_group_normalization() -> None:
        _grouped("instancenorm", _randn(2, 3, 4, 5), 3, None)
        _grouped("instancenorm_offset_1000", _symmetric(1000, (2, 3, 4, 4)), 3, None)
        for opset in (18, 21):
            _grouped(f"group_normalization_opset{opset}", _randn(2, 4, 3, 2), 2, opset)
            _grouped(f"group_normalization_opset{opset}_offset_1000", _symmetric(1000, (2, 4, 3, 2)), 2, opset)

    @staticmethod
    def export_layer_and_rms_normalization() -> None:
        for centred, kind in ((True, "layer"), (False, "rms")):
            _trailing(f"{kind}_normalization", _randn(2, 3, 8), -1, centred)
            _trailing(f"{kind}_normalization_axis_1", _randn(2, 3, 4), 1, centred)
            small = _randn(2, 3, 8) * np.float32(1e-2)
            _trailing(f"{kind}_normalization_small_epsilon", small, -1, centred, epsilon=1e-8)
        _trailing("layer_normalization_offset_1000", _symmetric(1000, (2, 3, 8)), -1, True)

    @staticmethod
    def export_mvn() -> None:
        """Add a case of MeanVarianceNormalization.

        This operator adds 1e-9 to the standard deviation, so the variance's term in dx has a factor (std + 1e-9) / std.
        """
        x, dy = _randn(2, 3, 4, 5), _randn(2, 3, 4, 5)
        wide, g, axes = x.astype(np.float64), dy.astype(np.float64), (0, 2, 3)
        std = wide.std(axes, keepdims=True)
        xhat = (wide - wide.mean(axes, keepdims=True)) / (std + 1e-9)
        mean, along = g.mean(axes, keepdims=True), (g * xhat).mean(axes, keepdims=True)
        dx = (g - mean - xhat * along * (std + 1e-9) / std) / (std + 1e-9)
        node = onnx.helper.make_node("MeanVarianceNormalization", ["x"], ["y"])
        _expect(node, {"x": x}, dy, xhat, {"x": dx}, 13, "mvn")

    @staticmethod
    def export_lpnormalization() -> None:
        """Add cases of y = x / n, where n is the p-norm.

        The gradient is (dy - n' * sum(dy * y)) / n; n' is sign(x) for p = 1, and y for p = 2.
        """
        for p in (1, 2):
            x, dy = _randn(3, 4, 5), _randn(3, 4, 5)
            wide, g = x.astype(np.float64), dy.astype(np.float64)
            norm = (np.abs(wide) ** p).sum(-1, keepdims=True) ** (1 / p)
            slope = np.sign(wide) if p == 1 else wide / norm
            dx = (g - slope * (g * wide / norm).sum(-1, keepdims=True)) / norm
            node = onnx.helper.make_node("LpNormalization", ["x"], ["y"], p=p)
            _expect(node, {"x": x}, dy, wide / norm, {"x": dx}, 22, f"l{p}normalization")

    @staticmethod
    def export_lrn() -> None:
        """Add a case of LRN.

        Each channel's square is in the windows of other channels, so its gradient is a sum over these windows.
        """
        x, dy, size = _randn(2, 7, 3, 4), _randn(2, 7, 3, 4), 4
        alpha, beta, bias = 0.5, 0.75, 1.0
        wide, g = x.astype(np.float64), dy.astype(np.float64)
        windows = [slice(max(0, c - (size - 1) // 2), c + size // 2 + 1) for c in range(7)]
        energy = np.stack([bias + alpha / size * (wide[:, w] ** 2).sum(1) for w in windows], 1)
        dx = g * energy**-beta
        through = -2 * alpha / size * beta * g * wide * energy ** (-beta - 1)
        for c, window in enumerate(windows):
            dx[:, window] += wide[:, window] * through[:, c : c + 1]
        node = onnx.helper.make_node("LRN", ["x"], ["y"], size=size, alpha=alpha, beta=beta, bias=bias)
        _expect(node, {"x": x}, dy, wide * energy**-beta, {"x": dx}, 13, "lrn")
