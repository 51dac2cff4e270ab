"""Lab 12: uses the library's own kernels, loop, checkpoint and files. No function calls another function here."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from minorm.devices import generators
from minorm.kernels.reference import norm
from minorm.labs import capstone
from minorm.labs.beside import lab12_capstone as beside
from minorm.serialization import checkpoint
from minorm.tensor.creation import tensor


def forward(nest: Any, x: Any, s: Any, b: Any, equation: Any) -> Any:
    """Run the forward pass of minorm.kernels.reference.norm, the library's reference."""
    return norm.forward(nest, x, s, b, equation)


def backward(nest: Any, dy: Any, x: Any, stats: Any, s: Any, equation: Any, needs: Any = (True, True)) -> Any:
    """Run the backward pass of minorm.kernels.reference.norm, the library's reference."""
    return norm.backward(nest, dy, x, stats, s, equation, needs)


def train(run: Any, epochs: int) -> list[float]:
    """Run the loop with which the student's loop is compared."""
    return beside.loop(run, epochs)


def save(path: str, run: Any) -> None:
    """Save all parts of the run, and the generator that dropout draws from."""
    whole = {"model": run.model, "optimizer": run.optimizer, "scheduler": run.scheduler, "loader": run.loader}
    checkpoint.save_training(path, **whole, random=generators.get_state())


def resume(path: str, run: Any) -> None:
    """Load the parts that `save` has saved."""
    whole = {"model": run.model, "optimizer": run.optimizer, "scheduler": run.scheduler, "loader": run.loader}
    generators.set_state(checkpoint.load_training(path, **whole)["random"])


def write(path: str, model: Any) -> None:
    """Export the model to an ONNX file, with BatchNorm in training mode."""
    dtype = next(iter(model.parameters())).dtype
    importlib.import_module("minorm.onnx").export(model, tensor(np.zeros((2, 1, 8, 8), dtype)), path, training=True)


def read(path: str) -> Any:
    """Load the model from an ONNX file, and return it unchanged."""
    return importlib.import_module("minorm.onnx").load(path)


def fine_tune(model: Any, images: Any, labels: Any) -> None:
    """Train all parameters for twelve epochs."""
    beside.loop(capstone.Run(1, images=images, labels=labels, model=model, epochs=12, lr=0.02), 12)
    model.eval()
