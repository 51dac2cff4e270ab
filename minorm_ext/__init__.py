"""Loads the compiled kernels for this processor's instruction set: `kernels("norm")` returns the best copy of norm.

On x86-64 every `.pyx` below this folder is compiled three times: into `baseline` (any processor), `v3` (AVX2) and `v4`
(AVX-512), the levels of the x86-64 psABI. This module looks once at the processor and chooses the copy that runs, so
that a wheel built on one machine runs at full speed on another. `integers` and `products` are compiled a fourth time,
for processors with matrix tiles (`amx`); everything else runs as v4 there. Three modules are compiled once, into
`baseline`: `machine`, which is asked first, and `memory` and `switch`, which compute nothing.
`MINORM_MAX_LEVEL=baseline|v3|v4|amx` in the environment limits the choice, to see what another processor computes.
`MINORM_WINOGRAD=0` makes all convolutions direct sums.

A wheel that was built with MINORM_NO_KERNELS=1, for browsers, has no kernels and a file `_no_kernels.py` that says so.
Then the only level is "reference": minorm/kernels/cpu takes its modules from minorm/kernels/reference. In any other
installation, missing kernels are an ImportError.

Kernels take their number of threads as an argument; `machine` holds the number. At first it is the number of
processors that this process may use, or OMP_NUM_THREADS if that is less; `set_num_threads` changes it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import os
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

# Idle OpenMP workers spin before they sleep; libgomp's spin for 4 ms by default. A BLAS with its own threads then finds
# the processors taken: on 2 cores a kernel followed by a 256 x 256 matmul took 8 ms instead of 0.2. But a worker that
# has just gone to sleep is slow to wake: after 1000 rounds, some 30 us, a LayerNorm of 4096 x 64, forward and backward,
# took 0.45 ms instead of 0.17. 5000 rounds, some 150 us, bridge the Python between two kernels and cost that matmul
# 0.05 ms. libgomp reads this number from the environment once, while it is loaded, and there is no other way to set it.
# So we set the variable for exactly that moment, and not at all for users who set their own.
_spin = not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}
if _spin:
    os.putenv("GOMP_SPINCOUNT", "5000")
try:
    machine = importlib.import_module("minorm_ext.baseline.machine")
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("minorm_ext"):
        raise
    if importlib.util.find_spec("minorm_ext._no_kernels") is None:
        raise ImportError(
            f"minorm_ext: the kernels are not compiled in {os.path.dirname(__file__)}; these are the sources of a "
            "clone, which Python takes before what is installed if it runs in the clone; run it from another folder, "
            "or as `python -P`, or compile the kernels here: `pip install -e .`"
        ) from None
    machine = importlib.import_module("minorm_ext.no_machine")
finally:
    if _spin:
        os.unsetenv("GOMP_SPINCOUNT")


def _usable_processors() -> int:
    """Return the number of processors that this process may use, which can be fewer than the machine has.

    Ask OpenMP first: it may have bound this thread to a single processor (OMP_PROC_BIND), and knows the number before.
    """
    if found := machine.processors():
        return int(found)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _wanted_threads() -> float:
    """Return OMP_NUM_THREADS, or its first number if it is a list; infinite if it is unset or wrong (OpenMP warns)."""
    numbers = os.environ.get("OMP_NUM_THREADS", "").split(",")
    if all(re.fullmatch(r"\s*\+?0*[1-9][0-9]{0,17}\s*", number, re.ASCII) for number in numbers):
        return int(numbers[0])
    return math.inf


machine.set_num_threads(int(min(_usable_processors(), _wanted_threads(), machine.MOST_THREADS)))
get_num_threads: Callable[[], int] = machine.get_num_threads  # compiled, because every operation calls it


COMPILED = machine.__name__ != "minorm_ext.no_machine"  # False in a wheel without kernels
# The base of `no_grad` and similar classes: a `with` block inside which attributes have other values.
Switch: Any = importlib.import_module(f"minorm_ext.{'baseline.switch' if COMPILED else 'no_switch'}").Switch
LEVELS = ("baseline", "v3", "v4", "amx")
TILED = {"integers", "products"}  # the modules compiled for amx
MAX_LEVEL = os.environ.get("MINORM_MAX_LEVEL")  # code that starts a process with a new environment must pass it on
if MAX_LEVEL is not None and MAX_LEVEL not in LEVELS:
    raise ValueError(f"minorm: MINORM_MAX_LEVEL={MAX_LEVEL!r} in the environment; expected baseline, v3, v4 or amx")
_supported: tuple[str, ...] = tuple(level for level in machine.built_levels() if machine.supports(level))
_allowed = (
    _supported
    if MAX_LEVEL is None or not COMPILED
    else tuple(level for level in _supported if LEVELS.index(level) <= LEVELS.index(MAX_LEVEL))
)
_levels = tuple(level for level in _allowed if machine.permits(level))
_winograd = os.environ.get("MINORM_WINOGRAD", "1")
if _winograd not in ("0", "1"):
    raise ValueError(f"minorm: MINORM_WINOGRAD={_winograd!r} in the environment; expected 0 or 1")
WINOGRAD = _winograd == "1"


def levels() -> tuple[str, ...]:
    """Return the instruction sets that may run, simplest first: `("baseline", "v3", "v4", "amx")`.

    They were built, this processor has them, and MINORM_MAX_LEVEL allows them. A wheel without kernels returns
    `("reference",)`.
    """
    return _levels


def choice() -> str:
    """Explain in words why the best of `levels()` is not a higher one."""
    if not COMPILED:
        return "the wheel was built without kernels; NumPy computes"
    if _allowed != _supported:
        return f"MINORM_MAX_LEVEL={MAX_LEVEL}; without it {_supported[-1]}"
    if _levels != _allowed:
        return f"the operating system does not permit {_allowed[-1]} to this process"
    beyond = [level for level in machine.built_levels() if level not in _supported]
    return f"the processor does not have {beyond[0]}" if beyond else "the highest that was built"


# Variables of NumPy and the libraries that multiply matrices for it; they decide instruction sets and threads.
NUMPY_VARIABLES = ("NPY_", "OPENBLAS_", "OMP_", "MKL_", "BLIS_", "VECLIB_")


def environment() -> dict[str, str]:
    """Return the variables that can change results: MINORM's variables, or NumPy's in a wheel without kernels."""
    if not COMPILED:
        return {name: value for name, value in os.environ.items() if name.startswith(NUMPY_VARIABLES)}
    level = {} if MAX_LEVEL is None else {"MINORM_MAX_LEVEL": MAX_LEVEL}
    return {**level, **({} if WINOGRAD else {"MINORM_WINOGRAD": "0"})}


@functools.cache
def kernels(name: str, level: str | None = None) -> ModuleType:
    """Return the compiled module `name`.pyx for instruction set `level`; None is the best level for this processor.

    Raises ValueError for a level that is not in `levels()`, ImportError for a module that was not compiled.
    """
    if not COMPILED:
        raise ImportError(f"kernels: module {name!r} is not there: this wheel was built without kernels")
    if level is None:
        level = _levels[-1]
    if level not in _levels:
        raise ValueError(
            f"kernels: level={level!r} was not built, is beyond this processor or above MINORM_MAX_LEVEL; "
            f"expected one of {_levels}"
        )
    if level == "amx" and name not in TILED:
        level = "v4"
    try:
        return importlib.import_module(f"minorm_ext.{level}.{name}")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"kernels: module {name!r} is not compiled for {level}; "
            f"run `pip install -e .` or `python setup.py build_ext --inplace --only {name}` in the checkout"
        ) from error


def multiply_adds() -> str:
    """Tell how often products of matrices round a * b + c; without kernels NumPy's BLAS decides."""
    if not COMPILED:
        return "as NumPy does"
    return "once" if kernels("matmul").FUSED else "twice"


