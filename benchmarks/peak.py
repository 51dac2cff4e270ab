"""The memory that a training step takes at its peak, minorm and PyTorch, for the networks of benchmarks.step.

    python -m benchmarks.peak [--threads 2] [--networks digits vgg]

Each step runs in a separate process, after one step on two images: it loads code and keeps memory that every process
would load and keep. The result is the most resident memory (VmHWM) of three steps above the resident memory before
them: activations, gradients, the optimizer's state, scratch memory, and what an allocator keeps for next time. PyTorch
runs row-major and channels-last; `ratio` is ours over the lesser of the two: below 1 minorm needs less.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np

from benchmarks.step import CASES, step_of

SIDES = {"minorm": "minorm", "NCHW": "torch", "ch.last": "torch"}
FEW = 2  # images of the step before
STEPS = 3


def resident(field: str) -> float:
    """A field of /proc/self/status, in MB: VmRSS is what is resident now, VmHWM the most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


def measure(name: str, side: str, threads: int) -> float:
    """MB that the steps add to this process at their peak."""
    library = import_module(SIDES[side])
    library.set_num_threads(threads)
    build, channels, size, batch = CASES[name]
    rng = np.random.default_rng(0)
    images = rng.standard_normal((batch, channels, size, size), np.float32)
    model, x = build(library), library.from_numpy(images)
    if side == "ch.last":
        model, x = model.to(memory_format=library.channels_last), x.to(memory_format=library.channels_last)
    places = model(x[:FEW]).shape[2:]  # a label each, where the network gives a class a pixel
    y = library.from_numpy(rng.integers(0, 10, (batch, *places)))
    step_of(library, model, x[:FEW], y[:FEW])()
    step = step_of(library, model, x, y)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
    before = resident("VmRSS")
    for _ in range(STEPS):
        step()
    return resident("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description="The peak memory of a training step, minorm and PyTorch.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--networks", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--side", choices=SIDES, help="one side of one network, in this process")
    args = parser.parse_args()
    if args.side:
        print(measure(args.networks[0], args.side, args.threads))
        return
    print(f"{args.threads} threads, MB above the memory before the step")
    print(f"{'network':14} {'batch':>5} {' '.join(f'{side:>8}' for side in SIDES)} {'ratio':>6}")
    for name in args.networks:
        options = ["--threads", str(args.threads), "--networks", name, "--side"]
        command = [sys.executable, "-m", "benchmarks.peak", *options]
        found = [float(subprocess.check_output([*command, side])) for side in SIDES]
        numbers = " ".join(f"{megabytes:8.1f}" for megabytes in found)
        print(f"{name:14} {CASES[name][3]:5} {numbers} {found[0] / min(found[1:]):6.2f}", flush=True)


if __name__ == "__main__":
    main()
