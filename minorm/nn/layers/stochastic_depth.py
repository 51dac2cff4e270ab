"""StochasticDepth: leaves out residual branches at random while a network trains."""

from __future__ import annotations

from minorm.functional.dropout import check_stochastic_depth, stochastic_depth
from minorm.nn.options import Random
from minorm.support.documented import arguments_of, documented


@documented(arguments_of(stochastic_depth))
class StochasticDepth(Random):
    """y = x * m / (1 - p) in training, else y = x. Per sample or per batch, m is 0 with probability p, else 1.

    Put this layer at the end of a residual branch. Where m is 0, the residual block returns its input. x is (N, ...); y
    has x's shape and type. In evaluation, and in a frozen layer, y = x. Raises ValueError if p is outside 0 to 1, or if
    mode is not "row" or "batch". Name and arguments are the same as in torchvision.ops.

    Example:
        >>> layer = nn.StochasticDepth(p=0.5, mode="row")
        >>> y = layer(mn.ones(100, 3, 8, 8))
        >>> sorted(set(y.flatten(1).mean(1).tolist()))  # whole samples
        [0.0, 2.0]
        >>> layer.eval()(y) is y
        True

    Written to ONNX as Identity (opset 25) in evaluation; Huang et al. 2016, arXiv:1603.09382.
    """

    function = staticmethod(stochastic_depth)
    shown = "p mode"

    def __init__(self, p: float, mode: str) -> None:
        check_stochastic_depth("StochasticDepth", p, mode)
        super().__init__(p=p, mode=mode)
