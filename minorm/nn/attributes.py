"""Sorts the attributes of a Module: parameters, buffers, child modules, and plain attributes.

Values are stored in `__dict__` like other Python attributes, so reading `self.weight` costs nothing extra. `_kinds`
records the kind of each registered name, in order of assignment. A registered name keeps its kind: assigning a value of
another kind raises an error at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from minorm.nn.module_arguments import METHODS
from minorm.nn.parameter import Buffer, Parameter
from minorm.support import elsewhere
from minorm.support.argument_errors import Checked, is_tensor, signature
from minorm.support.documented import documented_methods
from minorm.tensor.tensor import Tensor

PARAMETER, BUFFER, LOCAL_BUFFER, MODULE = "parameter", "buffer", "buffer that is not saved", "module"
BUFFERS = (BUFFER, LOCAL_BUFFER)
MadeBy = Mapping[str, Callable[[Any], Any]]
COUNTER = "counter"  # a Tensor that moves with the module but is not part of its state
MOVED = (PARAMETER, *BUFFERS, COUNTER)


@documented_methods(METHODS)
class Attributes(Checked):
    """The part of Module that sorts attributes by kind."""

    _reserved: ClassVar[frozenset[str]] = frozenset()  # the names of Module's own methods, filled in by module.py
    # For each setting that decides the shape of parameters: a function that reads its value from the present
    # parameters. Only this value may be assigned.
    _made_by: ClassVar[MadeBy] = {}
    _kinds: dict[str, str]

    @classmethod
    def _check_call(cls, args: tuple[Any, ...]) -> None:
        """Raise TypeError if the class of a layer, instead of an instance, is called with a Tensor."""
        if any(map(is_tensor, args)) and cls.__module__.startswith("minorm."):
            _check_settings(cls, args)

    def __init__(self) -> None:
        self.__dict__["_kinds"] = {}

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter. If param is None, the attribute is None and there is no parameter, as in a layer without
        bias.

        Example:
            >>> layer = nn.Module()
            >>> layer.register_parameter("scale", nn.Parameter(mn.ones(3)))
            >>> layer.scale.shape
            (3,)
        """
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"register_parameter: {type(self).__name__}.{name} got {_kind_of(param)}; expected an nn.Parameter "
                "or None; wrap it: nn.Parameter(tensor)"
            )
        self._register(name, param, PARAMETER, "register_parameter")

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a Tensor that belongs to the module's state but is not trained.

        Example:
            >>> layer = nn.Module()
            >>> layer.register_buffer("steps", mn.zeros(1), persistent=False)
            >>> list(layer.state_dict())
            []
        """
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"register_buffer: {type(self).__name__}.{name} got {_kind_of(tensor)}; expected a Tensor or None; "
                "make one with minorm.tensor(value)"
            )
        self._register(name, tensor, BUFFER if persistent else LOCAL_BUFFER, "register_buffer")

    def add_module(self, name: str, module: Attributes | None) -> None:
        """Add a child module under a name that need not be a Python identifier ("0", "block-1").

        Example:
            >>> model = nn.Module()
            >>> model.add_module("block-1", nn.Linear(4, 2))
            >>> list(model.state_dict())
            ['block-1.weight', 'block-1.bias']
        """
        if module is not None and not isinstance(module, Attributes):
            raise TypeError(
                f"add_module: {type(self).__name__}.{name} got {_kind_of(module)}; expected an nn.Module or None"
                f"{_as_a_module(module)}"
            )
        self._register(name, module, MODULE, "add_module")

    def _register(self, name: str, value: Any, kind: str, operation: str) -> None:
        owner = type(self).__name__
        if "_kinds" not in self.__dict__:
            raise AttributeError(
                f"{owner}.{name}: assigned before Module.__init__ has run; make super().__init__() the first line of "
                f"{owner}.__init__"
            )
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(f"{operation}: name is {name!r}; expected a non-empty str without '.'")
        taken = name in self._reserved if operation == "setattr" else hasattr(type(self), name)
        if name not in self._kinds and (name in self.__dict__ or taken):
            raise ValueError(f"{operation}: {owner} already has an attribute {name!r}; choose another name")
        self._kinds[name] = kind
        self.__dict__[name] = value

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self._assign(name, value, PARAMETER)
        elif isinstance(value, Attributes):
            self._assign(name, value, MODULE)
        elif isinstance(value, Buffer) and self.__dict__.get("_kinds", {}).get(name) not in BUFFERS:
            self._assign(name, value, BUFFER if value.persistent else LOCAL_BUFFER)
        else:
            kind = self.__dict__.get("_kinds", {}).get(name)
            if (
                value is not None
                and kind is not None
                and not (kind in (*BUFFERS, COUNTER) and isinstance(value, Tensor))
            ):
                raise TypeError(_wrong_value(type(self).__name__, name, kind, value))
            value = self._as_setting(name, value)
            if name in self._made_by and name in self.__dict__:
                self._check_made_by(name, value)
            object.__setattr__(self, name, value)

    def _as_setting(self, name: str, value: Any) -> Any:  # noqa: ARG002
        """Return the value to store for the setting `name`. A subclass overrides this method to check a setting. The
        method is called in the constructor, and whenever the user assigns the setting later.
        """
        return value

    def _check_made_by(self, name: str, value: Any) -> None:
        """Raise ValueError if the layer's parameters were made for another value of the setting `name`."""
        now = self._made_by[name](self)
        if value != now:
            owner = type(self).__name__
            raise ValueError(
                f"{owner}.{name} = {value!r}: the layer's parameters were made with {name}={now!r}; expected {now!r}; "
                f"assign parameters that fit first, or make another {owner}"
            )

    def _assign(self, name: str, value: Any, kind: str) -> None:
        known = self.__dict__.get("_kinds", {}).get(name)
        if known is not None and known != kind:
            raise TypeError(_wrong_value(type(self).__name__, name, known, value))
        if known is None:
            self.__dict__.pop(name, None)  # a plain attribute may become a parameter or a module
        self._register(name, value, kind, "setattr")

    def __getattr__(self, name: str) -> Any:  # called only if the normal look-up found nothing
        owner = type(self).__name__
        hint = elsewhere.advice("Module", name)
        if "_kinds" not in self.__dict__:
            hint = f"; was super().__init__() called in {owner}.__init__?"
        raise AttributeError(f"{owner} has no attribute {name!r}{hint}", name=name, obj=self)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._kinds.pop(name, None)

    def _own(self, *kinds: str) -> Iterator[tuple[str, Any]]:
        for name, kind in self._kinds.items():
            if kind in kinds and self.__dict__[name] is not None:
                yield name, self.__dict__[name]


