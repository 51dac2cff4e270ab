"""Base of most layers without weights. A layer holds options, and calls a function with its inputs and the options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from minorm.nn.module import Module
from minorm.tensor.tensor import Tensor


class Options(Module):
    """forward(*inputs) = function(*inputs, **options). A subclass sets `function`, and passes options to the
    constructor.

    The options are attributes that a user may change. `shown` lists the options that `repr` shows. `as_buffers` lists
    the options that are Tensors and move with the model, such as class weights.
    """

    function: ClassVar[Callable[..., Any]]
    shown: ClassVar[str] = ""
    as_buffers: ClassVar[str] = ""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = tuple(name for name in options if name != "inplace")
        for name in type(self).as_buffers.split():
            self.register_buffer(name, options.pop(name))
        for name, value in options.items():
            setattr(self, name, value)

    def forward(self, *inputs: Any) -> Any:
        """Call the function with the inputs and the options."""
        return type(self).function(*inputs, **self._arguments())

    def _arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the function."""
        held = vars(self)
        return {name: held[name] for name in self._options}

    def extra_repr(self) -> str:
        """Return, as text for `repr`, the options that `shown` lists."""
        held = {name: getattr(self, name) for name in type(self).shown.split()}
        return ", ".join(f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}"
                         for name, value in held.items())  # fmt: skip


class OfOne(Options):
    """Base of a layer whose function takes one Tensor, x."""

    def forward(self, x: Tensor) -> Any:
        """Call the function with x and the options."""
        return type(self).function(x, **self._arguments())


class Random(Options):
    """Base of a layer whose function draws random numbers in training, unless the module is frozen."""

    def _arguments(self) -> dict[str, Any]:
        """Return the keyword arguments, including `training`."""
        return {**super()._arguments(), "training": self.training and not self.frozen}
