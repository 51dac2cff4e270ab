"""The Dropout layer. It drops elements only in training, and only if the module is not frozen."""

from __future__ import annotations

import minorm.functional as F
from minorm.functional.dropout import check_probability
from minorm.nn.options import OfOne, Random
from minorm.support.documented import arguments_of, documented


@documented(arguments_of(F.dropout))
class Dropout(Random, OfOne):
    """y = x * m / (1 - p) in training, else y = x. For each element, m is 0 with probability p, else 1.

    x has any shape; y has x's shape and type. The division by 1 - p keeps the mean, so evaluation needs no factor. In a
    frozen layer, y = x. The draws repeat after `mn.manual_seed` with the same seed. Raises ValueError unless 0 <= p <=
    1.

    Example:
        >>> layer = nn.Dropout(p=0.5)
        >>> sorted(set(layer(mn.ones(1000)).tolist()))
        [0.0, 2.0]
        >>> layer.eval()(mn.ones(3))
        tensor([1., 1., 1.])

    Written to ONNX as Identity (opset 25) in evaluation and as Dropout (opset 22) in training; Srivastava et al. 2014.
    """

    function = staticmethod(F.dropout)
    shown = "p inplace"

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        check_probability("Dropout", p)
        super().__init__(p=p, inplace=inplace)
