"""CUDA kernels of the library on the CPU: a stand-in for cupy.RawModule that g++ compiles and fibers run.

    kernel = Module(code=text, name_expressions=["f<float>"]).get_function("f<float>")
    kernel(grid, block, args, shared_mem=0)

Arguments are arrays, NumPy scalars of the parameter's very size, structs.Struct, None.
Kernels work on copies between walls of 0xFF (NaN in every float type): reading there shows in the result, and writing
there is an error. Threads run in an order that `seed` decides, `barriers` counts what was waited for. The fibers are
those of the labs, minorm/labs/cuda_shim.h, compiled once; a kernel is linked with nothing, which halves its time.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import cupy_orders
import numpy as np

import minorm.labs
from minorm.kernels.gpu.source import AS_WRITTEN

FIBERS = Path(minorm.labs.__file__).with_name("cuda_shim.h")
CLUSTERS = Path(__file__).with_name("cuda_clusters.h")
TYPES = Path(__file__).with_name("cuda_types.h")
SHELF = Path(__file__).parents[3] / ".pytest_cache" / "shim"  # compiled kernels, so that a second run need not wait
KEPT = 7 * 24 * 3600  # seconds after their last use
WALL = 256  # bytes on both sides of an array
SHARED, MOST_SHARED = 48 << 10, 227 << 10  # bytes of a block: without asking, and at most, on compute capability 9.0
FLAGS = ("-std=c++17", "-O1", "-w", "-fPIC", "-fno-strict-aliasing", "-fno-gnu-unique")
APART = ("-ffp-contract=off",)  # each product is rounded before it is added: NVRTC's --fmad=false
FUSED = (
    "-mfma",
    "-ffp-contract=fast",
    "-fexpensive-optimizations",
    "-funswitch-loops",
)  # as NVRTC does where it is not told otherwise

available = shutil.which("g++") is not None


class KernelError(RuntimeError):
    """The kernel did what no kernel may."""


class State:
    """The seed of the next launches, and what the last ones did."""

    seed = 0
    launches = 0
    ran: ClassVar[dict[str, int]] = {}  # the names of the kernels, and the threads of their largest blocks


@functools.cache
def fuses() -> bool:
    """Has this processor fused multiply-adds, as every GPU has?"""
    try:
        return re.search(r"^flags\s*:.* fma( |$)", Path("/proc/cpuinfo").read_text(), re.MULTILINE) is not None
    except OSError:
        return False


class Module:
    """The part of cupy.RawModule that minorm uses."""

    def __init__(self, *, code: str, options: tuple[str, ...] = (), name_expressions: Any = ()) -> None:
        assert "-std=c++17" in options
        self.names = list(name_expressions)
        fused = AS_WRITTEN not in options and fuses()
        self.library = _compiled(_text(code, self.names), FUSED if fused else APART)
        self.clusters = [_cluster(code, name) for name in self.names]

    def get_function(self, name: str) -> Function:
        index = self.names.index(name)
        return Function(name, self.library, index, self.clusters[index])


class Function:
    """One kernel; called as cupy.RawKernel is."""

    def __init__(self, name: str, library: ctypes.CDLL, index: int, cluster: int) -> None:
        self.name, self.library, self.cluster = name, library, cluster
        self.most_shared: dict[int, int] = {}  # by device
        self.run = getattr(library, f"launch_{index}")
        sizes = (ctypes.c_int * 64)()
        self.sizes = list(sizes[: getattr(library, f"sizes_{index}")(sizes)])

    def __call__(self, grid: Any, block: Any, args: tuple[Any, ...], *, shared_mem: int = 0) -> None:
        if shared_mem > self.max_dynamic_shared_size_bytes:
            most = f"max_dynamic_shared_size_bytes is {self.max_dynamic_shared_size_bytes}"
            raise KernelError(f"{self.name}: CUDA_ERROR_INVALID_VALUE: {shared_mem} bytes of shared memory; {most}")
        if grid[0] % max(1, self.cluster):
            raise KernelError(
                f"{self.name}: CUDA_ERROR_INVALID_CLUSTER_SIZE: {grid[0]} blocks, clusters of {self.cluster}"
            )
        if len(args) != len(self.sizes):
            raise KernelError(f"{self.name} has {len(self.sizes)} parameters; got {len(args)} arguments")
        if (len(block) > 1 and max(block[1:]) > 1) or not 0 < block[0] <= 1024 or min(grid) < 1:
            raise KernelError(f"{self.name}: grid {grid}, block {block}; expected at least one block of up to 1024")
        rooms: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        cells = [_cell(self.name, arg, size, rooms) for arg, size in zip(args, self.sizes, strict=True)]
        pointers = (ctypes.c_void_p * max(1, len(cells)))(*[ctypes.addressof(cell) for cell in cells])
        grid = (ctypes.c_uint * 3)(*grid, *[1] * (3 - len(grid)))
        State.launches += 1
        if self.name.startswith(("move<", "turn<")):
            cupy_orders.note(*[getattr(array, "memory", array) for array in args[:-3:-1]])
        State.ran[self.name] = max(block[0], State.ran.get(self.name, 0))
        cluster = max(self.cluster, 1 if shared_mem else 0)  # 0: a kernel without dynamic memory
        how = (
            ctypes.c_int(block[0]),
            ctypes.c_uint(State.seed),
            pointers,
            ctypes.c_int(cluster),
            ctypes.c_int(shared_mem),
        )
        if self.run(grid, *how) < 0:
            raise KernelError(f"{self.name}: {_fibers().shim_message().decode()}")
        for array, room in rooms.values():
            _bring_back(self.name, array, room)

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """The largest shared memory that a launch on the current device may ask for."""
        return self.most_shared.get(_device(), SHARED)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size: int) -> None:
        if size > MOST_SHARED:
            raise KernelError(f"{self.name}: CUDA_ERROR_INVALID_VALUE: {size} bytes of shared memory")
        self.most_shared[_device()] = size


def _device() -> int:
    from cupy_cuda import Current

    return Current.index


def _cluster(code: str, name: str) -> int:
    """The blocks of a cluster of this kernel, from its __cluster_dims__; 0 if it has no clusters."""
    kernel, _, arguments = name.rstrip(">").partition("<")
    head = re.search(rf"template <([^()]+)>\s*__global__ void ([^;{{]*?)\b{kernel}\(", code)
    found = head and re.search(r"__cluster_dims__\((\w+), 1, 1\)", head[2])
    if not head or not found:
        return 0
    place = [parameter.split()[-1] for parameter in head[1].split(",")].index(found[1])
    return int(arguments.split(",")[place])


def _cell(name: str, arg: Any, size: int, rooms: dict[int, Any]) -> Any:
    """Return one argument in separate memory, as wide as the kernel reads it."""
    arg = getattr(arg, "memory", arg)  # of an array of the double of CuPy
    arg = arg.content if hasattr(arg, "mem") else arg  # of a MemoryPointer
    if isinstance(arg, np.ndarray) and arg.ndim == 0 and arg.dtype.fields:
        raise KernelError(f"{name}: a struct as an array, which CuPy reads anew at every launch; pass a Struct of it")
    if hasattr(arg, "fields"):
        content = arg.fields.tobytes()
        assert arg.ptr == arg.fields.ctypes.data
    elif arg is None or isinstance(arg, np.ndarray):
        address = 0 if arg is None else _room(arg, rooms)
        content = np.uint64(address).tobytes()
    elif isinstance(arg, (np.generic, bool, int, float)):
        content = np.asarray(arg).tobytes()
    else:
        raise KernelError(f"{name}: an argument is a {type(arg).__name__}")
    if len(content) != size:
        raise KernelError(f"{name}: an argument of {len(content)} bytes ({arg!r}) for a parameter of {size} bytes")
    return ctypes.create_string_buffer(content, size)


def _room(array: np.ndarray, rooms: dict[int, Any]) -> int:
    """The address of a copy of the array's memory between walls, as far from a multiple of 16 as the array itself."""
    start = array.ctypes.data
    low, high = np.lib.array_utils.byte_bounds(array) if array.size else (start, start)
    if start != low:
        raise KernelError("an array with negative steps")
    if (start, high) not in rooms:
        room = np.full(high - low + 2 * WALL + 256, 0xFF, np.uint8)
        at = -room.ctypes.data % 256 + WALL + start % 16
        ctypes.memmove(room.ctypes.data + at, start, high - low)
        rooms[start, high] = array, room[at - WALL : at + (high - low) + WALL]
    return rooms[start, high][1].ctypes.data + WALL


