"""Shows this installation's features, and sets the number of threads. Add the output of `show_config()` to a bug
report.

The number of threads is the only setting, and no result depends on it; docs/threads.md has the rules.
"""

from __future__ import annotations

import platform
from typing import Any, Literal

import numpy as np

import minorm_ext
from minorm import devices
from minorm.devices import driver
from minorm.kernels.cpu import memory
from minorm.support import installed
from minorm.support.argument_errors import checked
from minorm.support.documented import documented

__version__ = "0.1.0"  # pyproject.toml reads the version from here


def get_num_threads() -> int:
    """Return the number of threads that the kernels use.

    The default is the number of processors that this process may use (its affinity), or OMP_NUM_THREADS if this was
    smaller at import. `set_num_threads` changes the number.
    """
    return minorm_ext.get_num_threads()


@documented({}, n="the number of threads, 1 to 1024")
@checked
def set_num_threads(n: int) -> None:
    """Let the kernels use n threads from now on, and ignore OMP_NUM_THREADS. Results have the same bits for all n.

    Raises ValueError if n is below 1 or above 1024, or if the system refuses to make so many threads; then the number
    of threads does not change. Raises TypeError unless n is an integer.

    Example:
        >>> before = mn.get_num_threads()
        >>> mn.set_num_threads(1)
        >>> mn.get_num_threads()
        1
        >>> mn.set_num_threads(before)
    """
    minorm_ext.set_num_threads(n)


def environment() -> dict[str, str]:
    """Return the environment variables that make another process compute in the same way as this process."""
    return minorm_ext.environment()


@documented(
    {}, mode='"stdout" prints the configuration; "dicts" prints nothing and returns the configuration as a dictionary'
)
@checked
def show_config(mode: Literal["stdout", "dicts"] = "stdout") -> dict[str, Any] | None:
    """Show how this installation was built and which hardware and libraries it found, in the form of
    `numpy.show_config`.

    Raises ValueError for an unknown mode.

    Example:
        >>> mn.show_config("dicts")["minorm"] == mn.__version__
        True
    """
    if mode not in ("stdout", "dicts"):
        raise ValueError(f"show_config: mode={mode!r}; expected 'stdout' or 'dicts'")
    facts = _facts()
    if mode == "dicts":
        return facts
    width = max(map(len, facts))
    print("\n".join(f"{name:{width}}  {value}" for name, value in facts.items()))  # noqa: T201  printing is its purpose
    return None


def _facts() -> dict[str, Any]:
    openmp, conflict = minorm_ext.openmp(), installed.conflict()
    return {
        "minorm": __version__,
        **({"conflict": conflict} if conflict else {}),
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "numpy": np.__version__,
        "kernels": minorm_ext.levels()[-1],
        "chosen": minorm_ext.choice(),
        "usable": ", ".join(minorm_ext.levels()),
        "compiler": minorm_ext.compiler(),
        "openmp": f"yes ({openmp})" if openmp else "no: the build is serial, kernels use one thread",
        "threads": get_num_threads(),
        "blas": _blas(),
        "memory": _memory(),
        "cuda": _cuda(),
    }


def _cuda() -> str:
    """Describe the GPUs and their driver, or say why no GPU can be used."""
    try:
        cupy = devices.library()
    except RuntimeError as error:
        return f"no: {str(error).removeprefix('cuda: ')}"
    runtime = cupy.cuda.runtime
    names = [runtime.getDeviceProperties(i)["name"] for i in range(runtime.getDeviceCount())]
    newest, built = (driver.name(number) for number in (runtime.driverGetVersion(), runtime.runtimeGetVersion()))
    listed = ", ".join(name.decode() if isinstance(name, bytes) else str(name) for name in names)
    return f"{listed}; CuPy {cupy.__version__} for CUDA {built}, driver for {newest}"


def _memory() -> str:
    """Describe the pool of buffers: the memory in use, the idle memory, and how many buffers were reused or made."""
    if not (now := memory.statistics()):
        return "no pool: NumPy allocates"
    used, idle, limit = (f"{now[name] / 1e6:,.1f} MB" for name in ("used_bytes", "idle_bytes", "limit_bytes"))
    return f"{used} in use, {idle} idle (at most {limit}); {now['reused']:,} buffers reused, {now['fresh']:,} fresh"


def _blas() -> str:
    """Describe the BLAS that numpy.matmul uses; other libraries in this process may have loaded another BLAS."""
    try:
        import threadpoolctl  # only this report needs it, and `import minorm` should be quick
    except ModuleNotFoundError:
        return "not known: the package threadpoolctl is not installed"

    found = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    names = [f"{lib['internal_api']} {lib['version']} ({lib['num_threads']} threads)" for lib in found]
    return ", ".join(names) or "not known"
