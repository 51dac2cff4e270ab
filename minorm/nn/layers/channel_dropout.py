"""Dropout of whole channels, and dropout for networks with SELU. A frozen layer computes as in evaluation."""

from __future__ import annotations

from minorm.functional.dropout import (
    alpha_dropout,
    check_probability,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from minorm.nn.options import Random
from minorm.support.documented import arguments_of, documented

VOLUMES = {"form": "(N, C, D, H, W) or (C, D, H, W)", "shape": "2, 3, 8, 8, 8"}


class _Dropout(Random):
    """x is {form}; y has x's shape and type. Neighbouring elements of a channel are similar, so dropping single
    elements would remove little information. The division by 1 - p keeps the mean. In a frozen layer, y = x. Raises
    ValueError unless 0 <= p <= 1. A call raises ValueError if x has another number of axes.

    Example:
        >>> layer = nn.{name}(p=0.5)
        >>> y = layer(mn.ones({shape}))
        >>> set(y.flatten(2).mean(2).flatten().tolist()) <= {0.0, 2.0}  # whole channels
        True
        >>> layer.eval()(y) is y
        True

    Written to ONNX as Identity (opset 25) in evaluation; Tompson et al. 2015, arXiv:1411.4280.
    """

    shown = "p inplace"

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        check_probability(type(self).__name__, p)
        super().__init__(p=p, inplace=inplace)


@documented(arguments_of(dropout1d), base=_Dropout, words={"form": "(N, C, L) or (C, L)", "shape": "2, 3, 8"})
class Dropout1d(_Dropout):
    """y = x * m / (1 - p) in training, else y = x. For each channel, m is 0 with probability p, else 1."""

    function = staticmethod(dropout1d)


@documented(
    arguments_of(dropout2d),
    base=_Dropout,
    words={"form": "(N, C, H, W), (N, C, L) or (N, C)", "shape": "2, 3, 8, 8"},
)
class Dropout2d(_Dropout):
    """y = x * m / (1 - p) in training, else y = x. For each channel, m is 0 with probability p, else 1."""

    function = staticmethod(dropout2d)


@documented(arguments_of(dropout3d), base=_Dropout, words=VOLUMES)
class Dropout3d(_Dropout):
    """y = x * m / (1 - p) in training, else y = x. For each channel, m is 0 with probability p, else 1."""

    function = staticmethod(dropout3d)


@documented(arguments_of(alpha_dropout))
class AlphaDropout(_Dropout):
    """y = a * (x where kept, else -1.7581) + b in training, else y = x. a and b keep mean 0 and variance 1.

    This is the dropout for networks with SELU, whose lowest value is -1.7581. x has any shape; y has x's shape and
    type. In evaluation, and in a frozen layer, y = x. Raises ValueError unless 0 <= p <= 1.

    Example:
        >>> y = nn.AlphaDropout(p=0.3)(mn.randn(10000))
        >>> abs(y.mean().item()) < 0.1 and abs(y.std().item() - 1) < 0.1
        True

    Written to ONNX as Identity (opset 25) in evaluation; Klambauer et al. 2017, arXiv:1706.02515.
    """

    function = staticmethod(alpha_dropout)


@documented(arguments_of(feature_alpha_dropout))
class FeatureAlphaDropout(_Dropout):
    """y = a * (x where the channel is kept, else -1.7581) + b in training, else y = x.

    This is AlphaDropout of whole channels, where a and b keep mean 0 and variance 1. x is (N, C, ...); y has x's shape
    and type. In evaluation, and in a frozen layer, y = x. Raises ValueError unless 0 <= p <= 1.

    Example:
        >>> nn.FeatureAlphaDropout(p=0.3)(mn.randn(2, 3, 8)).shape
        (2, 3, 8)

    Written to ONNX as Identity (opset 25) in evaluation; Klambauer et al. 2017, arXiv:1706.02515.
    """

    function = staticmethod(feature_alpha_dropout)
