"""The normalizations, forward and backward through Tensor: minorm, PyTorch, and the floor that memory sets.

    python -m benchmarks.norms [--threads 2] [--seconds 1] [--ops batch layer] [--sizes small cache large]
                               [--dtype float32] [--compile] [--processes 3]

Each line is one operation on one shape, training mode, forward and backward with all gradients, every library in turn
in one process; medians. `eager` and `last` are PyTorch on a row-major and a channels-last tensor, as ratios: above 1,
minorm is the faster one. minorm runs the row-major tensor, and under `ours last` the channels-last one (its ratio is to
PyTorch's channels-last). `floor` is the share of what memory allows: the bytes that must move (BatchNorm reads x twice
and writes y, then reads x and dy twice and writes dx: 8 passes; a row of the others stays in cache between its phases,
which leaves 5) by the rate of a copy around the cache, on as many threads, which takes its turn beside the others.

Each line is measured in several fresh processes, and their median counts; `from` and `to` are the least and the largest
`eager`. In some processes the C library takes the memory of PyTorch's results from the system at every step and gives
it back, in others it keeps it, and a step takes several times as long or it does not.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import math
import multiprocessing
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401  so that np.dtype("bfloat16") is known
import numpy as np

import minorm as mn
import minorm.functional as F
from benchmarks.timing import in_turn
from minorm.kernels.cpu import elementwise, memory

EPS = 1e-5
BATCH, ROWS = 8, 5  # passes over memory, forward and backward together


@dataclass(frozen=True)
class Case:
    """One operation on one shape."""

    op: str
    shape: tuple[int, ...]
    size: str  # small, cache or large

    @property
    def passes(self) -> int:
        return BATCH if self.op == "batch" else ROWS

    @property
    def has_last(self) -> bool:
        """Does channels-last mean anything here?"""
        return len(self.shape) == 4 and self.op in ("batch", "instance", "group")


CASES = [
    Case("batch", (8, 16, 4, 4), "small"),
    Case("batch", (32, 64, 56, 56), "cache"),
    Case("batch", (64, 16, 32, 32), "cache"),
    Case("batch", (64, 64, 8, 8), "cache"),
    Case("batch", (8, 256, 14, 14), "cache"),
    Case("batch", (128, 24, 28, 28), "cache"),
    Case("batch", (4096, 256), "cache"),
    Case("batch", (128, 64, 56, 56), "large"),
    Case("instance", (8, 16, 4, 4), "small"),
    Case("instance", (64, 16, 32, 32), "cache"),
    Case("instance", (32, 64, 28, 28), "cache"),
    Case("instance", (128, 64, 56, 56), "large"),
    Case("group", (8, 16, 4, 4), "small"),
    Case("group", (64, 16, 32, 32), "cache"),
    Case("group", (32, 64, 28, 28), "cache"),
    Case("group", (8, 256, 14, 14), "cache"),
    Case("group", (128, 64, 56, 56), "large"),
    Case("layer", (32, 64), "small"),
    Case("layer", (4096, 64), "cache"),
    Case("layer", (4096, 256), "cache"),
    Case("layer", (4096, 768), "cache"),
    Case("layer", (1024, 4096), "cache"),
    Case("layer", (32768, 768), "large"),
    Case("layer", (8192, 4096), "large"),
    Case("rms", (32, 64), "small"),
    Case("rms", (4096, 64), "cache"),
    Case("rms", (4096, 256), "cache"),
    Case("rms", (4096, 768), "cache"),
    Case("rms", (1024, 4096), "cache"),
    Case("rms", (32768, 768), "large"),
    Case("rms", (8192, 4096), "large"),
]


COPIED = 1 << 29  # bytes, read and written, that a call of `copy_step` moves


def copy_step() -> Callable[[], Any]:
    """Return a copy that goes around the cache."""
    x = np.ones(COPIED // 8, np.float32)
    return lambda: elementwise.copy(x)


def arrays(case: Case, dtype: Any) -> list[np.ndarray]:
    """x, dy, weight and bias."""
    rng = np.random.default_rng(0)
    width = case.shape[-1] if case.op in ("layer", "rms") else case.shape[1]
    shapes = [case.shape, case.shape, (width,), (width,)]
    return [rng.standard_normal(shape, np.float32).astype(dtype) for shape in shapes]


def own(array: np.ndarray) -> mn.Tensor:
    """Copy the array into the library's memory, in the same order."""
    copy = memory.empty_like(array)
    copy[...] = array
    return mn.from_numpy(copy)


def minorm_step(case: Case, given: list[np.ndarray], backend: Any = None) -> Callable[[], Any]:
    """Forward and backward in minorm. x and dy lie where results of the library lie, as they do in a network."""
    x, dy, weight, bias = map(own, given)
    for tensor in (x, weight, bias):
        tensor.requires_grad = True
    channels = case.shape[1]
    mean, var = mn.zeros(channels), mn.ones(channels)
    forward = {
        "batch": lambda: F.batch_norm(x, mean, var, weight, bias, True, 0.9, EPS, backend=backend),
        "instance": lambda: F.instance_norm(x, None, None, weight, bias, True, 0.9, EPS, backend=backend),
        "group": lambda: F.group_norm(x, groups(channels), weight, bias, EPS, backend=backend),
        "layer": lambda: F.layer_norm(x, case.shape[-1:], weight, bias, EPS, backend=backend),
        "rms": lambda: F.rms_norm(x, case.shape[-1:], weight, EPS, backend=backend),
    }[case.op]

    def step() -> None:
        forward().backward(dy)
        x.grad = weight.grad = bias.grad = None

    return step


