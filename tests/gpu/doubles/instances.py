"""Helpers for the tests of kernels: the list of kernels, instances compiled together, and the bounds on errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import shim

from minorm.devices import dtypes
from minorm.kernels.gpu.plans import norm_plan
from minorm.kernels.gpu.source import C_NAMES, expression, options, source

FLOATS = [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]
EPS = {dtypes.float16: 2.0**-10, dtypes.bfloat16: 2.0**-7, dtypes.float32: 2.0**-23, dtypes.float64: 2.0**-52}


def declared(file: str) -> dict[str, list[str]]:
    """The kernels of a .cu file, with the names of their template parameters."""
    found = re.findall(r"template <([^()]+)>\s*__global__ void (?:__\w+__\(.*?\)\s+)*(\w+)\(", source(file))
    assert len(found) == source(file).count("__global__")
    return {name: [word.split()[-1] for word in parameters.split(",")] for parameters, name in found}


def left_out(file: str, names: Iterable[str]) -> set[tuple[str, str]]:
    """Return each (kernel, type) of a .cu file that these instances lack; the type is the stored or else the computed
    one.

    Functions that kernels are made with, as op::relu, count as kernels. Those of both have their types first.
    """
    has = set()
    for name in names:
        kernel, *words = re.split("[<>, ]+", name)
        first = next(word for word in words if word in C_NAMES.values() and word != "int")
        has |= {(kernel, first), *((word, first) for word in words if word.startswith("op::"))}
    wanted = {
        (kernel, C_NAMES[dtype])
        for kernel, parameters in declared(file).items()
        for dtype in (FLOATS if {"T", "S"} & set(parameters) else FLOATS[2:])
    }
    for block in re.findall(r"^namespace op {$(.*?)^}  // namespace op$", source(file), re.MULTILINE | re.DOTALL):
        functions = re.findall(r"^struct (\w+)", block, re.MULTILINE)
        wanted |= {(f"op::{function}", C_NAMES[dtype]) for function in functions for dtype in FLOATS}
    return wanted - has


def most_threads(kernel: str) -> int:
    """Return the threads of the largest block that any plan gives this instance."""
    name, *words = re.split("[<>, ]+", kernel)
    if name == "merge_runs":
        return norm_plan.team(1 << 40, dtypes.int64 if "long" in words else dtypes.int32)
    if name.startswith("merge_"):
        splits = next(int(word) for word in words if word.isdecimal())
        return norm_plan.merge(1, norm_plan.SERIAL * splits).block[0]
    if name.startswith("cluster_") or name == "row_forward":
        return norm_plan.MOST_THREADS[8 if words[1] == "double" or "long" in words else 4]
    return 512 if name in ("row_backward", "row_backward_ahead", "rows", "cross_entropy_grad") else 256


def compiled(program: Any, keys: Iterable[tuple[Any, ...]]) -> None:
    """Compile these kernels of a Program at once: g++ takes a second for one, and little more for a hundred."""
    keys = [key for key in dict.fromkeys(keys) if key not in program._kernels]
    names = [expression(*key) for key in keys]
    if names:
        code, chosen = source(program.name), options(program.name)
        module = shim.Module(code=code, options=chosen, name_expressions=names)
        program._kernels.update({key: module.get_function(name) for key, name in zip(keys, names, strict=True)})


def forget_launches() -> None:
    """Drop the planned launches, since each holds a kernel: other kernels are to run, or other plans to be made."""
    for name, module in list(sys.modules.items()):
        if name.startswith("minorm.kernels.gpu."):
            for function in [value for key, value in vars(module).items() if key.startswith("_planned")]:
                function.cache_clear()


def compiled_for(run: Callable[[], object], forget: Callable[[], None]) -> None:
    """Compile all that `run` needs at once, file by file: a first run, in which no kernel does anything, tells what."""
    from minorm.kernels.gpu.program import Program

    keys: dict[Any, list[tuple[Any, ...]]] = {}

    def note(program: Any, key: tuple[Any, ...]) -> Any:
        keys.setdefault(program, []).append(key)
        return lambda *_, **__: None

    forget()
    forget_launches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "_compile", note)
        run()
    forget()
    forget_launches()
    for program, needed in keys.items():
        compiled(program, needed)


def close(actual: Any, expected: Any, units: float, small: float = 0.0) -> None:
    """Equal up to `units` in the last place of actual's type, or `small`."""
    actual = getattr(actual, "memory", actual)
    eps = EPS[actual.dtype]
    np.testing.assert_allclose(
        actual.astype(np.float64), np.asarray(expected, np.float64), rtol=units * eps, atol=small, equal_nan=True
    )
