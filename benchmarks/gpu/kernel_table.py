"""A table of the kernels that the benchmark's operations launch, made without a GPU: what they take, and their time.

    python -m benchmarks.gpu --kernels [WORD ...] [--types bfloat16 ...] [--architecture sm_90] [--rate 4235]

WORD chooses the operations whose names contain it, such as layer or pool; without one there are all. Each kernel has a
row in the table of its type. NVRTC compiles it, and nvdisasm shows its machine code.

    read, written  bytes an element of the first input; an array counts once, even if the kernel walks over it twice
    registers      of a thread
    spills         bytes; should be 0
    shared         bytes of a block, with those that the launch gives it
    threads        that a multiprocessor holds at once, as far as registers, shared memory and the grid allow
    loads          that a thread has on their way at best: instructions, and their bytes together, with its part of the
                   copies to the shared memory that the launch gives
    by rate        microseconds in which the memory moves the bytes at the rate of a copy
    by loads       microseconds that the reads take if each waits for the latency: by Little's law, bytes that are on
                   their way on the whole device / latency is the rate at most
    expected       the larger of both

A time is a bound from below: arithmetic, barriers and the start of the kernel are not in it. A kernel that moves less
than a sixty-fourth of its operation's bytes is left out.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu import kernel_launches
from benchmarks.gpu.cases import QUICK as NORMALIZATIONS
from benchmarks.gpu.kernel_launches import Launch

RATE = 4235.0  # GB/s of a copy on an H200
LATENCY = 600e-9  # seconds from a load to its number
MULTIPROCESSORS = 132  # of an H200
REGISTERS, WARP = 1 << 16, 32
LEAST = 1 / 64  # of an operation's bytes
HEAD = (
    "| operation | way | kernel | read | written | registers | spills | shared | threads | loads | by rate | by loads "
    "| expected |"
)


class Limits(NamedTuple):
    """The limits of a multiprocessor: threads, blocks, and bytes of shared memory."""

    threads: int
    blocks: int
    shared: int
    reserved: int = 1024  # bytes of shared memory that each block takes besides its own


LIMITS = {
    "sm_70": Limits(2048, 32, 96 << 10, 0),
    "sm_75": Limits(1024, 16, 64 << 10, 0),
    "sm_80": Limits(2048, 32, 164 << 10),
    "sm_90": Limits(2048, 32, 228 << 10),
    "sm_100": Limits(2048, 32, 228 << 10),
}


class Row(NamedTuple):
    """A kernel of an operation: its launch, and what its machine code takes."""

    operation: str
    elements: int
    launch: Launch
    resources: Any
    flight: Any

    def cells(self, limits: Limits, rate: float) -> list[str]:
        """Return the row's cells; `rate` is in GB/s."""
        launch, shared = self.launch, self.resources.shared + self.launch.room
        threads = resident(limits, launch.threads, self.resources.registers, shared)
        in_flight = self.flight.bytes + launch.room // launch.threads
        by_rate, by_loads = times(launch, threads, in_flight, rate)
        read, written = (f"{count / self.elements:.3g}" for count in (launch.read, launch.written))
        code = self.resources
        return [
            self.operation, launch.way, f"`{launch.kernel}`", read, written, str(code.registers),
            str(code.spilled), f"{shared:,}", str(on_one(launch, threads)), f"{self.flight.loads} ({in_flight} B)",
            f"{by_rate:.1f}", f"{by_loads:.1f}", f"{max(by_rate, by_loads):.1f}",
        ]  # fmt: skip


