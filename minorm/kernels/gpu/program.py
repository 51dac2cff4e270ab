"""Compiles CUDA kernels at first use and keeps them. A Program keeps them in this process, and CuPy keeps them on disk.

    rows = Program("norm_rows.cu")
    kernel = rows.kernel("row_forward", dtypes.float16, dtypes.float32, 8)    # row_forward<__half, float, 8>
    kernel(grid, block, arguments)

A later look-up is one access to a dictionary, whose keys are the arguments themselves, so no text is formatted. CuPy
compiles with -ftz=true: float32 numbers below 1.2e-38 count as 0.

A Launch also holds the grid, the block and the arguments that are the same at every call. A function that plans a
launch is cached (`cached`), so a call takes one look-up:

    @cached
    def _plan(n, dtype):
        return Launch(_program.kernel("scale", dtype), (blocks(n, 256),), (256,), after=(np.int64(n),))

    _plan(x.size, x.dtype)(x, out)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import cupy

from minorm.devices import driver
from minorm.kernels.gpu.plans.structs import constant
from minorm.kernels.gpu.source import expression, options, source

cached = functools.lru_cache(maxsize=4096)


class Launch:
    """A kernel with its grid, its block, and the constant arguments before and after the arrays.

    The constants are NumPy scalars of the parameters' exact types, or Structs.
    """

    __slots__ = ("after", "before", "block", "grid", "kernel")

    def __init__(
        self,
        kernel: Callable[..., None],
        grid: tuple[int, ...],
        block: tuple[int],
        before: Iterable[Any] = (),
        after: Iterable[Any] = (),
    ) -> None:
        self.kernel, self.grid, self.block = kernel, grid, block
        self.before, self.after = tuple(map(constant, before)), tuple(map(constant, after))

    def __call__(self, *arrays: Any, last: tuple[Any, ...] = ()) -> None:
        """Launch the kernel. The arguments in `last` come behind all others."""
        self.kernel(self.grid, self.block, (*self.before, *arrays, *self.after, *last))


class Program:
    """The compiled kernels of one .cu file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._kernels: dict[tuple[Any, ...], Callable[..., None]] = {}

    def kernel(self, *key: Any) -> Callable[..., None]:
        """Return the kernel `key[0]` with the template arguments `key[1:]`.

        Call the kernel as kernel(grid, block, arguments), on any device.
        """
        found = self._kernels.get(key)
        return self._compile(key) if found is None else found

    def _compile(self, key: tuple[Any, ...]) -> Callable[..., None]:
        name = expression(*key)
        module = cupy.RawModule(code=source(self.name), options=options(self.name), name_expressions=[name])
        try:
            kernel: Callable[..., None] = module.get_function(name)
        except Exception as error:
            error.add_note(
                f"minorm: CuPy could not make {name} of {self.name}; if a library or cuda_fp16.h is missing: "
                + driver.libraries()
            )
            raise
        self._kernels[key] = kernel
        return kernel
