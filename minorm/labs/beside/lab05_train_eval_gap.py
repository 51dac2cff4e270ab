"""Lab 5: makes models for the student's functions, and returns their state afterwards."""

from __future__ import annotations

from typing import Any

from minorm.labs import gap


def prepare() -> None:
    """Load everything that later needs an open file, because the process may soon open no more files."""
    gap.images()


def state(model: Any) -> dict[str, Any]:
    """Return everything that a model has learned, as arrays."""
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def trained(seed: int, epochs: int = 1) -> tuple[Any, ...]:
    """Train a model; return the model, the training images, the test images and the test labels."""
    x, labels, x_test, labels_test = gap.images()
    return gap.train(gap.network(seed), x, labels, epochs=epochs, seed=seed), x, x_test, labels_test


def measured(module: Any, function: str, seed: int, count: int, batch_size: int, training: bool) -> dict[str, Any]:
    """Call a student's function on a trained model. Return its answer, and the state of the model afterwards."""
    model, _, x, labels = trained(seed)
    model.train(training)
    options = (batch_size,) if batch_size else ()
    answer = getattr(module, function)(model, x[:count], labels[:count], *options)
    return {"answer": answer, "after": state(model), "training": model.training}


def recalibrated(module: Any, seed: int, batch_size: int, momentum: float, training: bool) -> dict[str, Any]:
    """Let the student recalibrate a model, and return the model's state.

    If batch_size is 0, the student's default is used.
    """
    model, x, _, _ = trained(seed)
    for layer in gap.norms(model):
        layer.momentum = momentum
    model.train(training)
    module.recalibrate(model, x[:600], *((batch_size,) if batch_size else ()))
    momenta = [layer.momentum for layer in gap.norms(model)]
    return {"after": state(model), "momenta": momenta, "training": model.training}


def repaired(module: Any, kind: str, seed: int) -> dict[str, Any]:
    """Let the student repair a broken model, and return the model's state."""
    model, x, _, _ = gap.broken(kind, seed)
    module.repair(model, x)
    return {"after": state(model), "training": model.training}


def frozen(module: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Load these values into a model, and let the student freeze it. Return the settings and values of the model."""
    model = gap.network()
    model.load_state_dict(values)
    module.freeze_norms(model.eval())
    return {
        "frozen": [layer.frozen for layer in model.modules()],
        "training": [layer.training for layer in model.modules()],
        "learns": [parameter.requires_grad for parameter in model.parameters()],
        "momenta": [layer.momentum for layer in gap.norms(model)],
        "values": state(model),
    }