def _bring_back(name: str, array: np.ndarray, room: np.ndarray) -> None:
    if not ((room[:WALL] == 0xFF).all() and (room[-WALL:] == 0xFF).all()):
        raise KernelError(f"{name}: it writes outside of an array of {array.shape}, {array.dtype}")
    inside = room[WALL:-WALL]
    if array.flags.writeable:
        ctypes.memmove(array.ctypes.data, inside.ctypes.data, inside.nbytes)


def _text(code: str, names: list[str]) -> str:
    code = re.sub(r"^#include <[^\n]*$", "", code, flags=re.MULTILINE)
    launchers = [
        f'extern "C" int launch_{i}(unsigned* grid, int threads, unsigned seed, void** arguments, int blocks, int more)'
        f" {{ return shim::launch({name}, grid, threads, seed, arguments, blocks, more); }}\n"
        f'extern "C" int sizes_{i}(int* out) {{ return shim::sizes({name}, out); }}'
        for i, name in enumerate(names)
    ]
    return "\n".join(['#include "base.h"', '#line 1 "kernel.cu"', code, '#line 1 "launcher"', *launchers])


_kept: list[Any] = []  # folders that go with the process


@functools.cache
def _folder(flags: tuple[str, ...]) -> Path:
    """Where sources are compiled with these flags; what all of them begin with has been compiled already."""
    _kept.append(tempfile.TemporaryDirectory(prefix="shim"))
    folder = Path(_kept[-1].name)
    (folder / "base.h").write_text(
        "#define SHIM_APART\n" + FIBERS.read_text() + CLUSTERS.read_text() + TYPES.read_text()
    )
    command = ["g++", *FLAGS, *flags, "-x", "c++-header", folder / "base.h", "-o", folder / "base.h.gch"]
    subprocess.run(command, check=True)
    return folder


