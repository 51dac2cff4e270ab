"""A layer that holds the arguments of a function, and calls it with them: most layers without weights are that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from minorm.nn.module import Module


class Options(Module):
    """forward(*inputs) = function(*inputs, **options): a subclass names the function, and hands over the options.

    The options are attributes, and may be changed. `shown` names those that `repr` shows.
    """

    function: ClassVar[Callable[..., Any]]
    shown: ClassVar[str] = ""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        vars(self).update(options)
        self._options = tuple(options)

    def forward(self, *inputs: Any) -> Any:
        """The function of the inputs."""
        return type(self).function(*inputs, **self.options())

    def options(self) -> dict[str, Any]:
        """What the function is called with."""
        return {name: vars(self)[name] for name in self._options if name != "inplace"}

    def extra_repr(self) -> str:
        """The options that matter."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.shown.split())


class Random(Options):
    """Options of a function that draws in training: not in evaluation, and not where the module is frozen."""

    def options(self) -> dict[str, Any]:
        """With `training`."""
        return {**super().options(), "training": self.training and not self.frozen}
