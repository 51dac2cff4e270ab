"""Matrix products next to NumPy's BLAS: `python -m benchmarks.matmul [--seconds 1] [--threads 2] [--dtype float32]`.

For a linear layer of (rows, in, out): milliseconds and GFLOP/s of minorm's products for y = x @ w.T, dx = dy @ w and
dw = dy.T @ x, and how many times as long numpy.matmul takes with as many threads. Above 1.00, minorm is faster. minorm
gives the same bits on any number of threads; a BLAS need not.
"""

from __future__ import annotations

import argparse

import numpy as np
import threadpoolctl

import minorm as mn
from benchmarks.timing import in_turn
from minorm.kernels.cpu.matmul import matmul

SHAPES = [
    (1, 800, 500),
    (32, 64, 10),
    (64, 128, 10),
    (128, 500, 10),
    (128, 512, 10),
    (128, 800, 500),
    (256, 512, 512),
    (1024, 1024, 1024),
]
PAUSE = 0.05  # seconds: OpenBLAS' threads spin that long after their work is done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="spent on each product")
    parser.add_argument("--threads", type=int, default=mn.get_num_threads())
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    options = parser.parse_args()
    mn.set_num_threads(options.threads)
    rng = np.random.default_rng(0)
    print(f"{'rows x in x out':18}" + "".join(f"{name:>10} ms  GFLOP/s  x numpy" for name in ("y", "dx", "dw")))
    with threadpoolctl.threadpool_limits(options.threads, user_api="blas"):
        for rows, inputs, outputs in SHAPES:
            x, w, dy = (
                rng.standard_normal(shape).astype(options.dtype)
                for shape in ((rows, inputs), (outputs, inputs), (rows, outputs))
            )
            line = f"{f'{rows} x {inputs} x {outputs}':18}"
            for a, b in ((x, w.T), (dy, w), (dy.T, x)):
                calls = [lambda a=a, b=b: matmul(a, b), lambda a=a, b=b: np.matmul(a, b)]
                ours, theirs = in_turn(calls, options.seconds, pause=PAUSE)
                line += f"{ours * 1e3:13.4f}{2e-9 * rows * inputs * outputs / ours:9.1f}{theirs / ours:9.2f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