def resident(limits: Limits, threads: int, registers: int, shared: int) -> int:
    """Return the threads that a multiprocessor holds of blocks with so many threads, registers and shared bytes."""
    warps = -(-threads // WARP)
    of_warp = -(-registers * WARP // 256) * 256  # registers are given to a warp 256 at a time
    blocks = min(
        limits.threads // (warps * WARP),
        limits.blocks,
        REGISTERS // of_warp // warps,
        limits.shared // max(1, shared + limits.reserved),
    )
    return blocks * threads


def on_one(launch: Launch, threads: int) -> int:
    """Return the threads on a multiprocessor; a small grid does not fill it."""
    return min(threads, -(-launch.blocks // MULTIPROCESSORS) * launch.threads)


def times(launch: Launch, threads: int, in_flight: int, rate: float) -> tuple[float, float]:
    """Return the microseconds by the rate of the memory (GB/s), and by the loads that are on their way."""
    together = min(MULTIPROCESSORS * threads, launch.blocks * launch.threads) * in_flight
    by_loads = launch.read * LATENCY / together if together else 0.0
    return (launch.read + launch.written) / rate / 1e3, 1e6 * by_loads


def operations(dtype: str, words: Iterable[str]) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Return the benchmark's operations in a type whose names contain a word: elements of the first input, and a
    function that makes the call.
    """
    from benchmarks.gpu.cases import cases
    from benchmarks.gpu.operations import FAMILIES

    found: dict[str, tuple[int, Callable[[], Any]]] = {}
    for case in cases(NORMALIZATIONS, (dtype,)):
        name = str(case).replace(f" {dtype}", "")
        found[name] = int(np.prod(case.shape)), functools.partial(kernel_launches.of_case, case)
    for family in filter(kernel_launches.is_measured, FAMILIES):
        named = "channels last" in family.name
        for last in (False, True) if len(family.large[0]) == 4 and not named else (family.last,):
            name = family.name if named or not last else f"{family.name}, channels last"
            if last == family.last or name not in [other.name for other in FAMILIES]:
                found[name] = (
                    int(np.prod(family.large[0])),
                    functools.partial(kernel_launches.of_family, family, dtype, last),
                )
    for name in kernel_launches.OPTIMIZERS:
        found[name] = kernel_launches.PARAMETERS, functools.partial(kernel_launches.of_optimizer, name, dtype)
    chosen = list(words)
    return {name: how for name, how in found.items() if not chosen or any(word in name for word in chosen)}


def launches(types: Iterable[str], words: Iterable[str], architecture: str) -> dict[str, list[tuple[str, int, Launch]]]:
    """Return the launches of every type's operations, without those that move little."""
    found: dict[str, list[tuple[str, int, Launch]]] = {}
    with kernel_launches.recording(architecture) as run:
        for dtype in types:
            for name, (elements, make) in operations(dtype, words).items():
                seen = run(make())
                least = LEAST * sum(launch.read + launch.written for launch in seen)
                kept = [launch for launch in seen if launch.read + launch.written >= least]
                found.setdefault(dtype, []).extend((name, elements, launch) for launch in dict.fromkeys(kept))
    return found


def tables(architecture: str, rate: float, types: Iterable[str], words: Iterable[str], jobs: int | None = None) -> str:
    """Return a table in Markdown for each type."""
    noted = launches(types, words, architecture)
    if not noted:
        raise RuntimeError(f"--kernels: no operation has {' or '.join(words)} in its name")
    from minorm.kernels.gpu import source
    import nvrtc  # isort: skip  the real CuPy, now that its double is gone

    if not nvrtc.available or nvrtc.disassembler is None:
        raise RuntimeError("--kernels needs CuPy, NVRTC and nvdisasm: pip install cupy-cuda13x nvidia-cuda-nvrtc "
                           "nvidia-cuda-runtime nvidia-cuda-nvdisasm")  # fmt: skip
    kernels = dict.fromkeys((launch.file, launch.kernel) for rows in noted.values() for _, _, launch in rows)

    def compiled(kernel: tuple[str, str]) -> Any:
        file, name = kernel
        ((resources, flight),) = nvrtc.examined(source.source(file), [name], architecture, source.options(file))
        return resources, flight

    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        code = dict(zip(kernels, pool.map(compiled, kernels), strict=True))
    limits, parts = LIMITS[architecture], []
    for dtype, rows in noted.items():
        lines = [f"**{dtype}**, {architecture}, {rate:g} GB/s", "", HEAD, "|---" * HEAD.count(" | ") + "|---|"]
        for name, elements, launch in rows:
            row = Row(name, elements, launch, *code[launch.file, launch.kernel])
            lines.append(f"| {' | '.join(row.cells(limits, rate))} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def show(args: argparse.Namespace) -> int:
    """Print the tables that the options ask for; return 2 if the compiler is not there."""
    try:
        print(tables(args.architecture, args.rate, args.types, args.kernels, args.jobs))
    except RuntimeError as error:
        print(f"benchmarks.gpu: {error}", file=sys.stderr)
        return 2
    return 0
