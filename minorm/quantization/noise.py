"""Measures, for each layer, the error that rounding causes.

noise   10 log10(sum x^2 / sum (x - rounded x)^2), in dB. x is a weight, or a layer's output in the float model. For an
        output, "rounded x" is the output in the int8 model. 20 dB is an error of a tenth, and 40 dB is an error of a
        hundredth
cost    how much the score falls if only this layer is rounded
fold    the relative difference between the output of BatchNorm with running statistics (the folded form) and with the
        batch's statistics
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.devices import copied, on_device_of
from minorm.graph import trace
from minorm.graph.grad_mode import no_grad
from minorm.nn.evaluating import evaluating
from minorm.quantization.calibration import check, rounding
from minorm.quantization.planning import Plan
from minorm.quantization.qat import Interception, QATModel
from minorm.quantization.recorded_steps import Step
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(
    {},
    name="the name of the layer's weight in the model",
    weight="the noise of the layer's weight, in dB",
    output="the noise of the layer's output, in dB",
    cost="how much the score falls if only this layer is rounded; None if no score was given",
)
@dataclass(frozen=True)
class LayerNoise:
    """The noise that rounding adds to one layer.

    Example:
        >>> mn.quantization.LayerNoise("0.weight", 42.0, 38.0, None).output
        38.0
    """

    name: str
    weight: float
    output: float
    cost: float | None = None


class _Powers:
    """Sums of squares over batches: of a signal, and of the difference between the signal and another signal."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0

    def add(self, signal: Any, other: Any) -> None:
        with on_device_of(signal):
            x, y = signal.astype(np.float64), other.astype(np.float64)
            self.signal += float((x**2).sum())
            self.noise += float(((x - y) ** 2).sum())

    def decibels(self) -> float:
        """Return 10 log10(signal / noise), which is infinite if the noise is 0."""
        if self.noise == 0:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


@documented(
    {},
    model="a result of `prepare_qat` that has scales; it does not change",
    batches="Tensors: images to run on",
    score="a function from the list of the model's results for all batches to a number, such as an accuracy; None "
    "leaves the cost out",
)
def measure_noise(
    model: QATModel, batches: Sequence[Tensor], score: Callable[[list[Tensor]], float] | None = None
) -> list[LayerNoise]:
    """Return a LayerNoise for each convolution or linear layer, in the order in which the layers run.

    Example:
        >>> qat = mn.quantization.prepare_qat(nn.Sequential(nn.Linear(3, 2)), mn.randn(4, 3))
        >>> y = qat(mn.randn(4, 3))
        >>> [layer.name for layer in mn.quantization.measure_noise(qat, [mn.randn(4, 3)])]
        ['0.weight']
    """
    batches = _several("measure_noise", model, batches)
    outputs: dict[str, _Powers] = {site.key: _Powers() for site in model.plan.sites}
    for batch in batches:
        _compare(model, batch, outputs)
    full = 0.0 if score is None else score(_results(model, batches, ()))
    rows = []
    for step in model.plan.steps:
        output = model.plan.steps[step.last].output
        if step.weight is None or output is None:
            continue
        weight, of_weight = model.weight_of(step), _Powers()
        with no_grad():
            of_weight.add(weight.array, model.fake_quant[step.weight].fake_quantize(weight).array)
        cost = None if score is None else full - score(_results(model, batches, (step.weight, output.key)))
        name, of_output = model.names[step.weight], outputs[output.key]
        rows.append(LayerNoise(name, of_weight.decibels(), of_output.decibels(), cost))
    return rows


def _several(name: str, model: Any, batches: Any) -> list[Tensor]:
    """Return the batches as a list, since several runs need them; raise ValueError if there is no batch."""
    check(name, model, batches)
    found = list(batches)
    if not found:
        raise ValueError(f"{name}: batches is empty; expected at least one batch")
    return found


def _results(model: QATModel, batches: Sequence[Tensor], keys: Iterable[str] | None) -> list[Tensor]:
    """Return the model's results if only the FakeQuantize layers in `keys` round.

    If `keys` is None, all FakeQuantize layers round.
    """
    with rounding(model, keys):
        return [model(batch) for batch in batches]


def _compare(model: QATModel, batch: Tensor, outputs: dict[str, _Powers]) -> None:
    """Run one batch with rounding and without rounding; add each activation's signal and noise to `outputs`."""
    floats: dict[str, Any] = {}

    def keep(key: str, _: Any, __: Any, result: Tensor) -> None:
        floats[key] = copied(result.array)  # a copy, as the next operation may change the array in place

    def compare(key: str, _: Any, __: Any, result: Tensor) -> None:
        outputs[key].add(floats.pop(key), result.array)

    for keys, hook in (((), keep), (None, compare)):
        with contextlib.ExitStack() as stack, rounding(model, keys):
            for key in outputs:
                stack.enter_context(model.fake_quant[key].register_forward_hook(functools.partial(hook, key)))
            model(batch)


class _Gaps(Interception):
    """Runs a float model with running statistics; also runs each folded BatchNorm with the batch's statistics."""

    def __init__(self, plan: Plan, gaps: dict[str, _Powers]) -> None:
        super().__init__(plan)
        self.gaps = gaps  # path of a BatchNorm -> its sums

    def compute(self, step: Step, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        result = trace.called(function, arguments)
        if step.folded:
            own = {"weight": arguments["weight"], "bias": arguments["bias"], "eps": arguments["eps"]}
            other = F.batch_norm(arguments["x"], None, None, training=True, **own)
            self.gaps.setdefault(step.path, _Powers()).add(result.array, other.array)
        return result

    def finish(self, step: Step, result: Any) -> Any:  # noqa: ARG002
        return result


@documented({}, model="a result of `prepare_qat`; it does not change", batches="Tensors: batches as in training")
def folding_gap(model: QATModel, batches: Sequence[Tensor]) -> dict[str, float]:
    """Map the path of each folded BatchNorm to the relative difference of its two forms, which are computed in floats:

        sqrt(sum (folded - unfolded)^2 / sum folded^2)

    `folded` is a * conv + b with the running statistics, which a device computes. `unfolded` is BatchNorm with the
    batch's statistics, which training uses until the freeze. So this difference is the change that the freeze causes.
    The difference is near 0 if the running statistics fit the data, and large if the running statistics lag behind or
    batches are small.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        >>> qat = mn.quantization.prepare_qat(model, mn.randn(4, 3))
        >>> list(mn.quantization.folding_gap(qat, [mn.randn(8, 3)]))
        ['1']
    """
    batches = _several("folding_gap", model, batches)
    gaps: dict[str, _Powers] = {}
    with evaluating(model):
        for batch in batches:
            with trace.intercepted(_Gaps(model.plan, gaps)):
                model.model(batch)
    return {path: math.sqrt(gap.noise / gap.signal) if gap.signal else 0.0 for path, gap in gaps.items()}
