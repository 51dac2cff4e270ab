"""Starting values, written into a tensor in place: a fixed number, or draws scaled by how many inputs a unit has.

A sum of `fan_in` products keeps the variance of its inputs when each weight has variance 1 / fan_in; `gain` makes up
for what the activation after it takes away (ReLU halves the second moment, so its gain is sqrt(2)). Kaiming uses
fan_in or fan_out, Xavier their mean. A uniform draw on (-b, b) has standard deviation b / sqrt(3).

Names and meaning are PyTorch's; draws come from `minorm.random.generator()`, or from `generator`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm import devices, random
from minorm.tensor import Tensor


def _fill(tensor: Tensor, values: Any) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"init: tensor is a {type(tensor).__name__}; expected a Tensor or Parameter")
    data = tensor.array
    with devices.on_device_of(data):
        data[...] = values if isinstance(values, float) else devices.to_device_of(values.astype(data.dtype), data)
    tensor.version.count += 1
    return tensor


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Every element is `val`."""
    return _fill(tensor, float(val))


def zeros_(tensor: Tensor) -> Tensor:
    """Every element is 0."""
    return _fill(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Every element is 1."""
    return _fill(tensor, 1.0)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Draws from the uniform distribution on [a, b)."""
    return _fill(tensor, random.source(generator).uniform(a, b, tensor.shape))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Draws from the normal distribution."""
    return _fill(tensor, random.source(generator).normal(mean, std, tensor.shape))


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Draws from the normal distribution, each one outside [a, b] drawn again."""
    if not a < b or mean + 8 * std < a or mean - 8 * std > b:
        raise ValueError(
            f"trunc_normal_: [a, b] is [{a}, {b}]; expected an interval that mean={mean}, std={std} reaches"
        )
    generator = random.source(generator)
    values = generator.normal(mean, std, tensor.shape)
    outside = (values < a) | (values > b)
    while outside.any():
        values[outside] = generator.normal(mean, std, int(outside.sum()))
        outside = (values < a) | (values > b)
    return _fill(tensor, values)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor for the standard deviation of weights that feed this activation."""
    if nonlinearity in ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "sigmoid"):
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity == "selu":
        return 0.75
    raise ValueError(
        f"calculate_gain: nonlinearity is {nonlinearity!r}; expected linear, conv1d, conv2d, conv3d, sigmoid, tanh, "
        "relu, leaky_relu or selu"
    )


def fans(tensor: Tensor) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight (out, in, *kernel): the products per output, and the uses of each input."""
    if tensor.ndim < 2:
        raise ValueError(
            f"init: fan_in and fan_out need a weight of at least 2 dimensions (out, in, ...); shape is {tensor.shape}; "
            "use normal_, uniform_ or constant_ for vectors"
        )
    receptive = math.prod(tensor.shape[2:])
    return tensor.shape[1] * receptive, tensor.shape[0] * receptive


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"init: mode is {mode!r}; expected 'fan_in' or 'fan_out'")
    return fans(tensor)[mode == "fan_out"]


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Uniform on (-b, b) with b = gain * sqrt(3 / fan). Source: He et al. 2015, arXiv:1502.01852."""
    fan = _fan(tensor, mode)
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / fan) if fan else 0.0
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Normal with standard deviation gain / sqrt(fan). Source: He et al. 2015, arXiv:1502.01852."""
    fan = _fan(tensor, mode)
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0, generator)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform on (-b, b) with b = gain * sqrt(6 / (fan_in + fan_out)). Source: Glorot and Bengio 2010."""
    total = sum(fans(tensor))
    bound = gain * math.sqrt(6.0 / total) if total else 0.0
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with standard deviation gain * sqrt(2 / (fan_in + fan_out)). Source: Glorot and Bengio 2010."""
    total = sum(fans(tensor))
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / total) if total else 0.0, generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """gain * Q with Q Q^T = 1 or Q^T Q = 1, of the tensor seen as (out, the rest): drawn evenly from all such.

    Q is what Gram and Schmidt make of normal draws, each vector cleared of those before it twice. Source: Saxe et al.
    2013, arXiv:1312.6120.
    """
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: tensor has shape {tensor.shape}; expected at least 2 dimensions (out, in, ...)")
    rows = tensor.shape[0]
    drawn = random.source(generator).normal(size=(rows, tensor.numel() // max(1, rows)))
    vectors = drawn.T.copy() if rows >= drawn.shape[1] else drawn
    for i, vector in enumerate(vectors):
        for _ in range(2):
            shares = np.einsum("ij,j->i", vectors[:i], vector)
            vector -= np.einsum("i,ij->j", shares, vectors[:i])
        vector /= np.sqrt((vector * vector).sum())
    found = vectors.T if rows >= drawn.shape[1] else vectors
    return _fill(tensor, gain * found.reshape(tensor.shape))


def eye_(tensor: Tensor) -> Tensor:
    """1 on the diagonal of a matrix, 0 elsewhere."""
    if tensor.ndim != 2:
        raise ValueError(f"eye_: tensor has shape {tensor.shape}; expected a matrix")
    return _fill(tensor, np.eye(tensor.shape[0], tensor.shape[1]))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The weight (out, in, *kernel) of a convolution that passes its inputs on, as many as there are outputs."""
    if not 3 <= tensor.ndim <= 5 or groups < 1 or tensor.shape[0] % groups:
        raise ValueError(f"dirac_: tensor has shape {tensor.shape} with groups={groups}; expected (out, in, *kernel), "
                         "and groups that divide out")  # fmt: skip
    values = np.zeros(tensor.shape)
    share = tensor.shape[0] // groups
    for i in range(tensor.shape[0]):
        if i % share < tensor.shape[1]:
            values[(i, i % share, *(n // 2 for n in tensor.shape[2:]))] = 1
    return _fill(tensor, values)


def default_(weight: Tensor, bias: Tensor | None) -> None:
    """PyTorch's default for linear and convolution layers: weight and bias uniform on (-b, b), b = 1 / sqrt(fan_in)."""
    kaiming_uniform_(weight, a=math.sqrt(5))  # gain sqrt(2 / 6), so b = sqrt(1 / 3) * sqrt(3 / fan_in)
    if bias is not None:
        fan_in = _fan(weight, "fan_in")
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        uniform_(bias, -bound, bound)