def set_num_threads(n: int) -> None:
    """Let kernels use n threads from now on. Results do not depend on n.

    Raises ValueError if n is below 1 or above 1024, or if the system refuses to make n threads.
    """
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise TypeError(f"set_num_threads: n is a {type(n).__name__}; expected an integer of at least 1")
    n = n.__index__()
    if n < 1:
        raise ValueError(f"set_num_threads: n={n}; expected at least 1")
    if n > machine.MOST_THREADS:
        raise ValueError(f"set_num_threads: n={n}; expected at most {machine.MOST_THREADS}")
    if (possible := machine.possible_threads(n)) < n:
        raise ValueError(
            f"set_num_threads: n={n}, and the system lets this process have {possible}; expected at most that, "
            "or a higher limit on processes (ulimit -u, pids.max of a container) or on memory (ulimit -v)"
        )
    machine.set_num_threads(n)


def openmp() -> int:
    """Return the OpenMP version of the build as its date, such as 201511; 0 when the build is serial."""
    return int(machine.openmp())


def compiler() -> str:
    """Return the name and version of the compiler that built the kernels, `gcc 12.2.0` say; `none` without kernels."""
    return str(machine.compiler())


# A forked child has only the thread that forked, but OpenMP would still count on the parent's workers and wait for them
# forever. So the workers end before the fork; parent and child each start new ones when they next need them.
if machine.openmp() and hasattr(os, "register_at_fork"):
    os.register_at_fork(before=machine.end_threads)
