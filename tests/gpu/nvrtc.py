"""Kernels compiled for devices that are not here: NVRTC needs no driver, and tells of registers and spills."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

try:
    import nvidia
    from cupy.cuda import nvrtc
except ImportError:
    nvrtc = None

ARCHITECTURES = ("sm_75", "sm_80", "sm_90")


def _includes() -> list[str]:
    roots = [Path(root) for root in nvidia.__path__]
    return [f"-I{path.parent}" for root in roots for path in root.glob("**/include/cuda_fp16.h")]


available = nvrtc is not None and bool(_includes())


class Resources(NamedTuple):
    """What one kernel takes of a device."""

    name: str
    registers: int
    spilled: int  # bytes, stores and loads
    stack: int  # bytes of a thread's arrays that are not in registers
    shared: int  # bytes


def resources(code: str, names: list[str], architecture: str) -> list[Resources]:
    """Compile these instances; an error of the compiler is an AssertionError with its words."""
    program: Any = nvrtc.createProgram(code, "kernel.cu", (), ())
    for name in names:
        nvrtc.addNameExpression(program, name)
    options = (f"--gpu-architecture={architecture}", "-std=c++17", "--ptxas-options=-v", "-ftz=true", *_includes())
    try:
        nvrtc.compileProgram(program, options)
    except nvrtc.NVRTCError:
        raise AssertionError(nvrtc.getProgramLog(program)) from None
    lowered = {nvrtc.getLoweredName(program, name): name for name in names}
    log = nvrtc.getProgramLog(program)
    nvrtc.destroyProgram(program)
    found = []
    for part in log.split("Compiling entry function")[1:]:
        symbol = re.search(r"'(\w+)'", part)[1]
        spills = [int(n) for n in re.findall(r"(\d+) bytes spill", part)]
        stack = re.search(r"(\d+) bytes stack frame", part)
        shared = re.search(r"(\d+) bytes smem", part)
        registers = int(re.search(r"Used (\d+) registers", part)[1])
        name = lowered.get(symbol, symbol)
        found.append(Resources(name, registers, sum(spills), int(stack[1]), int(shared[1]) if shared else 0))
    assert len(found) >= len(names), log
    return found
