"""Replaces runtime/machine.pyx in a wheel without kernels: there is one level, "reference", and one thread."""

from __future__ import annotations


def built_levels() -> tuple[str, ...]:
    """Return "reference" alone: minorm/kernels/reference computes with NumPy, for no special instruction set."""
    return ("reference",)


def supports(level: str) -> bool:
    """Return True for "reference": every processor runs NumPy."""
    return level == "reference"


def permits(level: str) -> bool:  # noqa: ARG001  as the compiled one
    """Return True: NumPy needs no permission."""
    return True


def openmp() -> int:
    """Return 0: there is no OpenMP."""
    return 0


def processors() -> int:
    """Return 1: minorm_ext never starts a thread here."""
    return 1


def compiler() -> str:
    """Return `none`: no compiler was used."""
    return "none"


MOST_THREADS = 1024


def possible_threads(n: int) -> int:
    """Return n: minorm_ext never starts a thread, so the system has none to refuse."""
    return n


_threads = 1


def set_num_threads(n: int) -> None:
    """Store the number, which has no effect."""
    global _threads  # noqa: PLW0603
    _threads = n


def get_num_threads() -> int:
    """Return the number from the last `set_num_threads`; 1 before the first call."""
    return _threads
