"""A block that evaluates a model, and restores its modes afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from minorm.graph.grad_mode import no_grad
from minorm.nn.module import Module


@contextlib.contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """Put the model into evaluation mode without gradients for a block; afterwards restore each module's mode."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