def torch_step(case: Case, given: list[np.ndarray], last: bool = False, compiled: bool = False) -> Callable[[], Any]:
    """The same in PyTorch."""
    import torch
    from torch.nn import functional as TF

    x, dy, weight, bias = (
        torch.from_numpy(a.view(np.uint16)).view(torch.bfloat16) if a.dtype.name == "bfloat16" else torch.from_numpy(a)
        for a in given
    )
    if last:
        x, dy = (t.contiguous(memory_format=torch.channels_last) for t in (x, dy))
    x, dy, weight, bias = (tensor.clone() for tensor in (x, dy, weight, bias))
    for tensor in (x, weight, bias):
        tensor.requires_grad_(True)
    channels = case.shape[1]
    mean, var = torch.zeros(channels, dtype=x.dtype), torch.ones(channels, dtype=x.dtype)
    forward = {
        "batch": lambda: TF.batch_norm(x, mean, var, weight, bias, True, 0.1, EPS),
        "instance": lambda: TF.instance_norm(x, None, None, weight, bias, True, 0.1, EPS),
        "group": lambda: TF.group_norm(x, groups(channels), weight, bias, EPS),
        "layer": lambda: TF.layer_norm(x, case.shape[-1:], weight, bias, EPS),
        "rms": lambda: TF.rms_norm(x, case.shape[-1:], weight, EPS),
    }[case.op]
    if compiled:
        forward = torch.compile(forward)

    def step() -> None:
        forward().backward(dy)
        x.grad = weight.grad = bias.grad = None

    return step


def groups(channels: int) -> int:
    return 8 if channels % 8 == 0 else 1


def channels_last(array: np.ndarray) -> np.ndarray:
    """The same 4-D array with its channels next to each other in memory."""
    return array.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2) if array.ndim == 4 else array


def measure(case: Case, dtype: str, seconds: float, compiled: bool, threads: int) -> dict[str, float]:
    """Seconds of a step of one case, by the name of its column."""
    import torch

    mn.set_num_threads(threads)
    torch.set_num_threads(threads)
    given = arrays(case, np.dtype(dtype))
    names, steps = ["ours", "eager"], [minorm_step(case, given), torch_step(case, given)]
    if case.has_last:
        names += ["ours_last", "last"]
        steps += [minorm_step(case, [channels_last(a) for a in given]), torch_step(case, given, last=True)]
    if compiled:
        names.append("compile")
        steps.append(torch_step(case, given, compiled=True))
    if case.size == "large":
        names.append("copy")
        steps.append(copy_step())
    found = dict(zip(names, in_turn(steps, seconds * len(steps)), strict=True))
    if "copy" in found:
        found["floor"] = found["copy"] * case.passes * given[0].nbytes / COPIED
    found["best"] = min(found["eager"], found.get("last", math.inf))
    found["ours_best"] = min(found["ours"], found.get("ours_last", math.inf))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Normalizations forward and backward, minorm beside PyTorch.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1, help="for each library on each line")
    parser.add_argument("--ops", nargs="+", choices=sorted({case.op for case in CASES}))
    parser.add_argument("--sizes", nargs="+", choices=["small", "cache", "large"])
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32", "float64"], default="float32")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    parser.add_argument("--processes", type=int, default=3, help="in which each line is measured")
    args = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        raise SystemExit("benchmarks.norms compares with PyTorch; install torch")
    mn.set_num_threads(args.threads)
    print(
        f"minorm {mn.__version__}, PyTorch {importlib.metadata.version('torch')}, {args.threads} threads, "
        f"{args.processes} processes, {args.dtype}, forward and backward; copies around the cache: "
        f"{COPIED / in_turn([copy_step()])[0] / 1e9:.0f} GB/s"
    )
    mn.empty_cache()
    print(
        f"{'':36} {'ms':>9} {'eager':>7} {'from':>7} {'to':>7} {'best':>7} {'compile':>8} {'floor':>7} "
        f"{'ours last':>10} {'last':>7}"
    )
    ratios: dict[str, list[float]] = {}
    for case in CASES:
        if (args.ops and case.op not in args.ops) or (args.sizes and case.size not in args.sizes):
            continue
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as fresh:
            given = (case, args.dtype, args.seconds, args.compile, args.threads)
            found = [fresh.apply(measure, given) for _ in range(args.processes)]
        eager = [t["eager"] / t["ours"] for t in found]
        ratios.setdefault(f"{case.op} {case.size}", []).append(statistics.median(eager))
        ratios.setdefault(f"{case.op} {case.size}, best mode", []).append(middle(found, "best", "ours_best"))
        line = f"{case.op:8} {case.size:6} {'x'.join(map(str, case.shape)):20} {1000 * middle(found, 'ours'):9.3f}"
        line += f" {statistics.median(eager):7.2f} {min(eager):7.2f} {max(eager):7.2f}"
        line += f" {middle(found, 'best', 'ours'):7.2f}"
        line += f" {middle(found, 'compile', 'ours'):8.2f}" if args.compile else f" {'':8}"
        line += f" {middle(found, 'floor', 'ours'):7.2f}" if case.size == "large" else f" {'':7}"
        if case.has_last:
            line += f" {1000 * middle(found, 'ours_last'):10.3f} {middle(found, 'last', 'ours_last'):7.2f}"
        print(line, flush=True)
    print("geometric means")
    for name, values in ratios.items():
        print(f"  {name:28} {math.exp(statistics.fmean(map(math.log, values))):6.2f}")


def middle(found: list[dict[str, float]], column: str, by: str | None = None) -> float:
    """The median over the processes of a column, or of its ratio to another."""
    return statistics.median(t[column] / (t[by] if by else 1) for t in found)


if __name__ == "__main__":
    main()
