"""Closes the library's normalizations, and those of other packages, while a task asks for the student's own work.

A test that compares with `minorm.functional.batch_norm` finds every bug, but does not show that its author knows
anything. So while students' tests run, a call of one of minorm's normalizations raises LibraryClosed, and so does any
attribute of torch and similar packages. The functions of minorm.kernels.reference.norm that only reshape arrays (four,
kept, like, ...) stay open, because students' backends need them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from minorm.kernels import cpu, reference, variance

PROTOCOL = ("moments", "apply", "grad_sums", "grad_params", "grad_input", "forward", "backward")
PACKAGES = (
    "torch", "tensorflow", "jax", "flax", "keras", "onnxruntime", "onnx", "cupy", "scipy.stats", "statsmodels",
    "sklearn.preprocessing",
)  # fmt: skip
WHY = (
    "cannot be used here; use a formula, an invariant or a finite difference of your own, or your own earlier solution"
)


class LibraryClosed(ImportError):
    """Raised by a library's normalization while only the student's own normalizations may be used."""


class ClosedPackage(ModuleType):
    """Stands in for a package: reading any attribute raises LibraryClosed, whose message says why."""

    def __getattr__(self, name: str) -> Any:
        raise LibraryClosed(f"{self.__dict__['__name__']} {WHY}")


def close() -> Callable[[], None]:
    """Close the normalizations in this process; return a function that opens them again."""
    undo: list[tuple[Any, str, Any]] = []
    rooms: dict[Any, tuple[str, ...]] = {reference.norm: PROTOCOL, cpu.norm: PROTOCOL}
    rooms[variance] = "two_pass", "welford", "onnx"
    if hasattr(cpu.norm, "BoundKernels"):  # in a wheel without kernels cpu.norm is the reference
        rooms[cpu.norm.BoundKernels] = PROTOCOL
    for where, names in rooms.items():
        for name in names:
            if hasattr(where, name):
                undo.append((where, name, getattr(where, name)))
                setattr(where, name, _refusing(f"minorm's normalization ({name})"))
    loaded = {name: sys.modules.get(name) for name in (*PACKAGES, *filter(_is_foreign, list(sys.modules)))}
    for name in loaded:
        sys.modules.pop(name, None)  # without its submodules, `import torch.nn` asks the closed package, and raises
    sys.modules.update({name: ClosedPackage(name) for name in PACKAGES})

    def reopen() -> None:
        for where, name, function in undo:
            setattr(where, name, function)
        for name, module in loaded.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module

    return reopen


@contextlib.contextmanager
def closed() -> Iterator[None]:
    """Close the normalizations inside a `with` block."""
    reopen = close()
    try:
        yield
    finally:
        reopen()


def _is_foreign(name: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in PACKAGES)


def _refusing(what: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise LibraryClosed(f"{what} {WHY}")

    return refuse
