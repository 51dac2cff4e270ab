"""One batch in k parts: the memory that a training step of ResNet-20 takes, cut up or normalized as a whole.

    python -m benchmarks.parts [--images 256] [--threads 2]

Each way runs in a separate process. The result is the peak of its resident memory above the memory before the step.
"""

from __future__ import annotations

import argparse
import copy
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import minorm as mn
import minorm.functional as F
from minorm import distributed, models, nn

Step = Callable[[nn.Module, Any, Any, int], None]


def whole(model: nn.Module, images: Any, labels: Any, k: int) -> None:  # noqa: ARG001
    """The batch at once."""
    F.cross_entropy(model(mn.tensor(images)), mn.tensor(labels)).backward()


def accumulate(model: nn.Module, images: Any, labels: Any, k: int) -> None:
    """k micro-batches, one after the other."""
    with nn.accumulate_stats(model):
        for x, target in zip(np.split(images, k), np.split(labels, k), strict=True):
            (F.cross_entropy(model(mn.tensor(x)), mn.tensor(target)) / k).backward()


def ranks(model: nn.Module, images: Any, labels: Any, k: int) -> None:
    """SyncBatchNorm on k ranks of this process."""

    def program(group: Any) -> None:
        mine = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(model), group)
        parallel = distributed.DistributedDataParallel(mine, group)
        x, target = np.split(images, k)[group.rank], np.split(labels, k)[group.rank]
        parallel.backward(F.cross_entropy(parallel(mn.tensor(x)), mn.tensor(target)), len(target))

    distributed.run(program, ranks=k)


WAYS: dict[str, Step] = {"whole": whole, "accumulate": accumulate, "ranks": ranks}


def peak() -> float:
    """The most resident memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(way: str, k: int, count: int, threads: int) -> str:
    """Memory before the step, and what the step adds."""
    mn.set_num_threads(threads)
    mn.manual_seed(0)
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((count, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, count)
    model = models.resnet20()
    model(mn.tensor(images[:2])).sum().backward()  # what is loaded and kept anyway
    before = peak()
    WAYS[way](model, images, labels, k)
    return f"{way:<12}{k:>3}{before:>12.0f}{peak() - before:>12.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="The memory of a training step of ResNet-20, in parts.")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--way", choices=WAYS, help="one way, in this process")
    parser.add_argument("--parts", type=int, default=1)
    args = parser.parse_args()
    if args.way:
        print(measure(args.way, args.parts, args.images, args.threads))
        return
    print(f"{'way':<12}{'k':>3}{'before, MB':>12}{'step, MB':>12}")
    for way, parts in (("whole", 1), ("accumulate", 4), ("accumulate", 8), ("ranks", 4), ("ranks", 8)):
        options = ["--images", str(args.images), "--threads", str(args.threads), "--way", way, "--parts", str(parts)]
        subprocess.run([sys.executable, "-m", "benchmarks.parts", *options], check=True)


if __name__ == "__main__":
    main()
