"""Writes starting values into a tensor, in place. The values are a fixed number, or draws that are scaled by the number
of a unit's inputs.

A weighted sum of `fan_in` inputs has the variance of the inputs if each weight has variance 1 / fan_in. `gain`
compensates for the activation that follows: ReLU halves the second moment, so the gain of ReLU is sqrt(2). Kaiming uses
fan_in or fan_out, and Xavier uses their mean. A uniform draw on (-b, b) has standard deviation b / sqrt(3).

Names and meanings are PyTorch's. Draws come from the argument `generator`; the default is `minorm.random.generator()`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes, generators
from minorm.kernels import draws
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

ARGUMENTS = {
    "tensor": "the Tensor or Parameter to write into",
    "generator": "the mn.Generator that draws; None is minorm's generator, which `mn.manual_seed` sets",
    "gain": "a factor; `calculate_gain` returns it for an activation",
    "mode": '"fan_in" keeps the size of the values in forward, "fan_out" the size of the gradients',
    "nonlinearity": "the activation that follows the layer and decides the gain: see `calculate_gain`",
}
SLOPE = "the slope below 0, for leaky_relu"


def _fill(tensor: Tensor, values: Any) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"init: tensor is a {type(tensor).__name__}; expected a Tensor or Parameter")
    data = tensor.array
    with devices.on_device_of(data):
        data[...] = values if isinstance(values, float) else devices.to_device_of(values.astype(data.dtype), data)
    tensor.version.count += 1
    return tensor


@documented(ARGUMENTS, val="the value of every element")
def constant_(tensor: Tensor, val: float) -> Tensor:
    """tensor[...] = val, in place. Returns the tensor.

    Example:
        >>> nn.init.constant_(mn.empty(2), 0.5)
        tensor([0.5, 0.5])
    """
    return _fill(tensor, float(val))


@documented(ARGUMENTS)
def zeros_(tensor: Tensor) -> Tensor:
    """tensor[...] = 0, in place. Returns the tensor.

    Example:
        >>> nn.init.zeros_(mn.empty(2))
        tensor([0., 0.])
    """
    return _fill(tensor, 0.0)


@documented(ARGUMENTS)
def ones_(tensor: Tensor) -> Tensor:
    """tensor[...] = 1, in place. Returns the tensor.

    Example:
        >>> nn.init.ones_(mn.empty(2))
        tensor([1., 1.])
    """
    return _fill(tensor, 1.0)


@documented(ARGUMENTS, a="the lower end", b="the upper end")
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fills the tensor with draws from the uniform distribution on [a, b). Returns the tensor.

    Example:
        >>> x = nn.init.uniform_(mn.empty(1000), -2.0, 2.0)
        >>> (x.abs() <= 2).all().item()
        True
    """
    return _fill(tensor, draws.uniform(tensor.shape, dtypes.float64, tensor.device, generator, a, b))


@documented(ARGUMENTS, mean="the mean of the distribution", std="the standard deviation of the distribution")
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fills the tensor with draws from the normal distribution. Returns the tensor.

    Example:
        >>> x = nn.init.normal_(mn.empty(10000), mean=5.0)
        >>> abs(x.mean().item() - 5) < 0.1
        True
    """
    return _fill(tensor, generators.source(generator).normal(mean, std, tensor.shape))


@documented(
    ARGUMENTS,
    mean="the mean of the normal distribution",
    std="the standard deviation of the normal distribution",
    a="the smallest draw",
    b="the largest draw",
)
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Fills the tensor with draws from the normal distribution, and repeats each draw that is outside [a, b].

    Returns the tensor. Raises ValueError if [a, b] is empty, or if [a, b] is more than 8 std away from the mean.

    Example:
        >>> x = nn.init.trunc_normal_(mn.empty(1000), a=-1.0, b=1.0)
        >>> (x.abs() <= 1).all().item()
        True
    """
    if not a < b or mean + 8 * std < a or mean - 8 * std > b:
        raise ValueError(
            f"trunc_normal_: [a, b] is [{a}, {b}]; expected a < b, and an interval that overlaps mean +- 8 * std, "
            f"where mean={mean} and std={std}"
        )
    generator = generators.source(generator)
    values = generator.normal(mean, std, tensor.shape)
    outside = (values < a) | (values > b)
    while outside.any():
        values[outside] = generator.normal(mean, std, int(outside.sum()))
        outside = (values < a) | (values > b)
    return _fill(tensor, values)


@documented({}, nonlinearity="the activation that follows the layer", param="the slope of leaky_relu; None is 0.01")
def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """gain = 1 / sqrt(the share of the second moment that an activation keeps). ReLU keeps half: its gain is sqrt(2).

    With weights of standard deviation gain / sqrt(fan_in), values have about the same size in all layers. The gain is 1
    for linear, conv and sigmoid, 5 / 3 for tanh, sqrt(2 / (1 + slope^2)) for leaky_relu, and 3 / 4 for selu. Raises
    ValueError for other names.

    Example:
        >>> nn.init.calculate_gain("tanh")
        1.6666666666666667

    He et al. 2015, arXiv:1502.01852.
    """
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
    """Return (fan_in, fan_out) of a weight (out, in, *kernel): the number of inputs per output, and of outputs per
    input.
    """
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


