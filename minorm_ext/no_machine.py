"""In the place of runtime/machine.pyx in a wheel without kernels: one level, "reference", and one thread."""

from __future__ import annotations


def built_levels() -> tuple[str, ...]:
    """No instruction set: what computes is minorm/kernels/reference."""
    return ("reference",)


def supports(level: str) -> bool:
    """Every processor runs NumPy."""
    return level == "reference"


def permits(level: str) -> bool:  # noqa: ARG001  as the compiled one
    """NumPy needs no permission."""
    return True


def openmp() -> int:
    """No OpenMP."""
    return 0


def processors() -> int:
    """One: no thread is ever started."""
    return 1


def compiler() -> str:
    """No compiler was asked."""
    return "none"


MOST_THREADS = 1024


def possible_threads(n: int) -> int:
    """As many as are asked for: none is ever started."""
    return n


_threads = 1


def set_num_threads(n: int) -> None:
    """Keep the number, which has no effect."""
    global _threads  # noqa: PLW0603
    _threads = n


def get_num_threads() -> int:
    """The number that was set, at first 1."""
    return _threads
