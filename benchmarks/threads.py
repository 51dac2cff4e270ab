"""How much more threads help normalizations: one thread and all of them, in turn.

    python -m benchmarks.threads [--threads 2] [--seconds 1] [--ops batch layer]

`kernels` is what forward and backward ask of the backend (minorm/kernels/cpu/norm.py), asked again without the rest;
`step` is the same through Tensor, where Python runs on one thread. Microseconds on all threads, and after them how many
times as long one thread takes, from medians of the same seconds. Two processors share a cache, with each other and on
many machines with strangers: where they wait for it, a second one helps less, and on another day more. Results of 5 MB
and more go around the cache, and there both wait for memory: those shapes have a separate mean.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

import minorm as mn
from benchmarks.norms import CASES, arrays, minorm_step
from benchmarks.timing import in_turn
from minorm.kernels import cpu

AROUND = 5 << 20  # bytes of a result; a larger one is written around the cache (STREAM in minorm_ext/norm/norm.pyx)


class Calls:
    """The CPU's backend of normalizations; it notes its calls."""

    def __init__(self) -> None:
        self.made: list[Callable[[], Any]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(cpu.norm, name)

        def call(*args: Any, **options: Any) -> Any:
            self.made.append(functools.partial(function, *args, **options))
            return function(*args, **options)

        return call

    def again(self) -> None:
        for call in self.made:
            call()


def on(threads: int, step: Callable[[], Any]) -> Callable[[], None]:
    """Return the step on so many threads."""

    def run() -> None:
        mn.set_num_threads(threads)
        step()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description="Normalizations forward and backward on one thread and on more.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1, help="for each of the four on each line")
    parser.add_argument("--ops", nargs="+", choices=sorted({case.op for case in CASES}))
    args = parser.parse_args()
    print(f"minorm {mn.__version__}, {args.threads} threads by one, float32, forward and backward")
    print(f"{'':32} {'kernels, us':>12} {'by one':>7} {'step, us':>12} {'by one':>7}")
    near: list[list[float]] = []
    far: list[list[float]] = []
    for case in CASES:
        if case.size != "cache" or (args.ops and case.op not in args.ops):
            continue
        given = arrays(case, np.dtype("float32"))
        calls = Calls()
        minorm_step(case, given, backend=calls)()
        steps = [calls.again, minorm_step(case, given)]
        turns = [on(threads, step) for step in steps for threads in (1, args.threads)]
        times = in_turn(turns, args.seconds * len(turns))
        gains = [one / more for one, more in zip(times[::2], times[1::2], strict=True)]
        line = f"{case.op:10} {'x'.join(map(str, case.shape)):21}"
        for gain, more in zip(gains, times[1::2], strict=True):
            line += f" {1e6 * more:12.1f} {gain:7.2f}"
        print(line, flush=True)
        (far if given[0].nbytes > AROUND else near).append(gains)
    for name, found in (("in cache", near), ("around it", far)):
        if found:
            kernels, step = (math.exp(statistics.fmean(map(math.log, column))) for column in zip(*found, strict=True))
            print(f"{'geometric means, ' + name:32} {'':12} {kernels:7.2f} {'':12} {step:7.2f}")


if __name__ == "__main__":
    main()
