"""Dropout functions: for single elements, whole channels, whole samples, and the outputs of `selu`."""

from __future__ import annotations

import numpy as np

from minorm import devices
from minorm.devices import generators
from minorm.functional.argument_texts import DROPOUT
from minorm.functional.arguments import floats, number
from minorm.graph import trace
from minorm.kernels import draws
from minorm.ops.dropout import Dropout
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(DROPOUT)
@trace.operation
def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = x * m / (1 - p); in evaluation y = x. For each element, m is 0 with probability p, else 1.

    The mean of y is x, so evaluation needs no factor. The draws come from minorm's generator, so they repeat after
    `minorm.manual_seed` with the same seed. Raises ValueError unless 0 <= p <= 1.

    Example:
        >>> x = mn.ones(1000)
        >>> sorted(set(F.dropout(x, p=0.5).tolist()))
        [0.0, 2.0]
        >>> F.dropout(x, training=False) is x
        True

    Its ONNX operator is Dropout; Srivastava et al. 2014.
    """
    floats("dropout", x=x)
    check_probability("dropout", p)
    if not training or p == 0:
        return x
    return _dropped(x, float(p))


def _dropped(x: Tensor, p: float) -> Tensor:
    blocks = draws.take_blocks(None, x.numel(), on_host=devices.is_host(x.array))
    return Dropout.apply(x, p=p, blocks=blocks, generator=generators.generator())


def check_probability(operation: str, p: float, name: str = "p") -> None:
    """Raise TypeError or ValueError unless p, passed as the argument `name`, is a number from 0 to 1."""
    number(operation, name, p)
    if not 0 <= p <= 1:
        raise ValueError(f"{operation}: {name} is {p}; expected a probability, 0 <= {name} <= 1")


@documented(DROPOUT, input="(N, C, L) or (C, L), floats: the x of the formula")
@trace.operation
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = x * m / (1 - p); in evaluation y = x. For each channel, m is 0 with probability p, else 1.

    Neighbouring elements of a signal are similar, so dropping single elements would remove little information. Raises
    ValueError if p is outside 0 to 1, or if input does not have 2 or 3 axes.

    Example:
        >>> y = F.dropout1d(mn.ones(2, 3, 4), p=0.5)
        >>> sorted(set(y.mean(2).reshape(-1).tolist()) | {0.0, 2.0})
        [0.0, 2.0]

    Tompson et al. 2015, arXiv:1411.4280.
    """
    return _whole_channels("dropout1d", input, (2, 3), p, training)


@documented(DROPOUT, input="(N, C, H, W), (N, C, L) or (N, C), floats: the x of the formula")
@trace.operation
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = x * m / (1 - p); in evaluation y = x. For each channel, m is 0 with probability p, else 1.

    Neighbouring pixels are similar, so dropping single pixels would remove little information. Raises ValueError if p
    is outside 0 to 1, or if input does not have 2, 3 or 4 axes.

    Example:
        >>> y = F.dropout2d(mn.ones(2, 3, 4, 4), p=0.5)
        >>> sorted(set(y.mean((2, 3)).reshape(-1).tolist()) | {0.0, 2.0})
        [0.0, 2.0]

    Tompson et al. 2015, arXiv:1411.4280.
    """
    return _whole_channels("dropout2d", input, (2, 3, 4), p, training, batch=True)


@documented(DROPOUT, input="(N, C, D, H, W) or (C, D, H, W), floats: the x of the formula")
@trace.operation
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = x * m / (1 - p); in evaluation y = x. For each channel, m is 0 with probability p, else 1.

    Neighbouring elements of a volume are similar, so dropping single elements would remove little information. Raises
    ValueError if p is outside 0 to 1, or if input does not have 4 or 5 axes.

    Example:
        >>> y = F.dropout3d(mn.ones(2, 3, 4, 4, 4), p=0.5)
        >>> sorted(set(y.mean((2, 3, 4)).reshape(-1).tolist()) | {0.0, 2.0})
        [0.0, 2.0]

    Tompson et al. 2015, arXiv:1411.4280.
    """
    return _whole_channels("dropout3d", input, (4, 5), p, training)


