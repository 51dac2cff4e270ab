"""Finds scales without training: the float model runs on images, and observers see its activations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from minorm.nn.evaluating import evaluating
from minorm.quantization.fake_quantize import FakeQuantize
from minorm.quantization.qat import QATModel
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


def check(name: str, model: Any, batches: Any) -> None:
    """Raise TypeError unless `model` is the result of prepare_qat and `batches` holds Tensors."""
    if not isinstance(model, QATModel):
        raise TypeError(f"{name}: model is a {type(model).__name__}; expected what prepare_qat returns")
    if isinstance(batches, Tensor):
        raise TypeError(f"{name}: batches is a Tensor; expected several Tensors, such as [x]")


@contextmanager
def rounding(model: QATModel, keys: Iterable[str] | None) -> Iterator[None]:
    """In the block, the model is in evaluation mode, and only the FakeQuantize layers in `keys` round.

    If `keys` is None, all FakeQuantize layers round.
    """
    fakes: dict[str, FakeQuantize] = {key: model.fake_quant[key] for key in model.fake_quant}  # type: ignore[misc]
    chosen = fakes.keys() if keys is None else set(keys)
    before = {key: bool(fake.fake_quant_enabled.item()) for key, fake in fakes.items()}
    try:
        for key, fake in fakes.items():
            fake.enable_fake_quant(key in chosen)
        with evaluating(model):
            yield
    finally:
        for key, fake in fakes.items():
            fake.enable_fake_quant(before[key])


@documented(
    {},
    model="a result of `prepare_qat`; its weights and running statistics do not change",
    batches="Tensors, or tuples whose first element is a Tensor",
)
def calibrate(model: QATModel, batches: Iterable[Any]) -> QATModel:
    """Set the scale of every activation from its values in the float model, in evaluation mode; return the model.

    Raise ValueError if `batches` is empty.

    Example:
        >>> qat = mn.quantization.prepare_qat(nn.Sequential(nn.Linear(3, 2)), mn.randn(4, 3))
        >>> int8 = mn.quantization.convert(mn.quantization.calibrate(qat, [mn.randn(4, 3)]))
    """
    check("calibrate", model, batches)
    seen = False
    with rounding(model, ()):
        for site in model.plan.sites:
            model.fake_quant[site.key].training = True
        for batch in batches:
            model(batch[0] if isinstance(batch, (tuple, list)) else batch)
            seen = True
    if not seen:
        raise ValueError("calibrate: batches is empty; expected at least one batch")
    return model
