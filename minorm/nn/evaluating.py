"""A context manager that puts a model into evaluation mode, and afterwards restores the mode of each layer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from minorm.graph.grad_mode import no_grad
from minorm.nn.module import Module


@contextlib.contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """Inside the block the model is in evaluation mode and computes no gradients. After the block each module has its
    old mode.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
