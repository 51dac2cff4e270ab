"""The modules below a loaded graph: a place for each node that has a mode, and for each module that weights are of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from minorm.nn import Module, Parameter
from minorm.nn.attributes import BUFFER, LOCAL_BUFFER, MODULE, PARAMETER
from minorm.support.masking import printable
from minorm.tensor.tensor import Tensor


class Sealed(Module):
    """A module whose parts cannot be exchanged once it is sealed, for what runs is the nodes of a file."""

    _sealed = False

    def seal(self) -> None:
        """From now on assigning, adding or deleting a part is an error, here and below."""
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
                f"{type(self).__name__}.{name}: {what}; the nodes of a loaded graph would not see it. Values change in "
                f"place: load_state_dict, copy_. To exchange layers, write model.replace({name!r}, layer), with the "
                "whole path of the place; or cut the graph before them, load(path, outputs=['...']), and put yours "
                "behind: nn.Sequential(graph, layer)"
            )


class Layer(Sealed):
    """A place in a loaded graph. It holds no tensors, the graph does; but it knows which are of this place.

    `parameters()` and `buffers()` give these, and those of the places below; so `requires_grad_`, `freeze` and an
    optimizer's parameter groups work on a place as on any module. With `recurse=False` they give what it holds: none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.uses: dict[str, Tensor] = {}  # of this place, not of the places below: what they are called here
        self.held: dict[int, Parameter] = {}  # those that its node reads, by the place of the input

    _operator = ""  # of the first node that reads a tensor of this place

    def size(self) -> str:
        """The shape of its first tensor, a number for one axis, to begin a `repr` with; "" without one."""
        shape = next((tensor.shape for tensor in self.uses.values()), None)
        return "" if shape is None else f"{shape[0] if len(shape) == 1 else tuple(shape)}, "

    def extra_repr(self) -> str:
        """The operator, and its tensors with their shapes."""
        tensors = [f"{printable(name)} {tuple(tensor.shape)}" for name, tensor in self.uses.items()]
        return ", ".join([self._operator, *tensors]) if self._operator else ", ".join(tensors)

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Parameter]]:
        """The Parameters of this place and of those below, each once."""
        for name, tensor in self._used(prefix, recurse):
            if isinstance(tensor, Parameter):
                yield name, tensor

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The running statistics of this place and of those below, each once."""
        for name, tensor in self._used(prefix, recurse, LOCAL_BUFFER):
            if not isinstance(tensor, Parameter):
                yield name, tensor

    def state_dict(
        self, prefix: str = "", *, destination: dict[str, Any] | None = None, keep_vars: bool = False
    ) -> dict[str, Any]:
        """The same, detached, sharing memory with the graph; `load_state_dict` fills them."""
        entries = {} if destination is None else destination
        for name, tensor in self._used(prefix.removesuffix("."), recurse=True):
            entries[name] = tensor if keep_vars else tensor.detach()
        return entries

    def _save_below(self, destination: dict[str, Any], path: str, keep_vars: bool) -> None:
        """What was put in below; the graph saves its tensors under their own names."""
        for name, child in self._own(MODULE):
            child._save_below(destination, f"{path}.{name}", keep_vars)

    def _loadable(self) -> dict[str, Tensor]:
        return dict(self._used("", recurse=True))

    def to(self, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: ARG002  Module's
        """An error: the nodes of a graph compute in one type, on one device."""
        raise TypeError("Layer.to: the graph holds the tensors of this place; convert or move the whole graph")

    def _used(self, prefix: str, recurse: bool, *more: str) -> Iterator[tuple[str, Any]]:
        """The tensors of this place and of those below, and what layers hold that were put in below; `more`: kinds."""
        seen: set[int] = set()
        for path, place in self._named_modules(prefix) if recurse else ():
            held = place.uses.items() if isinstance(place, Layer) else place._own(PARAMETER, BUFFER, *more)
            for name, tensor in held:
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield f"{path}.{name}" if path else name, tensor


@dataclass(frozen=True)
class Statistics:
    """How a layer keeps running statistics. per_sample: of each sample (InstanceNorm), not of the batch."""

    per_sample: bool
    momentum: float | None
    unbiased: bool


class StatisticsLayer(Layer):
    """A normalization of a loaded graph that was described by `minorm.statistics`."""

    statistics: Statistics | None = None
    has_running_stats: bool = True  # of its own, as nn.BatchNorm2d has


@dataclass(frozen=True)
class Written:
    """How a file writes a normalization in nodes of other operators.

    axes          that are normalized; () for groups of channels
    groups        the shape with the groups on an axis of their own, (N, num_groups, ...), and the `shape` behind it, in
                  which 0 keeps a length; None where that is x's
    weight, bias  the shapes in which the nodes read the two; None where there is none
    per_group     whether they are one number a group, put in before the shape behind it
    parts         the nodes: their operators, and their results
    """

    axes: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    shape: tuple[int, ...] | None = None
    weight: tuple[int, ...] | None = None
    bias: tuple[int, ...] | None = None
    per_group: bool = False
    parts: tuple[tuple[str, str], ...] = ()


class NormLayer(Layer):
    """A normalization of a loaded graph that its file writes as several nodes; weight and bias are the graph's own."""

    def __init__(self, eps: float, how: Written) -> None:
        super().__init__()
        self.training = False  # it has no mode
        self.eps, self.how = eps, how

    @property
    def weight(self) -> Parameter | None:
        """The Parameter that it multiplies with, None where it has none."""
        return self.held.get(1)

    @property
    def bias(self) -> Parameter | None:
        """The Parameter that it adds, None where it has none."""
        return self.held.get(2)