def _check_settings(layer: type, args: tuple[Any, ...]) -> None:
    """Raise TypeError if a positional argument is a Tensor, but the layer expects a setting such as an int there."""
    places = [p for p in signature(layer).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    if any(p.kind is p.VAR_POSITIONAL for p in places):
        return
    taken = [any(word in str(p.annotation) for word in ("Tensor", "Parameter", "Any")) for p in places]
    for place, value in enumerate(args):
        if is_tensor(value) and not (place < len(taken) and taken[place]):
            name = layer.__name__
            raise TypeError(
                f"{name}: argument {place + 1} is a Tensor; expected a setting of the layer; make the layer first, "
                f"and then call it: layer = {name}(...); layer(x)"
            )


def _as_a_module(value: Any) -> str:
    """Return a hint on how to turn `value` into a module; return "" if there is no hint."""
    if isinstance(value, type):
        return f"; make one of the class: {value.__name__}()" if issubclass(value, Attributes) else ""
    if isinstance(value, (list, tuple)):
        return "; unpack it, or put it into an nn.ModuleList"
    return "; take the layer for the function: nn.ReLU() for F.relu" if callable(value) else ""


def _kind_of(value: Any) -> str:
    return f"a {type(value).__name__}"


def _wrong_value(owner: str, name: str, kind: str, value: Any) -> str:
    expected, fix = {
        PARAMETER: ("an nn.Parameter or None", "wrap it, nn.Parameter(tensor), or change it in place"),
        MODULE: ("an nn.Module or None", "delete the attribute first to use its name for something else"),
    }.get(
        kind,
        ("a Tensor (not a Parameter) or None", "delete the attribute first to register it as something else"),
    )
    return f"{owner}.{name} is a {kind}; got {_kind_of(value)}; expected {expected}; {fix}"
