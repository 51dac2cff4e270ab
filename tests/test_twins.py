"""PyTorch twins: one definition, the same weights, three SGD steps. Loss, parameters and buffers stay together.

PyTorch's momentum 0.1 is minorm's 0.9, and its running variance divides by N - 1: `unbiased_running_var=True`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import models

torch = pytest.importorskip("torch")

# Largest |difference| over max(1, max|value|) after three steps: rounding, grown by three steps and sqrt(var) near 0.
TOLERANCE = {"float64": 1e-9, "float32": 2e-4}


def conv_net(nn: Any) -> Any:
    """Strides, groups, average pooling, a BatchNorm that forgets faster."""
    momentum = {"momentum": 0.3 if nn is torch.nn else 0.7}
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8, **momentum),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=4),
        nn.BatchNorm2d(8, affine=False),
        nn.SiLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 3 * 3, 10),
    )


def volume_net(nn: Any) -> Any:
    """Three spatial axes."""
    return nn.Sequential(
        nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 36, 10)
    )


def signal_net(nn: Any) -> Any:
    """One spatial axis, then vectors."""
    return nn.Sequential(
        nn.Conv1d(3, 6, 5, dilation=2, padding=4),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Linear(6 * 8, 12),
        nn.BatchNorm1d(12),
        nn.Tanh(),
        nn.Linear(12, 10),
    )


def cumulative_net(nn: Any) -> Any:
    """momentum=None, the cumulative average, means the same in both."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8, momentum=None),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def tracked_instance_net(nn: Any) -> Any:
    """InstanceNorm with running statistics."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.InstanceNorm2d(8, affine=True, track_running_stats=True),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(8 * 144, 10),
    )


NETS = {
    "conv": (conv_net, (6, 3, 12, 12)),
    "volume": (volume_net, (4, 3, 4, 6, 6)),
    "signal": (signal_net, (8, 3, 16)),
    "cumulative": (cumulative_net, (6, 3, 12, 12)),
    "instance": (tracked_instance_net, (4, 3, 12, 12)),
    "digits": (models.digits_cnn, (8, 1, 8, 8)),
    "norms": (lambda nn: models.norms_cnn(nn, size=16), (4, 3, 16, 16)),
    "resnet20": (lambda nn: models.resnet20(nn, size=16), (8, 3, 16, 16)),
}


def twins(name: str, dtype: str) -> tuple[Any, Any, tuple[int, ...]]:
    """A minorm model and its PyTorch twin with the same weights."""
    definition, shape = NETS[name]
    ours, theirs = definition(mn.nn), definition(torch.nn)
    for module in ours.modules():
        if hasattr(module, "unbiased_running_var"):
            module.unbiased_running_var = True
    ours.to(getattr(mn, dtype))
    theirs.to(getattr(torch, dtype))
    state = {key: torch.from_numpy(np.array(value.numpy())) for key, value in ours.state_dict().items()}
    theirs.load_state_dict(state)
    return ours, theirs, shape


def assert_close(ours: Any, theirs: Any, tolerance: float, what: str) -> None:
    difference = np.abs(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)).max(initial=0)
    assert difference <= tolerance * max(1, np.abs(theirs).max(initial=0)), f"{what} differs by {difference:.2e}"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", NETS)
def test_three_steps_keep_the_twins_together(name: str, dtype: str, rng: np.random.Generator) -> None:
    ours, theirs, shape = twins(name, dtype)
    settings = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-3}
    our_optimizer = mn.optim.SGD(ours.parameters(), **settings)
    their_optimizer = torch.optim.SGD(theirs.parameters(), **settings)
    for step in range(3):
        images, labels = rng.standard_normal(shape).astype(dtype), rng.integers(0, 10, shape[0])
        our_loss = mn.functional.cross_entropy(ours(mn.tensor(images)), mn.tensor(labels))
        their_loss = torch.nn.functional.cross_entropy(theirs(torch.from_numpy(images)), torch.from_numpy(labels))
        for optimizer, loss in ((our_optimizer, our_loss), (their_optimizer, their_loss)):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert_close(our_loss.numpy(), their_loss.detach().numpy(), TOLERANCE[dtype], f"loss of step {step}")
    expected = {key: value.numpy() for key, value in theirs.state_dict().items()}
    state = ours.state_dict()
    assert list(state) == list(expected)
    for key, value in state.items():
        if not (name == "instance" and key.endswith("num_batches_tracked")):  # PyTorch's InstanceNorm never counts
            assert_close(value.numpy(), expected[key], TOLERANCE[dtype], key)
    images = rng.standard_normal(shape).astype(dtype)
    with torch.no_grad():
        wanted = theirs.eval()(torch.from_numpy(images)).numpy()
    assert_close(ours.eval()(mn.tensor(images)).numpy(), wanted, 10 * TOLERANCE[dtype], "logits in evaluation mode")


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW"])
def test_adam_keeps_the_twins_together(optimizer: str, rng: np.random.Generator) -> None:
    ours, theirs, shape = twins("conv", "float64")
    pairs = [(ours, getattr(mn.optim, optimizer)), (theirs, getattr(torch.optim, optimizer))]
    optimizers = [make(model.parameters(), lr=0.01, weight_decay=0.1) for model, make in pairs]
    for _ in range(3):
        images, labels = rng.standard_normal(shape), rng.integers(0, 10, shape[0])
        losses = [
            mn.functional.cross_entropy(ours(mn.tensor(images)), mn.tensor(labels)),
            torch.nn.functional.cross_entropy(theirs(torch.from_numpy(images)), torch.from_numpy(labels)),
        ]
        for step, loss in zip(optimizers, losses, strict=True):
            step.zero_grad()
            loss.backward()
            step.step()
    for key, value in theirs.state_dict().items():
        if not (key.endswith("bias") and key.startswith(("0.", "3."))):  # its gradient is 0 but for rounding: Adam
            assert_close(ours.state_dict()[key].numpy(), value.numpy(), 1e-6, key)  # makes steps of lr from rounding


def test_weights_go_back_to_torch(rng: np.random.Generator) -> None:
    ours, theirs, shape = twins("digits", "float64")
    theirs(torch.from_numpy(rng.standard_normal(shape)))  # moves the running statistics
    ours.load_state_dict(theirs.state_dict())  # Tensors of torch are arrays to NumPy
    for key, value in theirs.state_dict().items():
        np.testing.assert_array_equal(ours.state_dict()[key].numpy(), value.numpy(), err_msg=key)
