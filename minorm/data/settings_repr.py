"""Base class of objects with settings. Each constructor argument is an attribute that `repr` shows and you may set.

RandomCrop(size=(32, 32), padding=(4, 4))
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from minorm.support.argument_errors import Checked, signature
from minorm.tensor.tensor import Tensor

LONG = 60  # the most characters of a setting


class Shown(Checked):
    """Base class. A subclass stores its constructor's arguments as attributes of the same names."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ and _is_ours(type(self)) and name in signature(type(self)).parameters:
            self.__dict__.update(self._made_with(name, value))
        else:
            object.__setattr__(self, name, value)

    def _made_with(self, name: str, value: Any) -> dict[str, Any]:
        """Return the attributes of a new object with one changed setting. The constructor checks the settings."""
        given = {known: getattr(self, known) for known in signature(type(self)).parameters if hasattr(self, known)}
        fresh = object.__new__(type(self))
        type(self).__init__(fresh, **{**given, name: value})
        return vars(fresh)

    def __repr__(self) -> str:
        names = [name for name in signature(type(self)).parameters if hasattr(self, name)]
        said = [f"{name}={brief(getattr(self, name))}" for name in names if getattr(self, name) is not None]
        return f"{type(self).__name__}({', '.join(said)})"


def _is_ours(kind: type) -> bool:
    """Return whether the class's constructor is minorm's. A user's constructor may do more than store its arguments."""
    return bool(kind.__init__.__module__.startswith("minorm."))  # type: ignore[misc]


def brief(value: Any) -> str:
    """Describe a value in one line. A long value is described by its type and size."""
    if isinstance(value, (np.ndarray, Tensor)) and value.ndim:
        return f"{value.dtype} {tuple(value.shape)}" if np.prod(value.shape) > 4 else str(value.tolist())
    if inspect.isfunction(value):
        return str(getattr(value, "__name__", value))
    text = repr(value)
    if "\n" not in text and len(text) <= LONG and " object at 0x" not in text:
        return text
    if isinstance(value, Shown):
        return text
    size = f" of {len(value)}" if hasattr(value, "__len__") else ""
    return f"<{type(value).__name__}{size}>"
