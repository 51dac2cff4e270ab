"""weight_norm, spectral_norm, weight_standardization: compute a weight from other parameters at every call.

The layer then has no parameter `weight`: its child `parametrizations.weight` holds the original parameters, and reading
`layer.weight` computes the weight again. Keys are PyTorch's: `parametrizations.weight.original0` ...
"""

from __future__ import annotations

import functools
from typing import Any

from minorm.devices.generators import generator
from minorm.functional.norm import normalization
from minorm.functional.norm.response import normalize
from minorm.graph.grad_mode import no_grad
from minorm.nn.container import ModuleDict
from minorm.nn.module import Module
from minorm.nn.parameter import Parameter
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


class Parametrization(Module):
    """Base of the modules that compute a weight. `forward()` returns the weight."""


class _WeightNorm(Parametrization):
    """weight = g * v / |v|, with the norm over all axes but `dim`; Salimans and Kingma 2016, arXiv:1602.07868."""

    def __init__(self, weight: Tensor, dim: int | None) -> None:
        super().__init__()
        self.dim = dim
        self.original0 = Parameter(self._size(weight).detach())
        self.original1 = Parameter(weight.detach())

    def _size(self, v: Tensor) -> Tensor:
        axes = tuple(i for i in range(v.ndim) if self.dim is None or i != self.dim % v.ndim)
        return v.norm(2, axes, keepdim=self.dim is not None) if axes else v.abs()

    def forward(self) -> Tensor:
        """Return the weight."""
        return self.original1 * (self.original0 / self._size(self.original1))


class _SpectralNorm(Parametrization):
    """weight = w / s, where s is the largest singular value of w, computed by power iteration; Miyato et al. 2018,
    arXiv:1802.05957.
    """

    def __init__(self, weight: Tensor, n_power_iterations: int, eps: float, dim: int) -> None:
        super().__init__()
        self.n_power_iterations, self.eps, self.dim = n_power_iterations, eps, dim
        self.original = Parameter(weight.detach())
        rows, columns = self._matrix(weight.detach()).shape
        vectors: Any = Module()
        self.add_module("0", vectors)
        for name, length in (("_u", rows), ("_v", columns)):
            drawn = Tensor(generator().standard_normal(length).astype(weight.dtype)).to(weight.device)
            vectors.register_buffer(name, normalize(drawn, dim=0, eps=eps))
        self._iterate(15)

    def _matrix(self, weight: Tensor) -> Tensor:
        dim = self.dim % weight.ndim
        moved = weight.permute(dim, *(i for i in range(weight.ndim) if i != dim))
        return moved.reshape(moved.shape[0], -1)

    def _iterate(self, count: int) -> None:
        vectors = vars(self)["0"]
        with no_grad():
            matrix = self._matrix(self.original.detach())
            for _ in range(count):
                vectors._u.copy_(normalize(matrix @ vectors._v, dim=0, eps=self.eps))
                vectors._v.copy_(normalize(matrix.mT @ vectors._u, dim=0, eps=self.eps))

    def forward(self) -> Tensor:
        """Return the weight. In training, first take steps of the power iteration."""
        if self.training and not self.frozen:
            self._iterate(self.n_power_iterations)
        vectors = vars(self)["0"]
        u, v = vectors._u.clone(), vectors._v.clone()
        return self.original / ((self._matrix(self.original) @ v) * u).sum()


class _WeightStandardization(Parametrization):
    """weight = (w - mean) / sqrt(var + eps), over all weights of one output channel; arXiv:1903.10520."""

    def __init__(self, weight: Tensor, eps: float, transposed_groups: int) -> None:
        super().__init__()
        self.eps, self.groups = eps, transposed_groups
        self.original = Parameter(weight.detach())

    def forward(self) -> Tensor:
        """Return the weight."""
        w = self.original
        if not self.groups:  # (out, in / groups, *kernel)
            return normalization(w, axes=tuple(range(1, w.ndim)), eps=self.eps)
        split = w.reshape(self.groups, -1, *w.shape[1:])  # (groups, in / groups, out / groups, *kernel)
        return normalization(split, axes=(1, *range(3, split.ndim)), eps=self.eps).reshape(w.shape)


NAMED = {"module": "the layer to change", "name": "the name of the parameter"}


@documented(NAMED, dim="the axis of the outputs, with one g for each output; None means one g for the whole weight")
def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """weight = g * v / |v|: the layer learns the size g and the direction v separately. Returns the changed module.

    Two parameters, parametrizations.<name>.original0 (g) and original1 (v), replace the parameter. Reading
    module.<name> computes the weight from g and v. Raises AttributeError if the module has no attribute of this name,
    and ValueError if the attribute is not a parameter.

    Example:
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))
        >>> [name for name, _ in layer.named_parameters()]
        ['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1']
        >>> layer(mn.randn(3, 4)).shape
        (3, 2)

    Salimans and Kingma 2016, arXiv:1602.07868.
    """
    return _parametrized(module, name, _WeightNorm(getattr(module, name), dim))


