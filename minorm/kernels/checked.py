"""Checks the results of a user's backend, as in `nn.BatchNorm2d(8, backend=mine)`, before they are used.

minorm's kernels are not checked. If a student's forward forgets the statistics, or returns y in another type, the error
message names this mistake. Without the check, an error would be raised from deep inside the library, or no error at
all.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from minorm.kernels import cpu, select
from minorm.kernels.activated import ActivatedBackend
from minorm.kernels.masked import MaskedBackend
from minorm.kernels.partial import NAMES
from minorm.kernels.protocol import Running, Statistics
from minorm.kernels.reference.norm import update
from minorm.normalization.nest import Nest

Array = Any
EXPECTED = "expected an object with the functions of minorm/kernels/protocol.py, such as PartialBackend(forward=mine)"


def resolve_backend(x: Array, backend: Any, masked: bool = False, activation: str | None = None) -> Any:
    """Return the user's backend, or minorm's backend for the array x if `backend` is None.

    If the call needs a mask or an activation that the backend cannot compute, wrap the backend.
    """
    if backend is None:
        norm = select.backend(x).norm
    else:
        norm = backend if isinstance(backend, CheckedBackend) else CheckedBackend(backend)
    if masked and norm is not cpu.norm:
        norm = MaskedBackend(norm)
    if activation is not None and (masked or activation not in getattr(norm, "activations", ())):
        norm = ActivatedBackend(norm)
    return norm


class CheckedBackend:
    """Wraps a user's backend. A result of the wrong kind raises TypeError; a wrong shape raises ValueError."""

    def __init__(self, backend: Any) -> None:
        if isinstance(backend, type):
            raise TypeError(f"backend is the class {backend.__name__}; {EXPECTED}")
        self._held: Callable[[], Any] = lambda: backend

    def checked(self) -> Any:
        """Return the user's backend itself."""
        return self._held()

    def loosen(self, gone: Callable[[Any], object]) -> None:
        """Hold the backend by a weak reference from now on; `gone` is called when the backend is freed."""
        self._held = weakref.ref(self._held(), gone)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self.checked(), name, None)
        if found is None and name in NAMES:
            raise TypeError(f"backend: {_kind(self.checked())} has no function {name}; {EXPECTED}")
        if found is None:
            raise AttributeError(name)
        return found

    def forward(
        self, nest: Nest, x: Array, *others: Any, running: Running | None = None, **options: Any
    ) -> tuple[Array, Statistics]:
        """Return y, the normalized x, and the statistics of x.

        This method updates `running`, so a user's forward does not need `running`.
        """
        y, stats = _parts(self.__getattr__("forward")(nest, x, *others, **options), ("y", "Statistics"), "forward")
        if not isinstance(stats, Statistics):
            raise TypeError(
                f"backend.forward: its second result is {_kind(stats)}; expected Statistics.of(k, d, var, rstd)"
            )
        if stats.block.shape != (4, nest.rows):
            shape = stats.block.shape[1:]
            raise ValueError(
                f"backend.forward: k, d, var and rstd are of shape {shape}; expected vectors ({nest.rows},)"
            )
        y = _like(y, x, "forward: y")
        if running is not None:
            update(running, nest, stats)
        return y, stats

    def backward(self, nest: Nest, dy: Array, x: Array, *others: Any, **options: Any) -> tuple[Array | None, ...]:
        """Return dx, ds and db, the gradients of x, of the scale s and of the bias b.

        A gradient that is not needed is None.
        """
        found = self.__getattr__("backward")(nest, dy, x, *others, **options)
        dx, ds, db = _parts(found, ("dx", "ds", "db"), "backward")
        for name, value in (("ds", ds), ("db", db)):
            if value is not None and getattr(value, "size", None) != nest.param_size:
                raise ValueError(
                    f"backend.backward: {name} is {_kind(value)}; expected an array of {nest.param_size} elements"
                )
        return None if dx is None else _like(dx, x, "backward: dx"), ds, db

    def apply(self, nest: Nest, x: Array, *others: Any, **options: Any) -> Array:
        """Return y: x normalized with the given statistics, scaled by s and shifted by b."""
        return _like(self.__getattr__("apply")(nest, x, *others, **options), x, "apply: y")


def _parts(found: Any, names: Sequence[str], function: str) -> Sequence[Any]:
    """Return the results; raise TypeError unless there is one for each name."""
    if not isinstance(found, (tuple, list)) or len(found) != len(names):
        got = f"{len(found)} things" if isinstance(found, (tuple, list)) else _kind(found)
        raise TypeError(f"backend.{function}: it returns {got}; expected {len(names)}: {', '.join(names)}")
    return found


def _like(value: Any, x: Array, what: str) -> Array:
    """Return the array; raise ValueError unless it has x's shape and type."""
    if getattr(value, "shape", None) != x.shape or value.dtype != x.dtype:
        raise ValueError(f"backend.{what} is {_kind(value)}, x is {_kind(x)}; expected x's shape and type")
    return value


def _kind(value: Any) -> str:
    """Describe a value for a message: `float32(2, 3)` for an array, else the name of its type."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{tuple(value.shape)}"
    return "None (is there a return?)" if value is None else f"{type(value).__name__}"
