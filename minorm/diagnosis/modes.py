"""Run a model in evaluation or with batch statistics. Restore its modes, statistics and random numbers afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from minorm.devices import generators
from minorm.diagnosis.recording import holds_statistics
from minorm.graph.grad_mode import no_grad
from minorm.nn import Module
from minorm.normalization.running import no_stats_update
from minorm.tensor.tensor import Tensor


@contextmanager
def borrowed(model: Module) -> Iterator[None]:
    """Inside the `with` block, the caller may set any mode and run the model.

    Afterwards the model is restored, even after an exception.
    """
    modes = [(module, module.training, module.frozen) for module in model.modules()]
    groups = [(m, m.process_group) for m in model.modules() if getattr(m, "process_group", None) is not None]
    buffers = [(buffer, buffer.cpu().array.copy()) for buffer in model.buffers()]
    try:
        for module, _ in groups:
            module.process_group = None  # the model runs without the other ranks
        with no_grad(), no_stats_update(), generators.kept():
            yield
    finally:
        for module, training, frozen in modes:
            module.training, module.frozen = training, frozen
        for module, group in groups:
            module.process_group = group
        for buffer, before in buffers:
            if buffer.cpu().array.tobytes() != before.tobytes():  # a layer that minorm does not know changed it
                buffer.copy_(Tensor(before).to(buffer.device))


def evaluation(model: Module) -> None:
    """Switch to evaluation: layers use running statistics, and nothing is dropped."""
    model.eval()


def reference(model: Module, kept: Collection[str] = ()) -> None:
    """Switch to evaluation, but let layers with running statistics normalize with those of the batch.

    The layers in `kept` keep using running statistics.
    """
    model.eval()
    for name, module in model.named_modules():
        if name not in kept and holds_statistics(module):
            module.training, module.frozen = True, False
