"""Computes the steps of an int8 model in integers, and writes them in the form of an ONNX file.

A convolution, its BatchNorm and its ReLU are one step on integers; onnxruntime and devices use the same formula:

    sum = conv(q_x - z_x, W_q) + b_q                        exact, in int32 on a device
    q_y = clip(round(float32(sum) * M) + z_y, low, high)     M = float32(s_x * s_w / s_y); halves round to even

A tensor between two steps is float32 and holds (q - z) * s; the next step recovers the integers q from it without loss.
So operations without an integer form can read the tensor directly. During an export, the steps run in another form:
operations on floats between DequantizeLinear and QuantizeLinear. Runtimes replace this form by integer kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.functional.convolution import checked_options
from minorm.functional.quantization import dequantize, quantize
from minorm.graph import trace
from minorm.ops import elementwise
from minorm.ops.quantization import IntegerConvolution, IntegerMatMul
from minorm.quantization.norm_folding import along_channels
from minorm.quantization.qat import Interception
from minorm.quantization.recorded_steps import Step
from minorm.tensor.tensor import Tensor


@dataclass
class Grid:
    """x = (q - zero) * scale: the numbers x that the integers q of one activation stand for."""

    scale: Any
    zero: Any
    low: int
    high: int

    def integers(self, x: Any) -> Any:
        """Return q - zero in float64, where x is an array of numbers of this grid."""
        return np.rint(x.astype(np.float64) / float(self.scale))

    def round(self, x: Any) -> Any:
        """Round x, an array of float32, to numbers of this grid.

        The results are those of QuantizeLinear followed by DequantizeLinear.
        """
        q = np.clip(np.rint(x / self.scale) + np.float32(self.zero), self.low, self.high)
        return (q - np.float32(self.zero)) * self.scale


class Steps(Interception):
    """Base class of Written and Integers. It holds a QuantizedModel and the plan of this model."""

    def __init__(self, model: Any) -> None:
        super().__init__(model.plan)
        self.model = model


class Written(Steps):
    """Runs the steps in the form for an ONNX file: operations on floats between DequantizeLinear and QuantizeLinear."""

    def compute(self, step: Step, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Compute a step with dequantized weights and biases; skip a BatchNorm that is folded."""
        if step.folded:
            return arguments["x"]
        if step.weight:
            weight, scale, bias, bias_scale = self.model.parts(self.place - 1)
            zero = getattr(self.model, f"{self.model.keys[self.place - 1]}_zero_point")
            arguments = {
                **arguments,
                "weight": dequantize(weight, scale, zero, axis=0),
                "bias": dequantize(bias, bias_scale, axis=0),
            }
        return trace.called(function, arguments)

    def rounded(self, x: Tensor, key: str) -> Tensor:
        """Quantize and dequantize x."""
        scale, zero = getattr(self.model, f"{key}_scale"), getattr(self.model, f"{key}_zero_point")
        return dequantize(quantize(x, scale, zero), scale, zero)


class Integers(Steps):
    """Runs the steps in integers."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.done: set[int] = set()  # norms and clips that an earlier step has computed

    def compute(self, step: Step, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Compute a whole chain at its first step; at the later steps of the chain, return the argument unchanged."""
        if self.place - 1 in self.done:
            return arguments["x" if "x" in arguments else "input"]
        if not step.weight:
            return trace.called(function, arguments)
        self.done |= {place for place in (step.norm, step.clip) if place is not None}
        return self._weighted(step, function, arguments)

    def applied(self, function: type, arguments: dict[str, Any], result: Any) -> Any:
        """Finish an operator; compute it in integers if it is the sum of two activations."""
        step = self._next(function)
        if self.place - 1 in self.done:
            return arguments["x"]
        if len(step.sources) != 2 or step.target is not elementwise.Add:
            return self.finish(step, result)
        if step.clip is not None:
            self.done.add(step.clip)
        return self._added(step, arguments)

    def finish(self, step: Step, result: Any) -> Any:
        """Round the result, unless it has been computed in integers."""
        exact = step.weight or self.place - 1 in self.done
        return result if exact else super().finish(step, result)

    def rounded(self, x: Tensor, key: str) -> Tensor:
        """Return x rounded to the grid of this activation."""
        grid = self.model.grid(key)
        return Tensor.from_array(grid.round(x.array).astype(x.dtype, copy=False))

    def _weighted(self, step: Step, function: Callable[..., Any], arguments: dict[str, Any]) -> Tensor:
        weight, _, bias, bias_scale = self.model.parts(self.place - 1)
        assert step.source is not None
        output = self.model.plan.steps[step.last].output
        assert output is not None
        zero = getattr(self.model, f"{step.source.key}_zero_point")
        x = arguments["x"]
        q = Tensor.from_array((self.model.grid(step.source.key).integers(x.array) + zero.array).astype(zero.dtype))
        if function is F.linear:
            rows = q.reshape(-1, q.shape[-1])
            sums = IntegerMatMul.apply(rows, weight, zero, None, bias, turned=True).reshape(*q.shape[:-1], -1)
        else:
            given = {name: arguments[name] for name in ("weight", "bias", "stride", "padding", "dilation", "groups")}
            form = checked_options(function.__name__, weight.ndim - 2, x, **given)
            sums = IntegerConvolution.apply(q, weight, zero, None, bias, form=tuple(form.values()))
        grid = self.model.grid(output.key)
        shape = along_channels(sums, function is F.linear)
        factor = (bias_scale.array / grid.scale).astype(np.float32).reshape(shape)
        return self._on_grid(step, grid, np.rint(sums.array.astype(np.float32) * factor) + np.float32(grid.zero))

    def _added(self, step: Step, arguments: dict[str, Any]) -> Tensor:
        """Return the sum of two activations, rounding in float32 in the same order as onnxruntime's QLinearAdd:

        q = round(q_a r_a + (q_b r_b + (z - (r_a z_a + r_b z_b))))        r = scale / the sum's scale
        """
        output = self.model.plan.steps[step.last].output
        assert output is not None
        grid = self.model.grid(output.key)
        a, b = (self.model.grid(site.key) for site in step.sources)
        r_a, r_b = np.float32(a.scale / grid.scale), np.float32(b.scale / grid.scale)
        fixed = np.float32(grid.zero) - _fused(np.float32(a.zero), r_a, r_b * np.float32(b.zero))
        q_a, q_b = (g.integers(arguments[name].array) + g.zero for g, name in ((a, "a"), (b, "b")))
        return self._on_grid(step, grid, np.rint(_fused(q_a, r_a, _fused(q_b, r_b, fixed))))

    def _on_grid(self, step: Step, grid: Grid, q: Any) -> Tensor:
        """Return the floats for the integers q at the end of a chain."""
        low, high = self._bounds(step, grid)
        return Tensor.from_array(((np.clip(q, low, high) - np.float32(grid.zero)) * grid.scale).astype(np.float32))

    def _bounds(self, step: Step, grid: Grid) -> tuple[float, float]:
        """Return the least and the largest integer after a ReLU or a clip."""
        if step.clip is None:
            return grid.low, grid.high
        ends = self.model.plan.steps[step.clip].clips
        low, high = (None if end is None else float(np.rint(np.float32(end) / grid.scale) + grid.zero) for end in ends)
        return (
            grid.low if low is None else max(grid.low, low),
            grid.high if high is None else min(grid.high, high),
        )


def _fused(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once to float32.

    The sum is computed in float64, which holds products of two float32 numbers exactly.
    """
    return (a.astype(np.float64) * np.float64(b) + c.astype(np.float64)).astype(np.float32)
