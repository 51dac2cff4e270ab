"""Containers: modules whose children are numbered (Sequential, ModuleList) or named by the user (ModuleDict)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from minorm.nn.fused_pairs import run_together
from minorm.nn.module import Module
from minorm.support.documented import documented
from minorm.support.safe_names import printable


class _Numbered(Module):
    """Base of Sequential and ModuleList, which hold children in order and have the methods of a list."""

    def _keys(self) -> list[str]:
        return list(self._kinds)

    def _key(self, index: int) -> str:
        keys = self._keys()
        if not -len(keys) <= index < len(keys):
            raise IndexError(f"{type(self).__name__}: index {index} is out of range for {len(keys)} modules")
        return keys[index]

    def __len__(self) -> int:
        return len(self._kinds)

    def __iter__(self) -> Iterator[Module]:
        return iter([self.__dict__[name] for name in self._kinds])

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            part = type(self)()
            for name in self._keys()[index]:
                part.add_module(name if isinstance(self, Sequential) else str(len(part)), self.__dict__[name])
            return part
        return self.__dict__[self._key(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        for name in self._keys()[index] if isinstance(index, slice) else [self._key(index)]:
            delattr(self, name)
        if all(name.isdigit() for name in self._kinds):  # names stay 0, 1, 2 ... as in PyTorch
            self._renumber(list(self))

    def _renumber(self, modules: list[Module]) -> None:
        for name in self._keys():
            delattr(self, name)
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> Any:
        """Add a module at the end; returns the container."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add several modules at the end; returns the container."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Add a module before position `index`; returns the container."""
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)
        return self


@documented({}, args="the layers in their order, or one dict of names and layers")
class Sequential(_Numbered):
    """y = last(... second(first(x))): layers one after the other.

    Sequential(a, b) names the layers "0" and "1". Sequential({"conv": a, "act": b}) takes the names from the dict. An
    index gives a layer, and a slice gives a Sequential of the same layers. append, extend, insert, del and assignment
    work as for a list. A normalization and an nn.ReLU directly after it run in one pass, unless one of the two layers
    has a hook. The result is the same, bit for bit.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> model(mn.randn(3, 4)).shape
        (3, 2)
        >>> model[0]
        Linear(in_features=4, out_features=8, bias=True)
        >>> len(model[:2])
        2
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            if len(args) == 1 and isinstance(args[0], (list, tuple)):
                raise TypeError(
                    f"Sequential: got one {type(args[0]).__name__}; expected modules as separate arguments; "
                    "unpack it: Sequential(*layers)"
                )
            self.extend(args)

    def forward(self, x: Any) -> Any:
        """Run the layers on x, one after the other, and return the last layer's result."""
        layers = list(self)
        while layers:
            layer = layers.pop(0)
            if layers and run_together(layer, layers[0]):
                x = layer(x, activation="relu")
                del layers[0]
            else:
                x = layer(x)
        return x


@documented({}, modules="the modules in order, a list or another iterable")
class ModuleList(_Numbered):
    """A list of modules. The parent module finds the parameters of these modules; a plain list would hide the
    parameters.

    The names are "0", "1" ... Indexing, slicing, append, extend, insert, del and assignment work as for a list. A
    ModuleList has no forward.

    Example:
        >>> class Net(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.steps = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        ...
        ...     def forward(self, x):
        ...         for step in self.steps:
        ...             x = x + step(x)
        ...         return x
        >>> len(list(Net().parameters()))
        6
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raise NotImplementedError: a list is not a function."""
        raise NotImplementedError("ModuleList has no forward; loop over it, or use nn.Sequential")


@documented({}, modules="a dict of names and modules; None is an empty one")
class ModuleDict(Module):
    """A dict of modules. The parent module finds the parameters of these modules; a plain dict would hide the
    parameters.

    Reading, assignment, del, `in`, keys, values, items and update work as for a dict; the modules keep the order in
    which they were assigned. A ModuleDict has no forward.

    Example:
        >>> heads = nn.ModuleDict({"age": nn.Linear(8, 1), "kind": nn.Linear(8, 5)})
        >>> heads["kind"](mn.randn(3, 8)).shape
        (3, 5)
        >>> list(heads)
        ['age', 'kind']
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def __len__(self) -> int:
        return len(self._kinds)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._kinds))

    def __contains__(self, name: str) -> bool:
        return name in self._kinds

    def __getitem__(self, name: str) -> Module:
        if name not in self._kinds:
            raise KeyError(
                f"ModuleDict has no module {name!r}; it holds: {printable(', '.join(self._kinds)) or 'none'}"
            )
        return self.__dict__[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        delattr(self, name)

    def update(self, modules: Mapping[str, Module]) -> None:
        """Add or replace modules by name."""
        for name, module in modules.items():
            self.add_module(name, module)

    def keys(self) -> Iterator[str]:
        """Return the names, in the order of assignment."""
        return iter(self)

    def values(self) -> Iterator[Module]:
        """Return the modules, in the order of assignment."""
        return iter([self.__dict__[name] for name in self._kinds])

    def items(self) -> Iterator[tuple[str, Module]]:
        """Return the pairs (name, module), in the order of assignment."""
        return iter([(name, self.__dict__[name]) for name in self._kinds])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raise NotImplementedError: a dict is not a function."""
        raise NotImplementedError("ModuleDict has no forward; call its modules by name")
