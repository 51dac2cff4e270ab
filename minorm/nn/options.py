"""A layer that holds the arguments of a function, and calls it with them: most layers without weights are that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from minorm.nn.module import Module
from minorm.tensor.tensor import Tensor


class Options(Module):
    """forward(*inputs) = function(*inputs, **options): a subclass names the function, and hands over the options.

    The options are attributes, and may be changed. `shown` names those that `repr` shows, `as_buffers` those that
    are Tensors and move with the model, such as the weights of classes.
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
        """The function of the inputs."""
        return type(self).function(*inputs, **self._arguments())

    def _arguments(self) -> dict[str, Any]:
        """What the function is called with."""
        held = vars(self)
        return {name: held[name] for name in self._options}

    def extra_repr(self) -> str:
        """The options that matter."""
        held = {name: getattr(self, name) for name in type(self).shown.split()}
        return ", ".join(f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}"
                         for name, value in held.items())  # fmt: skip


class OfOne(Options):
    """Options of a function of one Tensor, x."""

    def forward(self, x: Tensor) -> Any:
        """The function of x."""
        return type(self).function(x, **self._arguments())


class Random(Options):
    """Options of a function that draws in training: not in evaluation, and not where the module is frozen."""

    def _arguments(self) -> dict[str, Any]:
        """With `training`."""
        return {**super()._arguments(), "training": self.training and not self.frozen}
