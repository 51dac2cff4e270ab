"""Activation layers with corners; see minorm.functional.piecewise. `inplace` is taken, the result is a new tensor."""

from __future__ import annotations

from typing import Any

from minorm.functional import piecewise as F
from minorm.nn.module import Module
from minorm.nn.options import Options, Random
from minorm.nn.parameter import Parameter, check_sizes, uninitialized
from minorm.tensor import Tensor


class PReLU(Module):
    """x where x > 0, else weight * x; weight is learned: one number, or one for each channel. He et al. 2015."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        check_sizes("PReLU", num_parameters=num_parameters)
        self.num_parameters, self.init = num_parameters, init
        self.weight: Parameter = uninitialized((num_parameters,), dtype, device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Every slope is `init` again."""
        self.weight.detach().fill_(self.init)

    def forward(self, input: Tensor) -> Tensor:
        """See `F.prelu`."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """How many slopes."""
        return f"num_parameters={self.num_parameters}"


class Hardtanh(Options):
    """min(max(x, min_val), max_val)"""

    function = staticmethod(F.hardtanh)
    shown = "min_val max_val"

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(min_val=min_val, max_val=max_val, inplace=inplace)


class Threshold(Options):
    """x where x > threshold, else value"""

    function = staticmethod(F.threshold)
    shown = "threshold value"

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(threshold=threshold, value=value, inplace=inplace)


class Hardshrink(Options):
    """x where |x| > lambd, else 0"""

    function = staticmethod(F.hardshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)

    def extra_repr(self) -> str:
        """The bound."""
        return str(self.options()["lambd"])


class Softshrink(Options):
    """x moved by lambd towards 0, and 0 where |x| <= lambd"""

    function = staticmethod(F.softshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)

    def extra_repr(self) -> str:
        """The bound."""
        return str(self.options()["lambd"])


class RReLU(Random):
    """x where x > 0, else a * x; a is drawn from lower to upper in training, their mean in evaluation"""

    function = staticmethod(F.rrelu)
    shown = "lower upper"

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__(lower=lower, upper=upper, inplace=inplace)
