"""The kernels of normalization on every instruction set that this processor has, in turn.

    python -m benchmarks.levels [--threads 2] [--seconds 1] [--dtype float32] [--sizes cache large]

Microseconds of the backend's forward and backward on the widest instruction set, and how many times as long the others
take. Most laptops have AVX2 (v3) and not AVX-512 (v4): kernels must be fast on both.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

import minorm as mn
import minorm_ext
from benchmarks.norms import CASES, arrays, minorm_step
from benchmarks.threads import Calls
from benchmarks.timing import in_turn
from minorm.kernels import cpu


def on(level: str, step: Callable[[], Any]) -> Callable[[], None]:
    """The step with the kernels of a level."""
    kernels = minorm_ext.kernels("norm", level)

    def run() -> None:
        cpu.norm._kernels = kernels
        step()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description="Normalizations forward and backward on every instruction set.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1, help="for each level on each line")
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32", "float64"], default="float32")
    parser.add_argument("--sizes", nargs="+", choices=["small", "cache", "large"], default=["cache", "large"])
    args = parser.parse_args()
    mn.set_num_threads(args.threads)
    levels = minorm_ext.levels()[::-1]
    print(f"minorm {mn.__version__}, {args.threads} threads, {args.dtype}, kernels forward and backward")
    print(f"{'':32} {levels[0] + ', us':>12}" + "".join(f" {level:>9}" for level in levels[1:]))
    ratios: list[list[float]] = [[] for _ in levels[1:]]
    for case in CASES:
        if case.size not in args.sizes:
            continue
        calls = Calls()
        minorm_step(case, arrays(case, np.dtype(args.dtype)), backend=calls)()
        times = in_turn([on(level, calls.again) for level in levels], args.seconds * len(levels))
        for found, time in zip(ratios, times[1:], strict=True):
            found.append(time / times[0])
        line = f"{case.op:10} {'x'.join(map(str, case.shape)):21} {1e6 * times[0]:12.1f}"
        print(line + "".join(f" {found[-1]:9.2f}" for found in ratios), flush=True)
    means = (math.exp(statistics.fmean(map(math.log, found))) for found in ratios)
    print(f"{'geometric means':45}" + "".join(f" {mean:9.2f}" for mean in means))


if __name__ == "__main__":
    main()
