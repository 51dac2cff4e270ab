"""Quantization-aware training: the model trains with floats that are rounded in the same way as in the int8 model.

    qat = prepare_qat(model, example)       # a copy of the model, which rounds all values that will be integers
    ...                                     # train qat as the model was trained
    freeze_bn_stats(qat)                    # for the last epochs: BatchNorm uses its running statistics
    int8 = convert(qat)                     # integers
    minorm.onnx.export(int8, example, "int8.onnx")

The model's code is neither changed nor read; instead, we watch the operations of the running model (planning.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minorm.graph import trace
from minorm.graph.grad_mode import no_grad
from minorm.nn import Module, ModuleDict, Parameter
from minorm.ops.quantization import FakeQuantize as Rounding
from minorm.quantization.fake_quantize import FakeQuantize
from minorm.quantization.norm_folding import along_channels, least_bias_step, slope_and_offset
from minorm.quantization.planning import Plan, make_plan
from minorm.quantization.qconfig import QConfig, activation_quantizer, default_qat_qconfig, weight_quantizer
from minorm.quantization.recorded_steps import Step, round_parts, tensors_of
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

INT32 = 2**31


class Interception:
    """Runs a model step by step, following its plan; a subclass decides how to compute a step."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.place = plan, 0

    def call(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Compute a public function of the model, and round its result."""
        step = self._next(function)
        return self.finish(step, self.compute(step, function, arguments))

    def applied(self, function: type, arguments: dict[str, Any], result: Any) -> Any:  # noqa: ARG002
        """Round the result of an operator of the model."""
        return self.finish(self._next(function), result)

    def changed(self, tensor: Tensor) -> None:
        """Do nothing after a change in place, because the tensor already has the rounded value."""

    def compute(self, step: Step, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Compute the step's result; rounding follows later."""
        raise NotImplementedError

    def finish(self, step: Step, result: Any) -> Any:
        """Return the step's result. The Tensors in the result that the plan names are rounded first."""
        return round_parts(result, step.outputs, self.rounded)

    def rounded(self, x: Tensor, key: str) -> Tensor:
        """Return an activation after rounding; `key` is the key of its Site."""
        raise NotImplementedError

    def _next(self, target: Any) -> Step:
        steps = self.plan.steps
        if self.place == len(steps) or steps[self.place].target is not target:
            expected = steps[self.place].target.__name__ if self.place < len(steps) else "no further operation"
            raise RuntimeError(
                f"the model's operation {self.place} is {target.__name__}; expected {expected}, as with the example "
                "inputs of prepare_qat, because the model must run the same operations for every input, in training "
                "and in evaluation"
            )
        self.place += 1
        return steps[self.place - 1]


class Rounded(Interception):
    """Runs the model with rounding: each weight and each activation goes through its FakeQuantize layer."""

    def __init__(self, model: QATModel) -> None:
        super().__init__(model.plan)
        self.fakes, self.running = model.fake_quant, not model.training or bool(model.bn_frozen.item())
        # place of a folded BatchNorm -> the bias of its convolution, and the scale of this bias as int32
        self.waiting: dict[int, tuple[Tensor | None, Any]] = {}

    def compute(self, step: Step, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Compute a step: convolutions have rounded weights, and folded BatchNorms have a rounded bias."""
        if step.weight:
            return self._weighted(step, function, arguments)
        if step.folded and (self.running or not arguments["training"]):
            return self._folded(arguments)
        return trace.called(function, arguments)

    def rounded(self, x: Tensor, key: str) -> Tensor:
        """Return the result of the FakeQuantize layer `key` for x."""
        result: Tensor = self.fakes[key](x)
        return result

    def _weighted(self, step: Step, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        fake, bias = self.fakes[str(step.weight)], arguments["bias"]
        arguments = {**arguments, "weight": fake(arguments["weight"])}
        if not self.running:  # the batch's mean contains the bias
            return trace.called(function, arguments)
        bias_step = None
        if step.source is not None and fake.fake_quant_enabled.item():
            bias_step = self.fakes[step.source.key].qparams()[0] * fake.qparams()[0]
        if step.norm is not None:
            self.waiting[step.norm] = bias, bias_step
            bias = None
        return trace.called(function, {**arguments, "bias": None if bias is None else rounded_bias(bias, bias_step)})

    def _folded(self, arguments: dict[str, Any]) -> Tensor:
        """Return a * y + round(b), where a and b come from the running statistics."""
        y: Tensor = arguments["x"]
        before, bias_step = self.waiting.pop(self.place - 1, (None, None))  # None: the convolution has added the bias
        a, b = slope_and_offset(
            arguments["running_mean"], arguments["running_var"], arguments["eps"], arguments["weight"],
            arguments["bias"], before,
        )  # fmt: skip
        if bias_step is not None:
            b = rounded_bias(b, bias_step * np.abs(a.detach().cpu().array))
        form = along_channels(y, channels_last=False)
        return y * a.reshape(*form) + b.reshape(*form)


def rounded_bias(bias: Tensor, step: Any) -> Tensor:
    """Return a bias rounded to int32. The step is input scale times weight scale; it is larger if the bias would
    overflow int32.
    """
    if step is None:
        return bias
    scale = np.maximum(step, least_bias_step(bias.detach().cpu().array)).astype(np.float32)
    result: Tensor = Rounding.apply(bias, Tensor(scale).to(bias.device), None, low=-INT32, high=INT32 - 1, axis=0)
    return result


@documented(
    {},
    model="the model itself",
    plan="which operations of the model become integers",
    fakes="a dict from key to FakeQuantize layer",
    example="the example inputs of prepare_qat",
)
class QATModel(Module):
    """The result of `prepare_qat`: the model, with a FakeQuantize for each weight and activation that becomes integers.

    `model` is the model itself, whose parameters are trained; its state_dict has the same keys as before. `fake_quant`
    holds the FakeQuantize layers. The FakeQuantize layer of a weight has the weight's name. The FakeQuantize layer of
    an activation has the name of the layer after which the activation is rounded. In these names, _ replaces each dot.

    Example:
        >>> qat = mn.quantization.prepare_qat(nn.Sequential(nn.Linear(3, 2)), mn.randn(4, 3))
        >>> type(qat).__name__, list(qat.model.state_dict())
        ('QATModel', ['0.weight', '0.bias'])
    """

    bn_frozen: Tensor

    def __init__(self, model: Module, plan: Plan, fakes: dict[str, FakeQuantize], example: tuple[Any, ...]) -> None:
        super().__init__()
        self.model, self.plan, self.example = model, plan, example
        self.fake_quant = ModuleDict(fakes)
        self.register_buffer("bn_frozen", Tensor(np.array(0, np.uint8)))

    def forward(self, *args: Any) -> Any:
        """Return model(*args), with rounded weights and activations."""
        interception = Rounded(self)
        given = round_parts(args, self.plan.inputs, interception.rounded)
        with trace.intercepted(interception):
            return self.model(*given)

    @property
    def names(self) -> dict[str, str]:
        """Map the key of each weight's FakeQuantize layer to the weight's name in the model."""
        return self.plan.weights

    def weight_of(self, step: Step) -> Parameter:
        """Return the weight that a step reads."""
        return self.model.get_parameter(self.names[str(step.weight)])

    @property
    def has_scales(self) -> bool:
        """True if the observers have seen every activation that becomes integers."""
        return all(self.fake_quant[site.key].activation_post_process.has_seen for site in self.plan.sites)

    def freeze_observers(self) -> None:
        """Keep the scales of activations unchanged from now on; the scales of weights still follow the weights."""
        for site in self.plan.sites:
            self.fake_quant[site.key].disable_observer()

    def extra_repr(self) -> str:
        """Say whether the statistics of folded BatchNorms are frozen."""
        return f"bn_frozen={bool(self.bn_frozen.item())}"


@documented(
    {},
    model="the model in float32, trained or not; it does not change unless inplace is True",
    example_inputs="a Tensor, or a tuple of the model's arguments, in the shape of a batch; the model runs once on "
    "them",
    qconfig="the kinds of FakeQuantize for weights and activations; None is `get_default_qat_qconfig()`",
    inplace="True trains the model itself instead of a copy",
    exclude="the paths of modules that stay float, together with all modules inside them",
)
def prepare_qat(
    model: Module,
    example_inputs: Any,
    qconfig: QConfig | None = None,
    inplace: bool = False,
    exclude: Sequence[str] = (),
) -> QATModel:
    """Make a model whose convolutions and linear layers round weights, inputs and outputs like the int8 model.

    Train the result like any other model, in training mode; then `convert` makes the int8 model. If a layer has no int8
    form and is not in `exclude`, a ValueError names its path.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        >>> qat = mn.quantization.prepare_qat(model, mn.randn(2, 1, 8, 8))
        >>> list(qat.fake_quant)
        ['0_weight', 'input', '0']
    """
    if isinstance(exclude, str):
        raise TypeError(f"prepare_qat: exclude is {exclude!r}; expected a tuple of paths, such as ({exclude!r},)")
    return prepared(model, example_inputs, qconfig, inplace, tuple(exclude))


def prepared(
    model: Module,
    example_inputs: Any,
    qconfig: QConfig | None,
    inplace: bool,
    exclude: tuple[str, ...],
    strict: bool = True,
) -> QATModel:
    """Do the work of `prepare_qat`; if `strict` is False, layers without an int8 form stay float (`plan.floats`)."""
    if not isinstance(model, Module):
        raise TypeError(f"prepare_qat: model is a {type(model).__name__}; expected an nn.Module")
    if isinstance(model, QATModel):
        raise TypeError("prepare_qat: model is a QATModel; expected a float model, such as its .model")
    qconfig = default_qat_qconfig if qconfig is None else qconfig
    args = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    if not tensors_of(args):
        raise TypeError(f"prepare_qat: example_inputs is {type(example_inputs).__name__}; expected a Tensor or several")
    for name, parameter in model.named_parameters():
        if parameter.dtype != np.float32:
            raise TypeError(f"prepare_qat: {name} is {parameter.dtype}; expected float32; use model.float() first")
    plan = make_plan(model, args, exclude, strict)
    own = model if inplace else copy.deepcopy(model)
    fakes: dict[str, FakeQuantize] = {}
    for key, name in plan.weights.items():
        fakes[key] = fake = weight_quantizer(qconfig)
        with no_grad():
            fake.observe(own.get_parameter(name))  # so that the layer has the shape of its scales
    for site in plan.sites:
        fakes[site.key] = activation_quantizer(qconfig)
    example = tuple(a.detach() if isinstance(a, Tensor) else a for a in args)
    qat = QATModel(own, plan, fakes, example)
    return qat.to(device=next(own.parameters()).device)


@documented(
    {}, module="a result of `prepare_qat`; other modules are not changed, so that `model.apply` may call this function"
)
def freeze_bn_stats(module: Module) -> None:
    """From now on, even in training, folded BatchNorms normalize with their running statistics and do not update these.

    The weight and bias of each BatchNorm are still trained. So the last epochs train the form that the device will
    compute.

    Example:
        >>> qat = mn.quantization.prepare_qat(nn.Sequential(nn.Linear(3, 2)), mn.randn(4, 3))
        >>> mn.quantization.freeze_bn_stats(qat)
        >>> qat.bn_frozen.item()
        1
    """
    if isinstance(module, QATModel):
        module.bn_frozen.fill_(1)


@documented(
    {}, module="a result of `prepare_qat`; other modules are not changed, so that `model.apply` may call this function"
)
def update_bn_stats(module: Module) -> None:
    """Undo `freeze_bn_stats`: in training, BatchNorm uses the batch's statistics again.

    Example:
        >>> qat = mn.quantization.prepare_qat(nn.Sequential(nn.Linear(3, 2)), mn.randn(4, 3))
        >>> mn.quantization.update_bn_stats(qat)
        >>> qat.bn_frozen.item()
        0
    """
    if isinstance(module, QATModel):
        module.bn_frozen.fill_(0)
