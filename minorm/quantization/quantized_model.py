"""The int8 model, which `convert` makes from a model after quantization-aware training.

A convolution, its BatchNorm and its ReLU are one step on integers, which integer_steps.py computes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from minorm.devices import dtypes
from minorm.graph import trace
from minorm.graph.grad_mode import no_grad
from minorm.nn import Module
from minorm.quantization.fake_quantize import FakeQuantize
from minorm.quantization.integer_steps import Grid, Integers, Written
from minorm.quantization.norm_folding import least_bias_step, slope_and_offset
from minorm.quantization.planning import Plan, numbered
from minorm.quantization.qat import INT32, Interception, QATModel
from minorm.quantization.recorded_steps import Step, round_parts, tensors_of
from minorm.support.documented import documented
from minorm.support.nested import mapped
from minorm.tensor.tensor import Tensor

CPU = "cpu"


@documented({}, model="the float model, in evaluation", plan="which operations of the model are computed in integers")
class QuantizedModel(Module):
    """The result of `convert`: a model that computes in integers, and only has an evaluation mode.

    Buffers are named after the layers, with _ instead of dots. A layer has `<key>_weight` (int8) with a scale and a
    zero_point (0), and `<key>_bias` (int32) with a scale. An activation has `<key>_scale` and `<key>_zero_point`.

    Example:
        >>> qat = mn.quantization.prepare_qat(nn.Sequential(nn.Linear(3, 2)), mn.randn(4, 3))
        >>> y = qat(mn.randn(4, 3))
        >>> int8 = mn.quantization.convert(qat)
        >>> int8(mn.randn(5, 3)).shape
        (5, 2)
    """

    def __init__(self, model: Module, plan: Plan) -> None:
        super().__init__()
        self.model, self.plan = model, plan
        self.ends: dict[str, tuple[int, int]] = {}  # site -> the least and the largest integer
        self.keys: dict[int, str] = {}  # step -> the key of its buffers
        self.train(False)
        self.requires_grad_(False)

    def add_activation(self, key: str, fake: FakeQuantize) -> None:
        """Store the scale and the zero point of the activation `key`."""
        scale, zero = fake.qparams()
        self.ends[key] = fake.quant_min, fake.quant_max
        self.register_buffer(f"{key}_scale", Tensor(scale.astype(np.float32)))
        self.register_buffer(f"{key}_zero_point", Tensor(zero.astype(fake.dtype)))

    def grid(self, key: str) -> Grid:
        """Return the Grid to which the activation `key` is rounded."""
        scale, zero = getattr(self, f"{key}_scale"), getattr(self, f"{key}_zero_point")
        return Grid(np.float32(scale.item()), int(zero.item()), *self.ends[key])

    def add_weighted(self, place: int, key: str, weight: Any, scale: Any, bias: Any, bias_scale: Any) -> None:
        """Store the integers and scales of a convolution or a linear layer."""
        key = numbered(key, lambda key: key in self.keys.values())  # several steps may have the same weight
        self.keys[place] = key
        self.register_buffer(key, Tensor(weight))
        self.register_buffer(f"{key}_scale", Tensor(scale))
        self.register_buffer(f"{key}_zero_point", Tensor(np.zeros(scale.shape, weight.dtype)))
        key = key.removesuffix("_weight")
        self.register_buffer(f"{key}_bias", Tensor(bias))
        self.register_buffer(f"{key}_bias_scale", Tensor(bias_scale))

    def parts(self, place: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return weight, weight scale, bias and bias scale of a step."""
        key = self.keys[place]
        stem = key.removesuffix("_weight")
        names = key, f"{key}_scale", f"{stem}_bias", f"{stem}_bias_scale"
        weight, scale, bias, bias_scale = (getattr(self, name) for name in names)
        return weight, scale, bias, bias_scale

    def train(self, mode: bool = True) -> QuantizedModel:  # noqa: ARG002
        """Stay in evaluation mode, because integers have no gradient."""
        return super().train(False)

    def forward(self, *args: Any) -> Any:
        """Compute model(*args) in integers on the CPU; return the result on the device of the arguments."""
        elsewhere = [x.device for x in tensors_of(args) if x.device != CPU]
        if elsewhere:
            return _moved(self(*_moved(args, CPU)), elsewhere[0])
        away = next((buffer.device for buffer in self.buffers() if buffer.device != CPU), None)
        if away is not None:
            raise RuntimeError(
                f"QuantizedModel: the model's integers are on {away}; expected integers on the CPU; call model.cpu()"
            )
        written = trace.state.calls is not None
        steps = Written(self) if written else Integers(self)
        given = round_parts(args, self.plan.inputs, steps.rounded)
        with no_grad(), trace.intercepted(steps):
            return self.model(*given)


