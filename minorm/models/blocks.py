"""Parts of the networks that have torchvision's keys: a convolution with its norm, initial weights, and checks."""

from __future__ import annotations

from typing import Any

from minorm import nn
from minorm.functional.dropout import check_probability
from minorm.nn.parameter import check_sizes

ARGUMENTS = {
    "num_classes": "the number of logits for each image",
    "channels": "the number of channels of the images, 3 for colours",
    "dropout": "the probability of a zero in front of the last layer, in training; 0 to 1",
    "stochastic_depth_prob": (
        "the probability that the last residual branch is left out, in training; the probabilities of earlier branches "
        "are smaller, in proportion to their place"
    ),
    "weights": "only None, because minorm has no trained weights; torchvision has this argument",
}


def check_arguments(model: str, num_classes: int, channels: int, **probabilities: Any) -> None:
    """Raise ValueError if a size is below 1 or a probability is outside 0 to 1."""
    check_sizes(model, num_classes=num_classes, channels=channels)
    for name, p in probabilities.items():
        check_probability(model, p, name)


def no_weights(model: str, weights: Any) -> None:
    """Raise ValueError unless `weights` is None; the message says how weights are loaded."""
    if weights is not None:
        raise ValueError(
            f"{model}: weights is {weights!r}; expected None, because minorm ships no weights; load a file with "
            "model.load_state_dict(mn.load(path)), and see docs/how-to/get-pretrained-weights.md for files"
        )


def conv_norm(
    channels: int, width: int, kernel_size: int, activation: type[nn.Module] | None, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Return a convolution, a BatchNorm, and the activation unless it is None. If stride is 1, the convolution keeps
    the size.
    """
    padding = kernel_size // 2
    layers: list[nn.Module] = [
        nn.Conv2d(channels, width, kernel_size, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(width),
    ]
    return nn.Sequential(*layers, *([] if activation is None else [activation()]))


def draw_convolutions(model: nn.Module) -> None:
    """Draw normal weights with variance 2 / fan_out, which keep the size of gradients through ReLU; biases are 0.

    He et al. 2015, arXiv:1502.01852.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
