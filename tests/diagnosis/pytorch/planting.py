"""Healthy modules of PyTorch of several families, and every disease planted into one that has weights of minorm's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.diagnosis import planting
from tests.diagnosis.planting import CLASSES, Sick


def torch() -> Any:
    """PyTorch, where it is installed."""
    import torch as module

    return module


def batches(batch_size: int = 32, data: Any = None) -> list[Any]:
    """The images of planting.py, as tensors."""
    x, y = (planting.images() if data is None else data).arrays
    t = torch()
    whole = len(x) // batch_size * batch_size
    return [
        (t.from_numpy(x[i : i + batch_size]), t.from_numpy(y[i : i + batch_size])) for i in range(0, whole, batch_size)
    ]


def trained(model: Any, steps: int = 40, lr: float = 0.05, given: Any = None) -> Any:
    """The model after so many steps of PyTorch's SGD, in evaluation mode, with the statistics of all of the data."""
    t, given = torch(), batches() if given is None else given
    optimizer = t.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr, momentum=0.9)
    schedule = t.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps, pct_start=0.25)
    model.train()
    for step in range(steps):
        x, y = given[step % len(given)]
        loss = t.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return settled(model, given)


def settled(model: Any, given: Any = None) -> Any:
    """The model in evaluation mode, its running statistics those of the data, as PyTorch's update_bn computes them."""
    t = torch()
    t.optim.swa_utils.update_bn(batches() if given is None else given, model)
    return model.eval()


def network(width: int = 16, activation: Any = None, **options: Any) -> Any:
    """Layers 1, 4, 7 and 11 are BatchNorm, the last of them behind a Linear."""
    t = torch()
    t.manual_seed(0)
    nn, activation = t.nn, activation or (lambda: t.nn.ReLU(inplace=True))
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width, **options), activation(),
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width, **options), activation(),
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width, **options), activation(),
        nn.Flatten(), nn.Linear(64 * width, 24, bias=False), nn.BatchNorm1d(24, **options), activation(),
        nn.Linear(24, CLASSES),
    )  # fmt: skip


@functools.cache
def _state() -> Any:
    """The weights of our healthy network: training it in PyTorch as well would show nothing more."""
    t = torch()
    return {key: t.tensor(value.array) for key, value in planting.healthy().state_dict().items()}


def healthy(**options: Any) -> Any:
    """A trained network, a new one in each call."""
    model = network(**options)
    model.load_state_dict(_state())
    return model.eval()


def stale_variance() -> Sick:
    model = healthy()
    model[4].running_var *= 16.0
    return Sick("stale_statistics", "4", model, "harm")


def stale_mean() -> Sick:
    model = healthy()
    model[7].running_mean += 2 * model[7].running_var.sqrt()
    return Sick("stale_statistics", "7", model, "harm")


def untouched() -> Sick:
    model = healthy()
    model[11].reset_running_stats()
    return Sick("untouched_statistics", "11", model, "harm")


def convention() -> Sick:
    """Use Keras's momentum unchanged."""
    model = healthy()
    model[4].momentum = 0.99
    return Sick("momentum_convention", "4", model, "note")


def frozen_by_its_parameters() -> Sick:
    """Fine-tuned in training mode, with scale and bias that require no grad."""
    model = healthy()
    model[4].requires_grad_(False)
    return Sick("frozen_norm_drifts", "4", model.train(), "warning")


def divided_by_one_less() -> Sick:
    """Behind a Linear, in batches of 4: 4/3 of the variance that training divides by."""
    few = batches(4)
    return Sick("variance_convention", "11", settled(healthy(), few), "note", few, 4)


def gap() -> Sick:
    data = planting.images()
    x = (data.arrays[0] * 4 + 2).astype(np.float32)
    moved = planting.ArrayDataset(x, data.arrays[1])
    return Sick("train_eval_gap", None, healthy(), "harm", batches(data=moved))


def small_batch() -> Sick:
    few = batches(2)
    return Sick("small_batch", "11", settled(healthy(), few), "warning", few, 2)


def batch_of_one() -> Sick:
    return Sick("batch_of_one", "4", healthy(), "warning", batches(1), 1)


def large_mean() -> Sick:
    model = healthy()
    weight = model[3].weight
    model[3] = torch().nn.Conv2d(16, 16, 3, padding=1)
    with torch().no_grad():
        model[3].weight.copy_(weight)
        model[3].bias.fill_(3e4)
    return Sick("large_mean", "4", settled(model), "error")


def tiny_variance() -> Sick:
    model = healthy()
    with torch().no_grad():
        model[3].weight *= 1e-4
    return Sick("eps_swallows_variance", "4", settled(model), "warning")


def half_eps() -> Sick:
    model = healthy()
    model[7].eps = 1e-8
    return Sick("eps_underflows", "7", model, "note")


