"""Finds the version of the NVIDIA driver, without CuPy, and names the CuPy package for this driver."""

from __future__ import annotations

import ctypes
import sys

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def version() -> int | None:
    """Return the newest CUDA version that the driver supports, such as 12080 for 12.8; None if there is no driver."""
    try:
        library = ctypes.CDLL(LIBRARY)
        number = ctypes.c_int(0)
        return number.value if library.cuDriverGetVersion(ctypes.byref(number)) == 0 else None
    except (OSError, AttributeError):
        return None


def package(driver: int) -> str | None:
    """Return the CuPy package for the driver version `driver`, as an argument for pip.

    Return None if the driver is too old.
    """
    return "cupy-cuda13x[ctk]>=14.2" if driver >= 13000 else "cupy-cuda12x[ctk]>=14.2" if driver >= 12000 else None


def libraries() -> str:
    """Return the pip command to run if CuPy does not find CUDA's compiler, headers or libraries."""
    return f"pip install '{package(max(version() or 0, 12000))}', which brings CUDA's compiler and libraries"


def advice(driver: int | None, missing: str | None, runtime: int = 0) -> str:
    """Return a sentence that says why no GPU can be used and what to do.

    driver   the result of `version`
    missing  the error of `import cupy`; None if CuPy is installed but finds no device
    runtime  the CUDA version for which the installed CuPy was built
    """
    if driver is None:
        return (
            f"cuda: no NVIDIA driver was found ({LIBRARY} cannot be loaded); install the driver of the GPU, and then "
            "cupy-cuda12x[ctk] or cupy-cuda13x[ctk], whichever fits the driver; or compute on 'cpu'"
        )
    fitting = package(driver)
    if fitting is None:
        return f"cuda: the NVIDIA driver is for CUDA {name(driver)}; expected 12.0 or newer; update the driver"
    install = f"pip install '{fitting}'"
    if missing is not None:
        return (
            f"cuda: CuPy cannot be imported ({missing}); the NVIDIA driver is for CUDA {name(driver)}, so run: "
            f"{install}"
        )
    if runtime // 1000 > driver // 1000:
        return (
            f"cuda: the installed CuPy is for CUDA {name(runtime)}, but the NVIDIA driver is for CUDA {name(driver)}; "
            f"run pip uninstall cupy-cuda{runtime // 1000}x, then {install}"
        )
    return (
        f"cuda: the NVIDIA driver for CUDA {name(driver)} shows no GPU; check that nvidia-smi lists a GPU, and that "
        "CUDA_VISIBLE_DEVICES does not hide it"
    )


def name(version: int) -> str:
    """Return a version in its usual form, such as "12.8" for 12080."""
    return f"{version // 1000}.{version % 1000 // 10}"
