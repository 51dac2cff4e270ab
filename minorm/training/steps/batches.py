"""Move a loop's batches to the model's device, find the divisor of their mean loss, and count them in a score."""

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
    """Inputs and targets on the model's device.

    divisor  the number by which the mean loss of these targets is divided, see divisor.py; None for a sum
    """

    inputs: Tensor
    targets: Tensor
    divisor: float | None


def batches(operation: str, model: Module, loader: Iterable[Any], loss_function: Any) -> Generator[Batch, None, None]:
    """Yield the loader's batches, moved from the CPU to the model's device; targets are counted on the CPU.

    So no GPU waits for the count. `close()` ends the loader's threads at once.
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
    """Return the loss's `ignore_index`, the target that does not count; None if the loss has none."""
    found: int | None = getattr(loss_function, "ignore_index", None)
    return found


def count(score: Score, model: Module, loss_function: Any, batch: Batch, loss: Tensor, judged: Tensor | None) -> None:
    """Count a batch in the score; if its loss is NaN or infinite, the NonFiniteLoss says why."""
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
    """Describe the batch in words: `a dict with the keys ['image', 'mask']`, `a tuple of Tensor, dict`."""
    if isinstance(batch, Mapping):
        return f"a {kind_of(batch)} with the keys {list(batch)}"
    if isinstance(batch, (tuple, list)):
        return f"a {kind_of(batch)} of {', '.join(map(kind_of, batch)) or 'nothing'}"
    return f"a {kind_of(batch)}"
