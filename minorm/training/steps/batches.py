"""A loop's batches: brought to the model, with what their mean loss is divided by, and counted."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, NamedTuple

from minorm.diagnosis.finite import NonFiniteLoss, reason
from minorm.nn import Module
from minorm.support.argument_errors import kind_of
from minorm.tensor.tensor import Tensor
from minorm.training.steps.divisor import divisor
from minorm.training.steps.score import Score


class Batch(NamedTuple):
    """Inputs and targets where the model is.

    divisor  what the mean loss of these targets is divided by, see divisor.py
    """

    inputs: Tensor
    targets: Tensor
    divisor: float | None


def batches(operation: str, model: Module, loader: Iterable[Any], loss_function: Any) -> Generator[Batch, None, None]:
    """Yield the loader's batches, which are on the CPU, where the model is; count targets before, so no GPU waits.

    `close()` ends the loader's threads at once.
    """
    device = device_of(model)
    for batch in loader:
        if not _is_pair(batch):
            raise TypeError(
                f"{operation}: a batch is {_form(batch)}; expected (inputs, targets), two Tensors; "
                "for other batches write a loop of your own"
            )
        inputs, targets = batch
        yield Batch(inputs.to(device), targets.to(device), divisor(loss_function, targets))


def ignored(loss_function: Any) -> int | None:
    """Return the target that does not count."""
    found: int | None = getattr(loss_function, "ignore_index", None)
    return found


def count(score: Score, model: Module, loss_function: Any, batch: Batch, loss: Tensor, judged: Tensor | None) -> None:
    """Count a batch; where its loss is no number, say why."""
    try:
        score.count(loss, batch.targets, judged, divisor=batch.divisor, summed=batch.divisor is None)
    except NonFiniteLoss as error:
        why = reason(model, batch.inputs, batch.targets, ignored(loss_function))
        raise NonFiniteLoss(f"{error}; {why}") from None


def device_of(model: Module) -> str:
    """Return the device of the model's parameters; "cpu" for a model without parameters."""
    return next((p.device for p in model.parameters()), "cpu")


def _is_pair(batch: Any) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)


def _form(batch: Any) -> str:
    """Return the batch in words: `a dict with the keys ['image', 'mask']`, `a tuple of Tensor, dict`."""
    if isinstance(batch, Mapping):
        return f"a {kind_of(batch)} with the keys {list(batch)}"
    if isinstance(batch, (tuple, list)):
        return f"a {kind_of(batch)} of {', '.join(map(kind_of, batch)) or 'nothing'}"
    return f"a {kind_of(batch)}"