@documented(
    NAMED,
    n_power_iterations="the number of power iterations in each call in training",
    eps="added to the lengths of u and v",
    dim="the axis of the outputs; None is 1 for a ConvTranspose, else 0",
)
def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """weight = w / s, where s is the largest singular value of w. A product with this weight makes no vector longer.

    Power iteration computes s = u^T w v; u and v are buffers. A call in training first takes n_power_iterations steps.
    The parameter w is stored as parametrizations.<name>.original, and reading module.<name> computes the weight from w.
    Returns the changed module. Raises ValueError if the module has no parameter of this name.

    Example:
        >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2))
        >>> _ = layer.train(), [layer.weight for _ in range(100)]
        >>> largest = (layer.weight @ layer.weight.T).trace()  # the sum of the squared singular values
        >>> 0.99 < largest.item() < 2.01
        True

    Miyato et al. 2018, arXiv:1802.05957.
    """
    axis = (1 if type(module).__name__.startswith("ConvTranspose") else 0) if dim is None else dim
    return _parametrized(module, name, _SpectralNorm(getattr(module, name), n_power_iterations, eps, axis))


@documented(NAMED, eps="added to the variance")
def weight_standardization(module: Module, name: str = "weight", eps: float = 1e-6) -> Module:
    """weight = (w - mean) / sqrt(var + eps) for each output channel.

    So the weights of each output channel have mean 0 and variance 1. Use this for layers before a GroupNorm, or before
    a BatchNorm with small batches. The output channels of a ConvTranspose are on axis 1. The parameter w is stored as
    parametrizations.<name>.original, and reading module.<name> computes the weight from w. Returns the changed module.
    Raises ValueError if a channel has only one weight.

    Example:
        >>> conv = nn.utils.parametrizations.weight_standardization(nn.Conv2d(3, 4, 3))
        >>> (conv.weight.mean((1, 2, 3)).abs() < 1e-6).all().item()
        True

    Qiao, Wang, Liu, Shen and Yuille 2019, arXiv:1903.10520.
    """
    weight = _leaf(module, name)
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not eps >= 0:
        raise ValueError(f"weight_standardization: eps={eps!r}; expected a number of at least 0")
    transposed = type(module).__name__.startswith("ConvTranspose")
    groups = getattr(module, "groups", 1) if transposed else 0
    channels = weight.shape[1] * groups if transposed else weight.shape[0] if weight.ndim else 1
    if weight.numel() < 2 * channels:
        raise ValueError(
            f"weight_standardization: {name} has shape {weight.shape}, which is one number for each of {channels} "
            "output channels, and one number has no variance; expected at least two numbers per channel"
        )
    return _parametrized(module, name, _WeightStandardization(weight, float(eps), groups))


def _parametrized(module: Module, name: str, parametrization: Parametrization) -> Module:
    _leaf(module, name)
    delattr(module, name)
    if not hasattr(module, "parametrizations"):
        module.add_module("parametrizations", ModuleDict())
    holder: Any = module.parametrizations
    holder[name] = parametrization
    kind, names = getattr(type(module), "parametrized", (type(module), ()))
    module.__class__ = _computing(kind, (*names, name))
    return module


def _computing(kind: type[Module], names: tuple[str, ...]) -> type[Module]:
    """Return a subclass of `kind` that has the same name and computes the attributes `names`."""
    if (kind, names) not in _made:
        members: dict[str, Any] = {name: property(functools.partial(_compute, name=name)) for name in names}
        members |= {"parametrized": (kind, names), "__module__": kind.__module__, "__doc__": kind.__doc__}
        members["__reduce__"] = _reduce
        _made.setdefault((kind, names), type(kind.__name__, (kind,), members))  # two threads get the same class
    return _made[kind, names]


_made: dict[tuple[Any, tuple[str, ...]], type[Module]] = {}


def _compute(module: Any, name: str) -> Tensor:
    return module.parametrizations[name]()


def _reduce(module: Any) -> tuple[Any, ...]:
    return _empty, type(module).parametrized, vars(module)


def _empty(kind: type[Module], names: tuple[str, ...]) -> Module:
    """Return a parametrized module that has no attributes yet. When a module is copied or unpickled, the attributes are
    set afterwards.
    """
    made = _computing(kind, names)
    return made.__new__(made)


def _leaf(module: Module, name: str) -> Parameter:
    weight = getattr(module, name, None)
    if not isinstance(weight, Parameter):
        raise ValueError(f"parametrization: {type(module).__name__} has no parameter {name!r}")
    return weight