@functools.cache
def _shelf() -> tuple[Path, str]:
    """Where compiled kernels wait for the next run, and what they depend on beside their text."""
    version = subprocess.run(["g++", "--version"], check=True, capture_output=True, text=True).stdout
    try:
        SHELF.mkdir(parents=True, exist_ok=True)
        for file in SHELF.iterdir():
            if time.time() - file.stat().st_mtime > KEPT:
                file.unlink(missing_ok=True)
        shelf = SHELF
    except OSError:  # a read-only checkout
        shelf = _folder(APART)
    return shelf, "\n".join([version, *FLAGS, *[file.read_text() for file in (FIBERS, CLUSTERS, TYPES)]])


@functools.cache
def _fibers() -> ctypes.CDLL:
    """Load the library that runs the threads; kernels find it and the C++ library among the process's global names."""
    library = ctypes.CDLL(str(_on_shelf(FIBERS.read_text() + CLUSTERS.read_text(), APART)), mode=ctypes.RTLD_GLOBAL)
    library.shim_message.restype = ctypes.c_char_p
    return library


@functools.cache
def _compiled(text: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    _fibers()
    return ctypes.CDLL(str(_on_shelf(text, flags, "-nostdlib")))


def _on_shelf(text: str, flags: tuple[str, ...], *options: str) -> Path:
    """The library of this text, compiled if no run has done so before."""
    shelf, common = _shelf()
    target = shelf / f"{hashlib.sha256(' '.join((common, *flags, text)).encode()).hexdigest()[:32]}.so"
    if target.exists():
        target.touch()
    else:
        _compile(text, target, flags, *options)
    return target


def _compile(text: str, target: Path, flags: tuple[str, ...], *options: str) -> None:
    source = _folder(flags) / f"{target.stem}.cpp"
    source.write_text(text)
    fresh = target.with_suffix(f".{os.getpid()}")
    command = ["g++", *FLAGS, *flags, "-shared", *options, source, "-o", fresh]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        raise KernelError("g++ says: " + "\n".join(result.stderr.splitlines()[:12]))
    fresh.replace(target)  # whole or not at all: another run may be looking for it
