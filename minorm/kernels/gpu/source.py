"""Reads the text of the .cu files and writes C++ names, so that tests can compile the kernels without CuPy."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np

from minorm.devices import dtypes

PATHS = {file.name: file for file in (Path(__file__).parent / "sources").rglob("*.cu*")}
OPTIONS = ("-std=c++17", "-default-device")  # NVRTC 12 takes a lambda with `auto` for a function of the host otherwise
AS_WRITTEN = "--fmad=false"  # so each product is rounded before it is added
OF_FILE = {"update.cu": (AS_WRITTEN,)}  # the eager and the captured form must give the same bits
C_NAMES = {
    dtypes.float16: "__half",
    dtypes.bfloat16: "__nv_bfloat16",
    dtypes.float32: "float",
    dtypes.float64: "double",
    dtypes.int8: "signed char",
    dtypes.uint8: "unsigned char",
    dtypes.int16: "short",
    dtypes.uint16: "unsigned short",
    dtypes.int32: "int",
    dtypes.uint32: "unsigned",
    dtypes.int64: "long long",
    dtypes.uint64: "unsigned long long",
    dtypes.bool: "bool",
}


def options(name: str) -> tuple[str, ...]:
    """Return NVRTC's options for the .cu file `name`.

    Without these options, NVRTC may combine a product and a sum into a fused multiply-add, depending on the code around
    them. Two kernels with the same formula could then differ in the last bit.
    """
    return (*OPTIONS, *OF_FILE.get(name, ()))


@functools.cache
def source(name: str) -> str:
    """Return the text of a .cu file. Each #include line of a minorm header is replaced by the header's text, or removed
    if the header is included already.
    """
    return _pasted(name, set())


def _pasted(name: str, seen: set[str]) -> str:
    def header(match: re.Match[str]) -> str:
        if match[1] in seen:
            return ""
        seen.add(match[1])
        return _pasted(match[1], seen)

    text = PATHS[name].read_text(encoding="utf-8")
    return re.sub(r'^#include "([\w.]+)"$', header, text, flags=re.MULTILINE)


def expression(name: str, *arguments: Any) -> str:
    """Return `name<arguments>` in C++, for types, numbers and booleans: row_forward<__half, float, 8, true>."""
    return f"{name}<{', '.join(map(_word, arguments))}>" if arguments else name


def _word(argument: Any) -> str:
    if isinstance(argument, np.dtype):
        return C_NAMES[argument]
    return str(argument).lower()  # True becomes true
