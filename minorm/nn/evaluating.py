"""A block in which a model is evaluated, and after which it is in its modes again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from minorm.graph.grad_mode import no_grad
from minorm.nn.module import Module


@contextlib.contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """Inside, the model is in evaluation and no gradient is recorded; then each module is in its mode again."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
