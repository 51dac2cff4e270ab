"""Runs CUDA kernels on the CPU: each CUDA thread is a fiber, and a seed decides the order in which they run.

A block's threads run one after the other, each up to its next barrier or shuffle. When all threads have reached the
barrier or shuffle, the next round begins, in another order. Some warps run ahead of others, until a barrier stops them.
So a result that depends on the order, because a barrier is missing or an atomic adds floats, differs from seed to seed.
If threads wait at different barriers, or for threads that have ended, an error names the lines in question. A write
outside of an array is an error, too. The memory around arrays holds NaN, so a read outside of an array makes results
NaN.

Blocks are one-dimensional, and `__shared__` arrays have a constant size. The running time on the CPU says nothing about
the speed on a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any

import numpy as np

from minorm.labs.compiling import CompileError, shared_library
from minorm.labs.sealed import compiler

MOST = 1024  # threads of a block
WORK = ("shared_reads", "shared_writes", "reads", "writes", "shuffles", "atomics")  # of a thread
GUARD = 64  # elements of NaN on both sides of an array
LINE = 300  # characters of an error of a kernel
COMPILERS = compiler.CUDA_COMPILERS
C_TYPES = {"int": ctypes.c_int, "float": ctypes.c_float}
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\s*\(([^)]*)\)")

# After a barrier some warps rest for 24 rounds while the others run on: no kernel may count on warps being equally
# fast. The threads of a warp decide alike, as they all run in the round after the barrier, with one random_state.
NAPS = """
#undef __syncthreads
#define __syncthreads() shim::nap(__LINE__)
namespace shim {
SHIM_UNCOUNTED void nap(int line) {
    wait(BLOCK, line);
    unsigned long long mixed = (random_state ^ (current / 32 + 1) * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
    for (int rounds = mixed >> 63 ? 24 : 0; rounds > 0; rounds--) wait(WARP, line);
}
}
"""


class KernelError(RuntimeError):
    """Raised for a kernel that does something that CUDA forbids, such as a write outside of an array."""


class Program:
    """Compiles pieces of CUDA text, joined in order, for the CPU. Kernels begin with `__global__ void f(...)`.

    Kernels take `float*`, `const float*`, `int` and `float`. A CompileError quotes the compiler's message.
    """

    def __init__(self, *pieces: str) -> None:
        source = "\n".join(pieces)
        found = {name: " ".join(text.split()) for name, text in KERNEL.findall(source)}
        if not found:
            raise CompileError("the text has no kernel; expected a function that begins with __global__ void")
        self.parameters = {name: [_parameter(name, p) for p in text.split(",")] for name, text in found.items()}
        launchers = [_launcher(name, text, self.parameters[name]) for name, text in found.items()]
        naps = NAPS if "__shfl" in source else ""
        head = f'#include "{compiler.SHIM.name}"'
        self.work: dict[str, Any] = {}
        self.race = ""
        self.library = _compiled(
            "\n".join([head, naps, '#line 1 "kernel.cu"', source, '#line 1 "launcher"', *launchers])
        )

    def launch(
        self, name: str, blocks: int, threads: int, *arguments: Any, seed: int = 0, changed_shuffle: int = -1
    ) -> int:
        """Run a kernel, which changes float32 arrays in place; return how many barriers all blocks passed.

        Afterwards `work` has an array (blocks, threads) for each name in WORK. The arrays count, for each thread, the
        elements of shared memory and of arrays that it read and wrote, its shuffles and its atomic additions. `race`
        names two threads that used the same element of shared memory without a barrier between the two accesses.
        changed_shuffle: the number of a shuffle, from 0, whose result is made 1 larger for each thread.

        KernelError is raised for a barrier that not all threads reach, and for a write outside of an array.
        """
        if name not in self.parameters:
            raise CompileError(f"there is no kernel {name}; found {', '.join(self.parameters)}")
        if not (blocks >= 1 and 1 <= threads <= MOST):
            raise ValueError(
                f"launch: blocks={blocks}, threads={threads}; expected at least 1 block of 1 to {MOST} threads"
            )
        parameters = self.parameters[name]
        if len(arguments) != len(parameters):
            raise TypeError(f"launch: {name} takes {len(parameters)} arguments; got {len(arguments)}")
        passed, guarded = [], []
        for (kind, label), value in zip(parameters, arguments, strict=True):
            if kind in C_TYPES:
                passed.append(C_TYPES[kind](value))
                continue
            if not isinstance(value, np.ndarray) or value.dtype != np.float32:
                raise TypeError(f"launch: {label} of {name} is a {type(value).__name__}; expected an array of float32")
            room = np.full(value.size + 2 * GUARD, np.nan, np.float32)
            room[GUARD : GUARD + value.size] = value.ravel()
            guarded.append((label, value, room))
            passed.append(ctypes.c_void_p(room.ctypes.data + 4 * GUARD))
            self.library.shim_array(ctypes.c_void_p(room.ctypes.data), ctypes.c_void_p(room.nbytes))
        work = np.zeros((blocks, threads, len(WORK)), np.int32)
        self.library.shim_count(ctypes.c_void_p(work.ctypes.data), ctypes.c_int(changed_shuffle))
        function = getattr(self.library, f"launch_{name}")
        barriers = int(function(ctypes.c_int(blocks), ctypes.c_int(threads), ctypes.c_uint(seed), *passed))
        self.work = dict(zip(WORK, np.moveaxis(work, -1, 0), strict=True))
        self.race = self.library.shim_race().decode()
        if barriers < 0:
            raise KernelError(f"{name}: {self.library.shim_message().decode()}")
        for label, value, room in guarded:
            if not (np.isnan(room[:GUARD]).all() and np.isnan(room[GUARD + value.size :]).all()):
                raise KernelError(f"{name}: the kernel writes outside of {label}, which has {value.size} elements")
            value[...] = room[GUARD : GUARD + value.size].reshape(value.shape)
        return barriers


def without_barrier(source: str, which: int) -> str:
    """Remove the barrier with this number, counted from 0, from the source; all lines keep their numbers."""
    parts = source.split("__syncthreads();")
    if not 0 <= which < len(parts) - 1:
        raise ValueError(
            f"without_barrier: there is no barrier {which}; the source has {len(parts) - 1} "
            f"barrier{'' if len(parts) == 2 else 's'}, counted from 0"
        )
    return "__syncthreads();".join(parts[: which + 1]) + ";" + "__syncthreads();".join(parts[which + 1 :])


def _parameter(kernel: str, text: str) -> tuple[str, str]:
    """Parse "const float* __restrict__ x" into ("float*", "x")."""
    words = text.replace("*", " * ").split()
    kind = "float*" if "float" in words and "*" in words else next((word for word in words if word in C_TYPES), "")
    if not kind or ("*" in words and kind != "float*"):
        raise CompileError(f"{kernel} has a parameter `{text.strip()}`; expected float*, const float*, int or float")
    return kind, words[-1]


def _launcher(name: str, parameters: str, parsed: list[tuple[str, str]]) -> str:
    call = ", ".join(label for _, label in parsed)
    return (
        f'extern "C" int launch_{name}(int blocks_, int threads_, unsigned seed_, {parameters}) '
        f"{{ return shim::counted(blocks_, threads_, seed_, [=] {{ {name}({call}); }}); }}"
    )


@functools.cache
def _compiled(text: str) -> ctypes.CDLL:
    library = ctypes.CDLL(str(shared_library("cuda", text)))
    library.shim_message.restype = library.shim_race.restype = ctypes.c_char_p
    return library
