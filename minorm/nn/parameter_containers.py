"""ParameterList and ParameterDict: a list and a dict of parameters that the parent module finds."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from minorm.nn.module import Module
from minorm.nn.parameter import Parameter
from minorm.support.documented import documented
from minorm.support.safe_names import printable
from minorm.tensor.tensor import Tensor


@documented({}, values="Tensors or other values, in order; None is an empty list")
class ParameterList(Module):
    """A list of parameters. The parent module finds these parameters, while a plain list would hide them.

    Adding a Tensor converts it to a Parameter. Other values are not changed. The names are "0", "1" ... A ParameterList
    has no forward.

    Example:
        >>> scales = nn.ParameterList([mn.ones(3), mn.zeros(2)])
        >>> [name for name, _ in scales.named_parameters()]
        ['0', '1']
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.__dict__["_length"] = 0
        self.extend([] if values is None else values)

    def _place(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(f"ParameterList: index {index} is out of range for {len(self)} elements")
        return str(index % len(self))

    def __len__(self) -> int:
        return int(self.__dict__["_length"])

    def __iter__(self) -> Iterator[Any]:
        return iter([self.__dict__[str(i)] for i in range(len(self))])

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self.__dict__[self._place(index)]

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._place(index), _parameter(value))

    def append(self, value: Any) -> ParameterList:
        """Add a value at the end; returns the list."""
        setattr(self, str(len(self)), _parameter(value))
        self.__dict__["_length"] += 1
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add several values at the end; returns the list."""
        for value in values:
            self.append(value)
        return self

    __iadd__ = extend

    def extra_repr(self) -> str:
        """Return the text for `repr`, with one line for each parameter."""
        return _lines((str(i), value) for i, value in enumerate(self))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raise NotImplementedError: a list is not a function."""
        raise NotImplementedError("ParameterList has no forward; loop over it")


@documented(
    {},
    parameters="names and values, as a dict or as pairs; the names of a plain dict are sorted. None is an empty dict",
)
class ParameterDict(Module):
    """A dict of parameters. The parent module finds these parameters, while a plain dict would hide them.

    Adding a Tensor converts it to a Parameter. Other values are not changed. A ParameterDict has no forward.

    Example:
        >>> scales = nn.ParameterDict({"left": mn.ones(3)})
        >>> scales["right"] = mn.zeros(3)
        >>> [name for name, _ in scales.named_parameters()]
        ['left', 'right']
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self.__dict__["_names"] = {}
        self.update({} if parameters is None else parameters)

    def __len__(self) -> int:
        return len(self.__dict__["_names"])

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.__dict__["_names"]))

    def __contains__(self, name: object) -> bool:
        return name in self.__dict__["_names"]

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(f"ParameterDict has no parameter {name!r}; it holds: {printable(', '.join(self)) or 'none'}")
        return self.__dict__[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self and (not isinstance(name, str) or hasattr(self, name)):
            raise KeyError(f"ParameterDict: the name is {name!r}; expected a str that is not a name of nn.Module")
        self.__dict__["_names"][name] = None
        setattr(self, name, _parameter(value))

    def __delitem__(self, name: str) -> None:
        self[name]
        del self.__dict__["_names"][name]
        delattr(self, name)

    def keys(self) -> Iterator[str]:
        """Return the names, in order."""
        return iter(self)

    def values(self) -> Iterator[Any]:
        """Return the parameters, in order."""
        return iter([self[name] for name in self])

    def items(self) -> Iterator[tuple[str, Any]]:
        """Return the pairs (name, parameter), in order."""
        return iter([(name, self[name]) for name in self])

    def get(self, name: str, default: Any = None) -> Any:
        """Return the parameter of this name, or `default` if the dict lacks it."""
        return self.__dict__[name] if name in self.__dict__["_names"] else default

    def pop(self, name: str) -> Any:
        """Remove a parameter and return it."""
        value = self[name]
        del self[name]
        return value

    def update(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add or replace parameters by name. As in PyTorch, the items of a plain dict are added in the order of their
        names.
        """
        pairs = parameters.items() if isinstance(parameters, (Mapping, ParameterDict)) else parameters
        ordered = isinstance(parameters, (OrderedDict, ParameterDict)) or not isinstance(parameters, Mapping)
        for name, value in pairs if ordered else sorted(pairs, key=operator.itemgetter(0)):
            self[name] = value

    def extra_repr(self) -> str:
        """Return the text for `repr`, with one line for each parameter."""
        return _lines(self.items())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raise NotImplementedError: a dict is not a function."""
        raise NotImplementedError("ParameterDict has no forward; read its parameters by name")


def _parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _lines(items: Iterable[tuple[str, Any]]) -> str:
    return "\n  ".join(
        f"({printable(name)}): {type(value).__name__} of shape {getattr(value, 'shape', '')}" for name, value in items
    )