def half_eps_in_half() -> Sick:
    model = healthy()
    model[7].eps = 1e-12
    half = [(x.half(), y) for x, y in batches()]
    return Sick("eps_underflows", "7", model.half(), "warning", half)


def vanished_scale() -> Sick:
    model = healthy()
    with torch().no_grad():
        model[4].weight[:10] *= 1e-6
    return Sick("vanished_scale", "4", model, "warning")


def dead_channels() -> Sick:
    model = healthy()
    with torch().no_grad():
        model[7].bias.fill_(-100)
    return Sick("dead_channel", "7", model, "warning")


def saturated() -> Sick:
    model = settled(healthy(activation=torch().nn.Tanh))
    with torch().no_grad():
        model[4].bias.fill_(20)
    return Sick("saturated_channel", "4", model, "warning")


def undone() -> Sick:
    t = torch()
    t.manual_seed(0)
    nn = t.nn
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.Identity(), nn.Dropout(0.1),
        nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES),
    )  # fmt: skip
    return Sick("undone_norm", "4", settled(model), "warning")


def folded() -> Sick:
    """PyTorch's own folding, which leaves an Identity."""
    model = healthy()
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    model[3] = fuse_conv_bn_eval(model[3], model[4])
    model[4] = torch().nn.Identity()
    return Sick("folded_norm", "3", model.eval(), "note")


def folded_and_left() -> Sick:
    """Folded, with a BatchNorm left in its place that changes nothing."""
    model = healthy()
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    for conv in (0, 3):
        model[conv] = fuse_conv_bn_eval(model[conv], model[conv + 1])
        model[conv + 1] = torch().nn.BatchNorm2d(16)
    return Sick("folded_norm", "4", model.eval(), "note")


def in_functional_calls() -> Sick:
    """A forward written in torch.nn.functional, with a batch_norm that no module holds."""
    t = torch()

    class Net(t.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = healthy()
            self.body[4].running_var *= 16.0

        def forward(self, x: Any) -> Any:
            f, b = t.nn.functional, self.body
            for conv, norm in ((b[0], b[1]), (b[3], b[4]), (b[6], b[7])):
                x = f.conv2d(x, conv.weight, padding=1)
                x = f.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, self.training)
                x = f.relu(x, inplace=True)
            return b[12:](b[11](b[10](x.flatten(1))))

    return Sick("stale_statistics", "body.4", Net().eval(), "harm")


PLANTED: dict[str, Callable[[], Sick]] = {
    f.__name__: f
    for f in (
        stale_variance, stale_mean, untouched, convention, frozen_by_its_parameters, divided_by_one_less, gap,
        small_batch, batch_of_one, large_mean, tiny_variance, half_eps, half_eps_in_half, vanished_scale, dead_channels,
        saturated, undone, folded, folded_and_left, in_functional_calls,
    )
}  # fmt: skip


# Healthy families


def residual() -> Any:
    """Residual blocks whose activations are calls in place, as torchvision's."""
    t = torch()
    nn = t.nn

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

        def forward(self, x: Any) -> Any:
            y = t.relu_(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            y += x
            return nn.functional.relu(y, inplace=True)

    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Block(8), Block(8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES),
    )  # fmt: skip


def convolutional(norm: Any, activation: Any) -> Any:
    nn = torch().nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), norm(8), activation(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1), norm(8), activation(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(32, CLASSES),
    )  # fmt: skip


def transformer() -> Any:
    """Patches, a block with LayerNorm, and a head behind another."""
    nn = torch().nn

    class Net(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 16, 2, 2)
            self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, activation="gelu", batch_first=True)
            self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, CLASSES)

        def forward(self, x: Any) -> Any:
            return self.head(self.norm(self.block(self.patches(x).flatten(2).transpose(1, 2)).mean(1)))

    return Net()


def perceptron() -> Any:
    nn = torch().nn
    return nn.Sequential(
        nn.Flatten(), nn.Linear(192, 24), nn.RMSNorm(24), nn.SiLU(), nn.Linear(24, 24, bias=False), nn.BatchNorm1d(24),
        nn.Hardtanh(), nn.Dropout(0.2), nn.Linear(24, CLASSES),
    )  # fmt: skip


FAMILIES: dict[str, Callable[[], Any]] = {
    "batch": lambda: network(8),
    "average": lambda: network(8, momentum=None),
    "residual": residual,
    "group": lambda: convolutional(lambda c: torch().nn.GroupNorm(2, c), torch().nn.SiLU),
    "instance": lambda: convolutional(lambda c: torch().nn.InstanceNorm2d(c, affine=True), torch().nn.LeakyReLU),
    "transformer": transformer,
    "perceptron": perceptron,
}
