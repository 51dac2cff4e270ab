"""Lab 5: recalibrates models.

Imports only modules that are already loaded, because a student's process may not open files.
"""

from __future__ import annotations

from typing import Any

from minorm.graph.grad_mode import no_grad
from minorm.labs import gap
from minorm.tensor.creation import tensor


def recalibrate(
    model: Any, images: Any, batch_size: int = 0, rest: str = "left out at the end", default: int = 256
) -> None:
    """Average the statistics over batches with momentum=None.

    rest: how to treat the images after the last full batch
    """
    count, batch_size = len(images), batch_size or default
    layers = gap.norms(model)
    kept, mode = [layer.momentum for layer in layers], model.training
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    model.train()
    with no_grad():
        for last in range(count % batch_size if "front" in rest else 0, count - batch_size + 1, batch_size):
            joins = rest == "in the last batch" and count - last < 2 * batch_size
            model(tensor(images[last : count if joins else last + batch_size]))
    model.train(mode)
    for layer, momentum in zip(layers, kept, strict=True):
        layer.momentum = momentum
