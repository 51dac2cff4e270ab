"""The modules of a loaded graph: one for each node with a mode, and one for each module of the file with weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from minorm.nn import Module, Parameter
from minorm.nn.attributes import BUFFER, LOCAL_BUFFER, MODULE, PARAMETER
from minorm.support.safe_names import printable
from minorm.tensor.tensor import Tensor


class Sealed(Module):
    """A module whose parts cannot be exchanged after `seal`, because a run executes the nodes of the file."""

    _sealed = False

    def seal(self) -> None:
        """From now on, raise an error if a part of this module, or of a module below, is assigned, added or deleted."""
        for module in self.modules():
            vars(module)["_sealed"] = True

    def _register(self, name: str, value: Any, kind: str, operation: str) -> None:
        self._refuse(name, f"{operation}: got a {type(value).__name__}")
        super()._register(name, value, kind, operation)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._kinds or isinstance(value, Tensor):
            self._refuse(name, f"got a {type(value).__name__}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self._kinds:
            self._refuse(name, "deleted")
        super().__delattr__(name)

    def _refuse(self, name: str, what: str) -> None:
        if self._sealed:
            raise TypeError(
                f"{type(self).__name__}.{name}: {what}; the nodes of a loaded graph would not use it. Change values "
                f"in place, with load_state_dict or copy_. To exchange layers, write model.replace({name!r}, layer), "
                "with the layer's whole path. Or cut the graph before these layers, load(path, outputs=['...']), and "
                "append your own: nn.Sequential(graph, layer)"
            )


class Layer(Sealed):
    """A module of a loaded graph that lists the tensors of a layer; the graph itself holds these tensors.

    `parameters()` and `buffers()` give the tensors of this Layer and of the Layers below. So `requires_grad_`, `freeze`
    and an optimizer's parameter groups work on a Layer as on any module. With `recurse=False`, `parameters()` and
    `buffers()` give nothing, because the Layer itself holds no tensors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.uses: dict[str, Tensor] = {}  # the tensors of this place without the places below, by their names here
        self.held: dict[int, Parameter] = {}  # input's number -> the Parameter that its node reads there

    _operator = ""  # the operator of the first node that reads a tensor of this place

    def size(self) -> str:
        """Return the shape of the first tensor for the start of a `repr`; "" if the Layer has no tensors.

        The shape of a tensor with one axis is a plain number.
        """
        shape = next((tensor.shape for tensor in self.uses.values()), None)
        return "" if shape is None else f"{shape[0] if len(shape) == 1 else tuple(shape)}, "

    def extra_repr(self) -> str:
        """Return the name of the operator, and the tensors with their shapes."""
        tensors = [f"{printable(name)} {tuple(tensor.shape)}" for name, tensor in self.uses.items()]
        return ", ".join([self._operator, *tensors]) if self._operator else ", ".join(tensors)

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Yield the Parameters of this Layer and of the Layers below, each once."""
        for name, tensor in self._used(prefix, recurse):
            if isinstance(tensor, Parameter):
                yield name, tensor

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Yield the running statistics of this Layer and of the Layers below, each once."""
        for name, tensor in self._used(prefix, recurse, LOCAL_BUFFER):
            if not isinstance(tensor, Parameter):
                yield name, tensor

    def state_dict(
        self, prefix: str = "", *, destination: dict[str, Any] | None = None, keep_vars: bool = False
    ) -> dict[str, Any]:
        """Return the detached tensors of this Layer and of the Layers below.

        These tensors share memory with the graph, so `load_state_dict` fills the graph's tensors.
        """
        entries = {} if destination is None else destination
        for name, tensor in self._used(prefix.removesuffix("."), recurse=True):
            entries[name] = tensor if keep_vars else tensor.detach()
        return entries

    def _save_below(self, destination: dict[str, Any], path: str, keep_vars: bool) -> None:
        """Save only the inserted layers below this Layer; the graph itself saves the tensors of the file."""
        for name, child in self._own(MODULE):
            child._save_below(destination, f"{path}.{name}", keep_vars)

    def _loadable(self) -> dict[str, Tensor]:
        return dict(self._used("", recurse=True))

    def to(self, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: ARG002  Module's
        """Raise TypeError, because all nodes of a graph compute in one type and on one device."""
        raise TypeError("Layer.to: the graph holds the tensors of this layer; convert or move the whole graph")

    def _used(self, prefix: str, recurse: bool, *more: str) -> Iterator[tuple[str, Any]]:
        """Yield the tensors of this Layer and of the modules below.

        `more` names further kinds of tensors that inserted layers yield.
        """
        seen: set[int] = set()
        for path, place in self._named_modules(prefix) if recurse else ():
            held = place.uses.items() if isinstance(place, Layer) else place._own(PARAMETER, BUFFER, *more)
            for name, tensor in held:
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield f"{path}.{name}" if path else name, tensor


@dataclass(frozen=True)
class Statistics:
    """Says how a layer keeps running statistics; `per_sample` is True for statistics of each sample (InstanceNorm)."""

    per_sample: bool
    momentum: float | None
    unbiased: bool


class StatisticsLayer(Layer):
    """A normalization of a loaded graph; the metadata entry `minorm.statistics` describes its running statistics."""

    statistics: Statistics | None = None
    has_running_stats: bool = True  # True if it owns running statistics, as nn.BatchNorm2d does


@dataclass(frozen=True)
class Written:
    """Says how a file writes a normalization as nodes of other operators.

    axes          the normalized axes; () if groups of channels are normalized
    groups        the shape with the groups on a separate axis, (N, num_groups, ...)
    shape         the shape that joins the groups again (a 0 keeps the length of x); None if it is the shape of x
    weight, bias  the shapes in which the nodes read weight and bias; None for an absent one
    per_group     True if weight and bias have one number per group and are applied before the groups are joined
    parts         a pair for each node: its operator, and the name of its result
    """

    axes: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    shape: tuple[int, ...] | None = None
    weight: tuple[int, ...] | None = None
    bias: tuple[int, ...] | None = None
    per_group: bool = False
    parts: tuple[tuple[str, str], ...] = ()


class NormLayer(Layer):
    """A normalization that the file of a loaded graph writes as several nodes; the graph owns weight and bias."""

    def __init__(self, eps: float, how: Written) -> None:
        super().__init__()
        self.training = False  # it has no mode
        self.eps, self.how = eps, how

    @property
    def weight(self) -> Parameter | None:
        """The Parameter by which the layer multiplies; None if the layer has no weight."""
        return self.held.get(1)

    @property
    def bias(self) -> Parameter | None:
        """The Parameter that the layer adds; None if the layer has no bias."""
        return self.held.get(2)