@documented(
    DROPOUT,
    input="the x of the formula: floats of any shape, the output of `selu`",
    p="the probability of the lowest value, 0 to 1",
)
@trace.operation
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = a * (x where kept, else -1.7581) + b, where a and b keep mean 0 and variance 1; in evaluation y = x.

    This is dropout for networks with `selu`, whose lowest value is -1.7581. Raises ValueError unless 0 <= p <= 1.

    Example:
        >>> y = F.alpha_dropout(mn.randn(10000), p=0.3, training=True)
        >>> abs(y.mean().item()) < 0.1 and abs(y.std().item() - 1) < 0.1
        True

    Klambauer et al. 2017, arXiv:1706.02515.
    """
    floats("alpha_dropout", input=input)
    check_probability("alpha_dropout", p)
    return _alpha(input, input.shape, p) if training and p else input


@documented(
    DROPOUT,
    input="(N, C, *), floats: the x of the formula",
    p="the probability that a channel gets the lowest value, 0 to 1",
)
@trace.operation
def feature_alpha_dropout(
    input: Tensor,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,  # noqa: ARG001
) -> Tensor:
    """y = a * (x where the channel is kept, else -1.7581) + b; in evaluation y = x.

    This is `alpha_dropout` of whole channels, where a and b keep mean 0 and variance 1. Raises ValueError unless 0 <= p
    <= 1.

    Example:
        >>> x = mn.randn(2, 3, 4)
        >>> F.feature_alpha_dropout(x, p=0.5, training=True).shape
        (2, 3, 4)
        >>> F.feature_alpha_dropout(x) is x
        True

    Klambauer et al. 2017, arXiv:1706.02515.
    """
    floats("feature_alpha_dropout", input=input)
    check_probability("feature_alpha_dropout", p)
    return _alpha(input, (*input.shape[:2], *(1,) * (input.ndim - 2)), p) if training and p else input


@documented(
    {},
    input="the x of the formula, (N, *), floats: the output of a residual branch",
    p="the probability of a zero, 0 to 1",
    mode='"row" draws one number for each sample, "batch" one number for the whole batch',
    training="True draws zeros, False gives input itself",
)
@trace.operation
def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """y = x * m / (1 - p); in evaluation y = x. Per sample or per batch, m is 0 with probability p, else 1.

    Where m is 0, the residual branch is left out and the block returns its input. So the depth of the network varies
    from sample to sample. For p = 1, y is 0. The draws come from minorm's generator. Raises ValueError if p is outside
    0 to 1, or if mode is not "row" or "batch".

    Example:
        >>> y = F.stochastic_depth(mn.ones(100, 3, 4, 4), p=0.5, mode="row")
        >>> sorted(set(y.flatten(1).mean(1).tolist()))
        [0.0, 2.0]

    Huang et al. 2016, arXiv:1603.09382.
    """
    floats("stochastic_depth", input=input)
    check_stochastic_depth("stochastic_depth", p, mode)
    if input.ndim == 0:
        raise ValueError("stochastic_depth: input has no axes; expected (N, *)")
    if not training or p == 0:
        return input
    samples = input.shape[0] if mode == "row" else 1
    return input * _draw_factors(input, (samples, *(1,) * (input.ndim - 1)), p)


def check_stochastic_depth(operation: str, p: float, mode: str) -> None:
    """Raise an error unless p is a number from 0 to 1, and mode is "batch" or "row"."""
    check_probability(operation, p)
    if mode not in ("batch", "row"):
        raise ValueError(f"{operation}: mode is {mode!r}; expected 'batch' or 'row'")


LOWEST = -1.7580993408473766  # the lowest value of selu: -scale * alpha


def _whole_channels(
    name: str, x: Tensor, ranks: tuple[int, ...], p: float, training: bool, batch: bool = False
) -> Tensor:
    floats(name, input=x)
    check_probability(name, p)
    if x.ndim not in ranks:
        raise ValueError(f"{name}: input has shape {x.shape}; expected {' or '.join(map(str, ranks))} axes")
    if not training or p == 0:
        return x
    lead = x.shape[:2] if batch or x.ndim == ranks[-1] else x.shape[:1]
    return x * _draw_factors(x, (*lead, *(1,) * (x.ndim - len(lead))), p)


def _draw_factors(x: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    """Draw a tensor of shape `shape`. An element is 0 with probability p, else 1 / (1 - p)."""
    with devices.on_device_of(x.array):
        ones = Tensor(np.ones_like(x.array, shape=shape))
    return _dropped(ones, float(p))


def _alpha(x: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    if p == 1:
        return x * 0
    kept = _draw_factors(x, shape, p) * (1 - p)
    scale = ((1 - p) * (1 + p * LOWEST**2)) ** -0.5
    return (x * kept + (1 - kept) * LOWEST) * scale - scale * p * LOWEST
