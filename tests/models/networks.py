"""Helpers for the tests of networks with torchvision's keys: twins with random weights, and a step of both.

The twins are the networks that benchmarks/vision.py writes in torch.nn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import minorm as mn
from minorm import nn
from tests.models.undrawn import undrawn

CLASSES = 5
EVALUATED = {"rtol": 1e-9, "atol": 1e-11}
TRAINED = {"rtol": 1e-7, "atol": 1e-9}


def built(make: Any, **options: Any) -> Any:
    """Build a network in float64, without its weights; dropout and stochastic depth draw nothing."""
    with undrawn(), np.errstate(invalid="ignore"):
        model = make(num_classes=CLASSES, **options).to(mn.float64)
    for layer in model.modules():
        if isinstance(layer, (nn.Dropout, nn.StochasticDepth)):
            layer.p = 0.0
        if isinstance(layer, nn.BatchNorm2d):
            layer.unbiased_running_var = True  # as PyTorch's
    return model


def random_state(twin: Any, seed: int = 0) -> dict[str, Any]:
    """Weights that keep the size of what flows through, and statistics, norms and biases that are not 0 and 1."""
    rng = np.random.default_rng(seed)
    for name, value in twin.state_dict().items():
        shape = tuple(value.shape)
        if name.endswith("num_batches_tracked"):
            value.fill_(7)
        elif name.endswith("running_var") or (name.endswith("weight") and len(shape) == 1):
            value.copy_(torch.from_numpy(rng.uniform(0.5, 1.5, shape)))
        elif len(shape) in (2, 4):
            value.copy_(torch.from_numpy(rng.standard_normal(shape) * np.prod(shape[1:]) ** -0.5))
        else:  # biases, running means, positions, the class token and the scales of layers
            value.copy_(torch.from_numpy(rng.standard_normal(shape) * 0.3))
    return {name: mn.tensor(value.numpy()) for name, value in twin.state_dict().items()}


def pair(make: Any, twin: Any, **options: Any) -> tuple[Any, Any]:
    """Ours and the twin, in float64 and with the same state; the keys, shapes and types are compared on the way."""
    twin, model = twin.double(), built(make, **options)
    state = random_state(twin)
    ours = {name: (value.shape, str(value.dtype)) for name, value in model.state_dict().items()}
    assert ours == {name: (value.shape, str(value.dtype)) for name, value in state.items()}
    assert list(ours) == list(state)
    model.load_state_dict(state)
    return model, twin


def with_mean(library: Any, block: Any) -> Any:
    """Follow the block by a mean over the image, so that a step of it can be compared as a network's can."""

    class WithMean(library.Module):  # type: ignore[misc]  # the base is whichever library's
        def __init__(self) -> None:
            super().__init__()
            self.block = block

        def forward(self, x: Any) -> Any:
            return self.block(x).mean((2, 3))

    return WithMean()


def same_evaluation(model: Any, twin: Any, images: Any) -> None:
    """The same logits in evaluation mode."""
    with torch.no_grad(), mn.no_grad():
        expected = twin.eval()(torch.from_numpy(images)).numpy()
        np.testing.assert_allclose(model.eval()(mn.tensor(images)).numpy(), expected, **EVALUATED)
    assert np.abs(expected).max() > 0.1  # and not all 0


def same_step(model: Any, twin: Any, images: Any) -> None:
    """The same logits, gradients of images and parameters, and running statistics, in training mode."""
    weights = np.random.default_rng(1).standard_normal((len(images), CLASSES))
    theirs = torch.from_numpy(images).requires_grad_()
    ours = mn.tensor(images, requires_grad=True)
    expected, logits = twin.train()(theirs), model.train()(ours)
    (expected * torch.from_numpy(weights)).sum().backward()
    (logits * mn.tensor(weights)).sum().backward()
    np.testing.assert_allclose(logits.detach().numpy(), expected.detach().numpy(), **TRAINED)
    gradients = {name: parameter.grad for name, parameter in twin.named_parameters()} | {"images": theirs.grad}
    found = {name: parameter.grad for name, parameter in model.named_parameters()} | {"images": ours.grad}
    largest = max(gradient.abs().max().item() for gradient in gradients.values())
    for name, gradient in gradients.items():  # some are sums that cancel to 0 but for rounding
        bound = {**TRAINED, "atol": 1e-9 * largest}
        np.testing.assert_allclose(found[name].numpy(), gradient.numpy(), **bound, err_msg=name)
    for name, value in twin.state_dict().items():
        np.testing.assert_allclose(model.state_dict()[name].numpy(), value.numpy(), **TRAINED, err_msg=name)


def images(count: int, size: int, channels: int = 3) -> Any:
    return np.random.default_rng(2).standard_normal((count, channels, size, size))
