"""BatchNormalization in training mode: every momentum, older versions, offsets, small variances and 16-bit types."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.base import Base
from onnx.backend.test.case.node import expect


def _train(x: Any, s: Any, bias: Any, mean: Any, var: Any, momentum: float = 0.9, epsilon: float = 1e-5) -> Any:
    """Return y and the new running statistics, computed in float64; the variance is the population variance."""
    types = x.dtype, mean.dtype
    x, s, bias, mean, var = (a.astype(np.float64) for a in (x, s, bias, mean, var))
    axis = (0, *range(2, x.ndim))
    shape = (1, -1) + (1,) * (x.ndim - 2)
    batch_mean, batch_var = x.mean(axis), x.var(axis)
    y = (x - batch_mean.reshape(shape)) / np.sqrt(batch_var.reshape(shape) + epsilon)
    y = y * s.reshape(shape) + bias.reshape(shape)
    new_mean = mean * momentum + batch_mean * (1 - momentum)
    new_var = var * momentum + batch_var * (1 - momentum)
    return y.astype(types[0]), new_mean.astype(types[1]), new_var.astype(types[1])


def _parameters(channels: int, dtype: Any = np.float32) -> Any:
    s, bias, mean = (np.random.randn(channels).astype(dtype) for _ in range(3))
    return s, bias, mean, (np.random.rand(channels) + 0.5).astype(dtype)


def _symmetric(offset: float, shape: tuple[int, ...]) -> Any:
    """Return float32 numbers around `offset`, half of them mirrored.

    Their mean over N and positions is exactly `offset`.
    """
    half = np.round(np.random.randn(*shape) * 4) / 4
    return (np.concatenate([half, -half]) + offset).astype(np.float32)


def _case(name: str, x: Any, opset: int = 15, types: Any = None, given: Any = None, **attributes: Any) -> None:
    """Add a case.

    `types` is (type of scale and bias, type of the statistics). `given` has the arrays s, bias, mean and var.
    """
    s, bias, mean, var = given or _parameters(x.shape[1], np.float32 if types or x.dtype != np.float64 else np.float64)
    if types is not None:
        s, bias, mean, var = s.astype(types[0]), bias.astype(types[0]), mean.astype(types[1]), var.astype(types[1])
    elif x.dtype == np.float16:
        s, bias, mean, var = (a.astype(np.float16) for a in (s, bias, mean, var))
    if x.dtype == np.float16:  # a sum of two numbers would cancel, and the bits that remain of 11 test nothing
        s, bias = np.ones_like(s), np.zeros_like(bias)
    mode = {"training_mode": 1} if opset >= 14 else {}
    saved = ["saved_mean", "saved_var"] if opset < 14 else []  # the older versions have five outputs or one
    node = onnx.helper.make_node(
        "BatchNormalization",
        inputs=["x", "s", "bias", "mean", "var"],
        outputs=["y", "output_mean", "output_var", *saved],
        **mode,
        **attributes,
    )
    outputs = _train(x, s, bias, mean, var, **attributes)
    expect(
        node,
        inputs=[x, s, bias, mean, var],
        outputs=list(outputs),
        name=f"test_batchnorm_training_mode_{name}",
        opset_imports=[onnx.helper.make_operatorsetid("", opset)],
    )


class BatchNormalization(Base):
    @staticmethod
    def export_momentum() -> None:
        for name, momentum in (("0", 0.0), ("0_1", 0.1), ("0_9", 0.9), ("1", 1.0)):
            _case(f"momentum_{name}", np.random.randn(2, 3, 4, 5).astype(np.float32), momentum=momentum)

    @staticmethod
    def export_older_versions() -> None:
        for opset in (7, 9, 14):
            for name, momentum in (("0", 0.0), ("0_1", 0.1), ("0_9", 0.9), ("1", 1.0)):
                x = np.random.randn(2, 3, 4, 5).astype(np.float32)
                _case(f"opset{opset}_momentum_{name}", x, opset, momentum=momentum)

    @staticmethod
    def export_offset() -> None:
        """Test large offsets: in float32, E[x^2] - E[x]^2 loses the variance, but E[(x - mean)^2] does not."""
        for offset in (100, 1000, 10000):
            _case(f"offset_{offset}", _symmetric(offset, (2, 3, 4, 5)), momentum=0.5)

    @staticmethod
    def export_small_variance() -> None:
        x = np.random.randn(2, 3, 4, 5).astype(np.float32)
        _case("small_variance", x * np.float32(1e-3))
        _case("small_variance_small_epsilon", x * np.float32(1e-4), epsilon=1e-12)
        _case("large_values", x * np.float32(1e15), momentum=0.5)

    @staticmethod
    def export_variance_of_zero() -> None:
        _case("one_value", np.random.randn(1, 3, 1, 1).astype(np.float32))
        _case("equal_values", np.full((2, 3, 4, 5), 7.5, np.float32))

    @staticmethod
    def export_ranks() -> None:
        for shape in ((8, 3), (4, 3, 5), (2, 3, 2, 3, 2)):
            _case(f"{len(shape)}d", np.random.randn(*shape).astype(np.float32))

    @staticmethod
    def export_types() -> None:
        x = np.random.randn(2, 3, 4, 5)
        _case("float64", x, momentum=0.5)
        _case("float16", x.astype(np.float16), momentum=0.5)
        _case("opset14_float16_statistics_float32", x.astype(np.float16), 14, (np.float16, np.float32), momentum=0.5)
        _case("float16_the_rest_float32", x.astype(np.float16), 15, (np.float32, np.float32), momentum=0.5)

    @staticmethod
    def export_fresh() -> None:
        """Test one step of training that starts from the running statistics of a new layer."""
        ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
        _case("fresh", np.random.randn(2, 3, 4, 5).astype(np.float32), given=(ones, zeros, zeros, ones))
