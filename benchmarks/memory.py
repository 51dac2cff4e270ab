"""Normalizations of 100 MB: the share of memory's rate that their kernels reach, for many shapes.

    python -m benchmarks.memory [--threads 2] [--seconds 1] [--ops batch layer]

Forward, backward and both, asked of the backend (minorm/kernels/cpu/norm.py) in turn with a copy around the cache. A
share of 1 is bytes that must move by the rate of that copy. BatchNorm reads x twice forward, x and dy twice backward,
even where rows are so few that a cache holds them from one phase to the next: then a share may be above 1.
"""

from __future__ import annotations

import argparse
from math import prod

import numpy as np

import minorm as mn
from benchmarks.norms import COPIED, Case, arrays, channels_last, copy_step, minorm_step
from benchmarks.threads import Calls
from benchmarks.timing import in_turn

ELEMENTS = 100_000_000 // 4
PASSES = {"batch": (3, 5)}  # over memory, forward and backward; all others:
ROWS = (2, 3)
WIDTHS = (64, 96, 100, 128, 192, 200, 256, 384, 768, 1000, 1024, 2048, 3000, 4096, 5120, 8192, 16384)

# The operation, one of as many samples as make 100 MB, and whether channels-last is timed too.
SAMPLES: list[tuple[str, tuple[int, ...], bool]] = [
    ("batch", (64, 56, 56), True),
    ("batch", (256, 28, 28), True),
    ("batch", (512, 14, 14), True),
    ("batch", (512, 7, 7), True),
    ("batch", (64, 8, 8), False),
    ("batch", (64,), False),
    ("batch", (256,), False),
    ("batch", (1024,), False),
    ("batch", (4096,), False),
    ("instance", (64, 56, 56), True),
    ("instance", (256, 28, 28), True),
    ("instance", (512, 14, 14), True),
    ("instance", (512, 7, 7), False),
    ("instance", (64, 8, 8), False),
    ("group", (64, 56, 56), True),
    ("group", (256, 28, 28), True),
    ("group", (512, 14, 14), False),
    ("group", (512, 7, 7), False),
    *(("layer", (width,), False) for width in WIDTHS),
    *(("rms", (width,), False) for width in (64, 256, 768, 4096)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description="The share of memory's rate that normalizations of 100 MB reach.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1, help="for each of the three on each line")
    parser.add_argument("--ops", nargs="+", choices=["batch", "group", "instance", "layer", "rms"])
    args = parser.parse_args()
    mn.set_num_threads(args.threads)
    copy = copy_step()
    print(f"minorm {mn.__version__}, {args.threads} threads, float32, shares of the rate of a copy around the cache")
    print(f"{'':36} {'forward':>8} {'backward':>9} {'both':>6} {'ms':>8} {'GB/s':>6}")
    for op, sample, has_last in SAMPLES:
        if args.ops and op not in args.ops:
            continue
        for last in (False, True) if has_last else (False,):
            case = Case(op, (ELEMENTS // prod(sample), *sample), "large")
            given = arrays(case, np.dtype("float32"))
            calls = Calls()
            minorm_step(case, [channels_last(a) for a in given] if last else given, backend=calls)()
            *steps, copied = in_turn([*calls.made, copy], args.seconds * 3)
            nbytes = [passes * given[0].nbytes for passes in PASSES.get(op, ROWS)]
            rate = COPIED / copied
            shares = [
                size / rate / step for size, step in zip([*nbytes, sum(nbytes)], [*steps, sum(steps)], strict=True)
            ]
            name = f"{op:9} {'x'.join(map(str, case.shape))}{' channels-last' if last else ''}"
            line = f"{name:36} {shares[0]:8.2f} {shares[1]:9.2f} {shares[2]:6.2f}"
            print(f"{line} {1e3 * sum(steps):8.2f} {rate / 1e9:6.0f}", flush=True)


if __name__ == "__main__":
    main()
