"""weight_norm and spectral_norm: a weight that is computed from others at every call.

The layer then has a child `parametrizations.weight`, which holds the originals, and no parameter `weight`; before each
forward the attribute `weight` is computed anew. Keys are PyTorch's: `parametrizations.weight.original0` ...
"""

from __future__ import annotations

from typing import Any

from minorm.autograd import no_grad
from minorm.functional.response import normalize
from minorm.nn.container import ModuleDict
from minorm.nn.module import Module
from minorm.nn.parameter import Parameter
from minorm.ops.elementwise import Root
from minorm.random import generator
from minorm.tensor import Tensor


class Parametrization(Module):
    """What a weight is computed by: `forward()` gives it."""


class _WeightNorm(Parametrization):
    """weight = g * v / |v|, the norm over all axes but `dim`; Salimans and Kingma 2016, arXiv:1602.07868."""

    def __init__(self, weight: Tensor, dim: int | None) -> None:
        super().__init__()
        self.dim = dim
        self.original0 = Parameter(self._size(weight).detach())
        self.original1 = Parameter(weight.detach())

    def _size(self, v: Tensor) -> Tensor:
        axes = tuple(i for i in range(v.ndim) if self.dim is None or i != self.dim % v.ndim)
        return Root.apply((v * v).sum(axes, keepdim=self.dim is not None))

    def forward(self) -> Tensor:
        """The weight."""
        return self.original1 * (self.original0 / self._size(self.original1))


class _SpectralNorm(Parametrization):
    """weight / s, s its largest singular value, by power iteration; Miyato et al. 2018, arXiv:1802.05957."""

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
        """The weight; in training the singular vectors come one step closer first."""
        if self.training and not self.frozen:
            self._iterate(self.n_power_iterations)
        vectors = vars(self)["0"]
        u, v = vectors._u.clone(), vectors._v.clone()
        return self.original / ((self._matrix(self.original) @ v) * u).sum()


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Let weight = g * v / |v|: its size g and its direction v are learned apart. dim=None: one norm for all."""
    return _parametrized(module, name, _WeightNorm(getattr(module, name), dim))


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide the weight by its largest singular value, so that the layer stretches nothing by more than 1."""
    axis = (1 if type(module).__name__.startswith("ConvTranspose") else 0) if dim is None else dim
    return _parametrized(module, name, _SpectralNorm(getattr(module, name), n_power_iterations, eps, axis))


def _parametrized(module: Module, name: str, parametrization: Parametrization) -> Module:
    if not isinstance(getattr(module, name, None), Parameter):
        raise ValueError(f"parametrization: {type(module).__name__} has no parameter {name!r}")
    delattr(module, name)
    if not hasattr(module, "parametrizations"):
        module.add_module("parametrizations", ModuleDict())
    holder: Any = module.parametrizations
    holder[name] = parametrization

    def compute(layer: Any, args: Any) -> None:  # noqa: ARG001
        object.__setattr__(layer, name, parametrization())

    module.register_forward_pre_hook(compute)
    compute(module, ())
    return module
