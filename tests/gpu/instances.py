"""What the tests of kernels share: instances compiled together, types, and how exact a result may be asked to be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import shim

from minorm import dtypes
from minorm.kernels.gpu.source import expression, source

FLOATS = [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]
EPS = {dtypes.float16: 2.0**-10, dtypes.bfloat16: 2.0**-7, dtypes.float32: 2.0**-23, dtypes.float64: 2.0**-52}


def compiled(program: Any, keys: Iterable[tuple[Any, ...]]) -> None:
    """Compile these kernels of a Program at once: g++ takes a second for one, and little more for a hundred."""
    keys = [key for key in dict.fromkeys(keys) if key not in program._kernels]
    names = [expression(*key) for key in keys]
    if names:
        module = shim.Module(code=source(program.name), options=("-std=c++17",), name_expressions=names)
        program._kernels.update({key: module.get_function(name) for key, name in zip(keys, names, strict=True)})


def close(actual: Any, expected: Any, units: float, small: float = 0.0) -> None:
    """Equal up to `units` in the last place of actual's type, or `small`."""
    actual = getattr(actual, "memory", actual)
    eps = EPS[actual.dtype]
    np.testing.assert_allclose(
        actual.astype(np.float64), np.asarray(expected, np.float64), rtol=units * eps, atol=small, equal_nan=True
    )
