"""Move a loop's batches to the model's device, find the divisor of each mean loss, and add each batch to a score."""

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

    divisor  the number by which the sum of losses is divided for their mean (see divisor.py); None if the loss is a sum
    """

    inputs: Tensor
    targets: Tensor
    divisor: float | None


def batches(operation: str, model: Module, loader: Iterable[Any], loss_function: Any) -> Generator[Batch, None, None]:
    """Yield the loader's batches, moved from the CPU to the model's device.

    The targets are counted on the CPU before the move, so that no GPU waits for the count. `close()` ends the loader's
    threads at once.
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
    """Return the loss's `ignore_index`, the target that does not count; return None if the loss does not have it."""
    found: int | None = getattr(loss_function, "ignore_index", None)
    return found


def count(score: Score, model: Module, loss_function: Any, batch: Batch, loss: Tensor, judged: Tensor | None) -> None:
    """Add a batch to the score. If the loss is NaN or infinite, raise NonFiniteLoss, which says why."""
    try:
        score.count(loss, batch.targets, judged, divisor=batch.divisor, summed=batch.divisor is None)
    except NonFiniteLoss as error:
        why = reason(model, batch.inputs, batch.targets, ignored(loss_function))
        raise NonFiniteLoss(f"{error}; {why}") from None


def device_of(model: Module) -> str:
    """Return the device of the model's parameters or buffers; return "cpu" for a model without both."""
    return next((tensor.device for tensor in (*model.parameters(), *model.buffers())), "cpu")


def _is_pair(batch: Any) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)


def _form(batch: Any) -> str:
    """Describe the batch in words, such as `a dict with the keys ['image', 'mask']` or `a tuple of Tensor, dict`."""
    if isinstance(batch, Mapping):
        return f"a {kind_of(batch)} with the keys {list(batch)}"
    if isinstance(batch, (tuple, list)):
        return f"a {kind_of(batch)} of {', '.join(map(kind_of, batch)) or 'nothing'}"
    return f"a {kind_of(batch)}"