def _moved(value: Any, device: Any) -> Any:
    """Return the value on another device; it may be a Tensor, or a tuple, list or dict of Tensors."""
    return mapped(value, Tensor, lambda tensor: tensor.to(device))


class _Folds(Interception):
    """Runs the model in evaluation mode, and records the arguments of each layer and each folded BatchNorm."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.layers: dict[int, dict[str, Any]] = {}
        self.norms: dict[int, dict[str, Any]] = {}

    def compute(self, step: Step, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        if step.weight:
            self.layers[self.place - 1] = arguments
        if step.folded:
            self.norms[self.place - 1] = arguments
        return trace.called(function, arguments)

    def finish(self, step: Step, result: Any) -> Any:  # noqa: ARG002
        return result


@documented({}, model="a trained result of `prepare_qat`; it does not change")
def convert(model: QATModel) -> QuantizedModel:
    """Return the int8 model: int8 weights with BatchNorm folded in, int32 biases, and integers between its steps.

    The model computes in integers. They are equal to the integers in onnxruntime if it uses its integer kernels.
    `minorm.onnx.export` writes the model with QuantizeLinear and DequantizeLinear. Raises RuntimeError if an observer
    has not seen a batch, because then an activation has no scale.

    Example:
        >>> qat = mn.quantization.prepare_qat(nn.Sequential(nn.Linear(3, 2)), mn.randn(4, 3))
        >>> y = qat(mn.randn(4, 3))
        >>> mn.quantization.convert(qat).get_buffer("0_weight").dtype
        dtype('int8')
    """
    if not isinstance(model, QATModel):
        raise TypeError(f"convert: model is a {type(model).__name__}; expected what prepare_qat returns")
    for site in model.plan.sites:
        if not model.fake_quant[site.key].activation_post_process.has_seen:
            raise RuntimeError(
                f"convert: the activation {site.key!r} has no scale; run a batch in training mode first: qat.train(), "
                "then qat(x)"
            )
    inner = copy.deepcopy(model.model).cpu().eval()
    folds, example = _Folds(model.plan), _moved(model.example, CPU)
    with no_grad(), trace.intercepted(folds):
        inner(*example)
    result = QuantizedModel(inner, model.plan)
    for site in model.plan.sites:
        result.add_activation(site.key, cast(FakeQuantize, model.fake_quant[site.key]))
    for place, step in enumerate(model.plan.steps):
        if step.weight:
            norm = None if step.norm is None else folds.norms[step.norm]
            _add_weighted(model, result, place, folds.layers[place], norm)
    return result


def _add_weighted(
    model: QATModel, result: QuantizedModel, place: int, layer: dict[str, Any], norm: dict[str, Any] | None
) -> None:
    step = model.plan.steps[place]
    assert step.source is not None
    assert step.weight is not None
    fake = model.fake_quant[step.weight]
    weight, bias = layer["weight"].array, layer["bias"]
    given = np.broadcast_to(fake.qparams()[0].astype(np.float32), weight.shape[:1])
    slope = np.ones(weight.shape[0], np.float32)
    offset = np.zeros(weight.shape[0], np.float32) if bias is None else bias.array
    if norm is not None:
        with no_grad():
            a, b = slope_and_offset(
                norm["running_mean"], norm["running_var"], norm["eps"], norm["weight"], norm["bias"], bias
            )
        slope, offset = a.array, b.array
    if not all(np.isfinite(array).all() for array in (weight, slope, offset)):
        raise ValueError(
            f"convert: {model.names[step.weight]}, or the bias or BatchNorm after it, has a NaN or an infinity; "
            "expected finite numbers, because integers have no NaN or infinity"
        )
    folded = (np.abs(slope) * given).astype(np.float32)
    x_scale = result.grid(step.source.key).scale
    scale = np.where(folded * x_scale < least_bias_step(offset), least_bias_step(offset) / x_scale, folded)
    along = (-1, *(1,) * (weight.ndim - 1))
    steps = weight / given.reshape(along) * (folded / scale).reshape(along)
    steps = np.clip(np.rint(steps), fake.quant_min, fake.quant_max) * np.sign(slope).reshape(along)
    bias_scale = (x_scale * scale).astype(np.float32)
    whole = np.clip(np.rint(offset.astype(np.float64) / bias_scale), -INT32, INT32 - 1).astype(dtypes.int32)
    result.add_weighted(place, step.weight, steps.astype(dtypes.int8), scale, whole, bias_scale)
