"""Dropout of whole channels, and of what SELU gives: in training, and not where the module is frozen."""

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


class _Dropout(Random):
    shown = "p inplace"

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        check_probability(type(self).__name__, p)
        super().__init__(p=p, inplace=inplace)


class Dropout1d(_Dropout):
    """Each channel of (N, C, L) is 0 with probability p, and x / (1 - p) otherwise."""

    function = staticmethod(dropout1d)


class Dropout2d(_Dropout):
    """Each channel of (N, C, H, W) is 0 with probability p, and x / (1 - p) otherwise."""

    function = staticmethod(dropout2d)


class Dropout3d(_Dropout):
    """Each channel of (N, C, D, H, W) is 0 with probability p, and x / (1 - p) otherwise."""

    function = staticmethod(dropout3d)


class AlphaDropout(_Dropout):
    """Dropout to SELU's lowest value, scaled so that mean 0 and variance 1 stay."""

    function = staticmethod(alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """AlphaDropout of whole channels."""

    function = staticmethod(feature_alpha_dropout)