@documented(ARGUMENTS, a=SLOPE)
def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Fills the tensor with draws that are uniform on (-b, b), where b = gain * sqrt(3 / fan).

    Values keep their size through ReLU layers. Returns the tensor. Raises ValueError if the tensor has fewer than two
    axes.

    Example:
        >>> w = nn.init.kaiming_uniform_(mn.empty(8, 6), nonlinearity="relu")
        >>> (w.abs() <= 1).all().item()  # sqrt(2) * sqrt(3 / 6)
        True

    He et al. 2015, arXiv:1502.01852.
    """
    fan = _fan(tensor, mode)
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / fan) if fan else 0.0
    return uniform_(tensor, -bound, bound, generator)


@documented(ARGUMENTS, a=SLOPE)
def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Fills the tensor with draws from a normal distribution whose standard deviation is gain / sqrt(fan).

    Values keep their size through ReLU layers. Returns the tensor. Raises ValueError if the tensor has fewer than two
    axes.

    Example:
        >>> w = nn.init.kaiming_normal_(mn.empty(200, 50), nonlinearity="relu")
        >>> abs(w.std().item() - 0.2) < 0.02  # sqrt(2 / 50)
        True

    He et al. 2015, arXiv:1502.01852.
    """
    fan = _fan(tensor, mode)
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0, generator)


@documented(ARGUMENTS)
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fills the tensor with draws that are uniform on (-b, b), where b = gain * sqrt(6 / (fan_in + fan_out)).

    Returns the tensor. Raises ValueError if the tensor has fewer than two axes.

    Example:
        >>> w = nn.init.xavier_uniform_(mn.empty(4, 2))
        >>> (w.abs() <= 1).all().item()  # sqrt(6 / 6)
        True

    Glorot and Bengio 2010.
    """
    total = sum(fans(tensor))
    bound = gain * math.sqrt(6.0 / total) if total else 0.0
    return uniform_(tensor, -bound, bound, generator)


@documented(ARGUMENTS)
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fills the tensor with normal draws of standard deviation gain * sqrt(2 / (fan_in + fan_out)).

    Returns the tensor. Raises ValueError if the tensor has fewer than two axes.

    Example:
        >>> w = nn.init.xavier_normal_(mn.empty(150, 50))
        >>> abs(w.std().item() - 0.1) < 0.01  # sqrt(2 / 200)
        True

    Glorot and Bengio 2010.
    """
    total = sum(fans(tensor))
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / total) if total else 0.0, generator)


@documented(ARGUMENTS)
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """tensor = gain * Q as a matrix (out, all other axes), with a random Q such that Q Q^T = 1 or Q^T Q = 1.

    All such Q are equally likely. A product with Q preserves the lengths of vectors. Q is made from normal draws by the
    method of Gram and Schmidt: the parts of each vector along the earlier vectors are subtracted. This is done twice.
    Returns the tensor. Raises ValueError if the tensor has fewer than two axes.

    Example:
        >>> w = nn.init.orthogonal_(mn.empty(2, 5))
        >>> ((w @ w.T - mn.eye(2)).abs() < 1e-5).all().item()
        True

    Saxe, McClelland and Ganguli 2013, arXiv:1312.6120.
    """
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: tensor has shape {tensor.shape}; expected at least 2 dimensions (out, in, ...)")
    rows = tensor.shape[0]
    drawn = generators.source(generator).normal(size=(rows, tensor.numel() // max(1, rows)))
    vectors = drawn.T.copy() if rows >= drawn.shape[1] else drawn
    for i, vector in enumerate(vectors):
        for _ in range(2):
            shares = np.einsum("ij,j->i", vectors[:i], vector)
            vector -= np.einsum("i,ij->j", shares, vectors[:i])
        vector /= np.sqrt((vector * vector).sum())
    found = vectors.T if rows >= drawn.shape[1] else vectors
    return _fill(tensor, gain * found.reshape(tensor.shape))


@documented(ARGUMENTS)
def eye_(tensor: Tensor) -> Tensor:
    """tensor[i, i] = 1, and 0 elsewhere: a Linear layer with this weight returns its input. Returns the tensor.

    Raises ValueError unless the tensor has two axes.

    Example:
        >>> nn.init.eye_(mn.empty(2, 3))
        tensor([[1., 0., 0.],
                [0., 1., 0.]])
    """
    if tensor.ndim != 2:
        raise ValueError(f"eye_: tensor has shape {tensor.shape}; expected a matrix")
    return _fill(tensor, np.eye(tensor.shape[0], tensor.shape[1]))


@documented(ARGUMENTS, groups="the number of groups of the convolution")
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fills a weight (out, in / groups, *kernel) so that the convolution returns its input. Returns the tensor.

    Output channel i of each group is input channel i of the group, or 0 if the group has fewer input channels. Raises
    ValueError unless the tensor has 3 to 5 axes and the number of output channels is a multiple of groups.

    Example:
        >>> conv = nn.Conv1d(2, 2, 3, padding=1, bias=False)
        >>> with mn.no_grad():
        ...     w = nn.init.dirac_(conv.weight)
        >>> x = mn.randn(1, 2, 5)
        >>> (conv(x) == x).all().item()
        True
    """
    if not 3 <= tensor.ndim <= 5 or groups < 1 or tensor.shape[0] % groups:
        raise ValueError(f"dirac_: tensor has shape {tensor.shape} with groups={groups}; expected (out, in, *kernel), "
                         "and groups that divide the first axis")  # fmt: skip
    values = np.zeros(tensor.shape)
    share = tensor.shape[0] // groups
    for i in range(tensor.shape[0]):
        if i % share < tensor.shape[1]:
            values[(i, i % share, *(n // 2 for n in tensor.shape[2:]))] = 1
    return _fill(tensor, values)


def default_(weight: Tensor, bias: Tensor | None) -> None:
    """Draw weight and bias uniformly from (-b, b), where b = 1 / sqrt(fan_in). PyTorch's Linear and convolutions do the
    same.
    """
    kaiming_uniform_(weight, a=math.sqrt(5))  # gain sqrt(2 / 6), so b = sqrt(1 / 3) * sqrt(3 / fan_in)
    if bias is not None:
        fan_in = _fan(weight, "fan_in")
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        uniform_(bias, -bound, bound)
