"""Activation layers with corners; see minorm.functional.piecewise. The layers accept `inplace` but ignore it."""

from __future__ import annotations

from typing import Any, ClassVar

from minorm.functional import piecewise as F
from minorm.functional.argument_texts import PLACE
from minorm.nn.attributes import MadeBy
from minorm.nn.module import Module
from minorm.nn.options import Options, Random
from minorm.nn.parameter import Parameter, check_sizes, uninitialized
from minorm.support.documented import arguments_of, documented
from minorm.tensor.tensor import Tensor


@documented(PLACE, num_parameters="1, or C, the length of axis 1 of x", init="the starting value of each slope")
class PReLU(Module):
    """y = x where x > 0, else weight * x: a LeakyReLU with learned slopes.

    x has any shape; y has x's shape and type. weight (num_parameters) starts as `init` and holds one slope for all
    channels, or one slope for each channel (axis 1 of x). Exclude weight from weight decay, which would pull the layer
    towards ReLU.

    Example:
        >>> layer = nn.PReLU(3)
        >>> layer(mn.randn(2, 3, 4)).shape
        (2, 3, 4)
        >>> layer.weight.shape
        (3,)

    Written to ONNX as PRelu (opset 16); He et al. 2015, arXiv:1502.01852.
    """

    _made_by: ClassVar[MadeBy] = {"num_parameters": lambda layer: layer.weight.numel()}

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        check_sizes("PReLU", num_parameters=num_parameters)
        self.num_parameters, self.init = num_parameters, init
        self.weight: Parameter = uninitialized((num_parameters,), dtype, device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set every slope to `init` again."""
        self.weight.detach().fill_(self.init)

    def forward(self, input: Tensor) -> Tensor:
        """See `F.prelu`."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """Return the number of slopes as text for `repr`."""
        return f"num_parameters={self.num_parameters}"


@documented(arguments_of(F.hardtanh))
class Hardtanh(Options):
    """y = min(max(x, min_val), max_val): a piecewise linear tanh.

    x has any shape; y has x's shape and type. The slope of y is 1 between the bounds, and 0 at the bounds and outside.

    Example:
        >>> nn.Hardtanh()(mn.tensor([-2.0, 0.5]))
        tensor([-1. ,  0.5])

    An ONNX export writes the formula's operations; Collobert 2004.
    """

    function = staticmethod(F.hardtanh)
    shown = "min_val max_val"

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(min_val=min_val, max_val=max_val, inplace=inplace)


@documented(arguments_of(F.threshold))
class Threshold(Options):
    """y = x where x > threshold, else value.

    x has any shape; y has x's shape and type.

    Example:
        >>> nn.Threshold(0.1, 20.0)(mn.tensor([-2.0, 0.5]))
        tensor([20. ,  0.5])

    An ONNX export writes the formula's operations.
    """

    function = staticmethod(F.threshold)
    shown = "threshold value"

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(threshold=threshold, value=value, inplace=inplace)


class _Shrink(Options):
    """Base of the layers whose only option is the bound lambd."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)

    def extra_repr(self) -> str:
        """Return the bound lambd as text for `repr`."""
        return str(self._arguments()["lambd"])


@documented(arguments_of(F.hardshrink))
class Hardshrink(_Shrink):
    """y = x where |x| > lambd, else 0.

    x has any shape; y has x's shape and type.

    Example:
        >>> nn.Hardshrink()(mn.tensor([-2.0, 0.5]))
        tensor([-2.,  0.])

    An ONNX export writes the formula's operations.
    """

    function = staticmethod(F.hardshrink)


@documented(arguments_of(F.softshrink))
class Softshrink(_Shrink):
    """y = x - lambd where x > lambd, x + lambd where x < -lambd, else 0. So y is closer to 0 than x.

    x has any shape; y has x's shape and type.

    Example:
        >>> nn.Softshrink()(mn.tensor([-2.0, 0.5]))
        tensor([-1.5,  0. ])

    An ONNX export writes the formula's operations; Donoho 1995.
    """

    function = staticmethod(F.softshrink)


@documented(arguments_of(F.rrelu))
class RReLU(Random):
    """y = x where x > 0, else slope * x, with a random slope between lower and upper for each element.

    x has any shape; y has x's shape and type. In evaluation, and in a frozen layer, the slope is (lower + upper) / 2.

    Example:
        >>> nn.RReLU(0.1, 0.3).eval()(mn.tensor([-2.0, 0.5]))
        tensor([-0.4,  0.5])

    Written to ONNX as LeakyRelu (opset 16), with the slope of evaluation; Xu et al. 2015, arXiv:1505.00853.
    """

    function = staticmethod(F.rrelu)
    shown = "lower upper"

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__(lower=lower, upper=upper, inplace=inplace)
