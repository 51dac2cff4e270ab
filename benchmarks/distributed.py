"""Several processes: the cost of a message, the cost of training on them, and a projection for many.

    mpiexec -n 2 python -m benchmarks.distributed [--seconds 2] [--images 32] [--model resnet20]
    python -m benchmarks.distributed --project [--image-ms 2.2] [--noise 0.5]

*Collectives*: all_reduce in the order of the tree beside MPI's own, which has no fixed order; in turn, the slowest
process's median. *Weak scaling*: a step of R ranks with as many images each, beside a step of the same process alone
with its own images: the difference is the cost of messages and of waiting. *Strong scaling*: the same images shared by
R ranks, beside one process that has all of them. Processes beyond the processors share these, and then nothing is
measured.

*Projection*: of one step of one rank, with R ranks,

    time = compute + messages + waiting
    compute = fixed + images * time of an image                          measured for 4 and 32 images, unless given
    messages = M log2(R) (latency + bytes / bandwidth) + gradients
    gradients = 3 log2(R) latency + 2 (R - 1) / R bytes / bandwidth      a header, and halves there and back
    waiting = compute * s * sqrt(M) * sqrt(2 ln R)

M is the number of meetings in a step (two a layer of SyncBatchNorm, the roll call, the gradients), s the deviation of a
rank's time for a step: at each meeting all wait for the slowest of R. `gathered` is the same with every rank's
statistics sent to every rank, R * bytes instead of log2(R) * bytes; `local` is without SyncBatchNorm.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import minorm as mn
import minorm.functional as F
from benchmarks.timing import in_turn
from minorm import distributed as dist
from minorm import models, nn, optim
from minorm.distributed.launcher import launched

SIZES = (64, 4096, 65_536, 1_100_000, 8_000_000)  # bytes


@dataclass(frozen=True)
class Network:
    """A network that carries messages: its latency in seconds and its bandwidth in bytes a second."""

    name: str
    latency: float
    bandwidth: float


NETWORKS = (Network("10 GbE (25 us, 1.1 GB/s)", 25e-6, 1.1e9), Network("InfiniBand (2 us, 20 GB/s)", 2e-6, 20e9))


@dataclass(frozen=True)
class Step:
    """One step of a rank: seconds it computes, layers of SyncBatchNorm, bytes of a message of theirs, of gradients."""

    compute: float
    layers: int
    statistics: float
    gradients: float


def projected(step: Step, network: Network, ranks: int, noise: float, how: str) -> float:
    """Return the projected seconds of a step on so many ranks; how: "tree", "gathered" or "local"."""
    rounds, a, b = math.log2(ranks), network.latency, network.bandwidth
    messages = rounds * a + 3 * rounds * a + 2 * (ranks - 1) / ranks * step.gradients / b  # roll call, gradients
    meetings = 2
    if how != "local":
        count = 2 * step.layers
        sent = ranks * step.statistics / b if how == "gathered" else rounds * step.statistics / b
        messages += count * (rounds * a + sent)
        meetings += count
    waiting = step.compute * noise * math.sqrt(meetings) * math.sqrt(2 * math.log(max(2, ranks)))
    return step.compute + messages + waiting


def project(fixed: float, image: float, noise: float, images: int, batch: int) -> None:
    """Tables of efficiencies for ResNet-20."""
    model = models.resnet20()
    layers = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    channels = statistics.mean(layer.weight.shape[0] for layer in layers)
    gradients = 4.0 * sum(p.numel() for p in model.parameters())

    def step(count: float) -> Step:
        return Step(fixed + count * image, len(layers), (4 + 2) / 2 * 8 * channels, gradients)

    print(
        f"ResNet-20: a step of {1000 * fixed:.1f} ms and {1000 * image:.2f} ms an image, noise {noise:.1%}, "
        f"{len(layers)} layers of SyncBatchNorm, {gradients / 1e6:.1f} MB of gradients. Projected, not measured.\n"
    )
    print(f"Weak scaling, {images} images a rank: efficiency in per cent with statistics by tree, gathered, local\n")
    print(f"{'':28}" + "".join(f"{ranks:>16}" for ranks in (8, 128, 1024)))
    for network in NETWORKS:
        cells = []
        for ranks in (8, 128, 1024):
            ways = [projected(step(images), network, ranks, noise, how) for how in ("tree", "gathered", "local")]
            cells.append(", ".join(f"{100 * step(images).compute / seconds:.0f}" for seconds in ways))
        print(f"{network.name:28}" + "".join(f"{cell:>16}" for cell in cells))
    print(f"\nStrong scaling, {batch} images a step: times as fast as one rank, statistics by tree\n")
    for network in NETWORKS:
        cells = [
            f"{step(batch).compute / projected(step(batch / ranks), network, ranks, noise, 'tree'):.0f}"
            for ranks in (8, 128, 1024)
        ]
        print(f"{network.name:28}" + "".join(f"{cell:>16}" for cell in cells))


def slowest(group: Any, seconds: float) -> float:
    """Return the longest time of all ranks."""
    return float(group.all_reduce(np.array(seconds), np.maximum))


def collectives(group: Any, seconds: float) -> list[str]:
    """A line for each size: the tree's all_reduce, MPI's, and how many times as long it takes."""
    from mpi4py import MPI

    lines = [f"{'bytes':>10} {'tree':>12} {'MPI Allreduce':>14} {'ratio':>7}"]
    for size in SIZES:
        mine, found = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
        calls: list[Callable[[], Any]] = [
            lambda mine=mine: group.all_reduce(mine),
            lambda mine=mine, found=found: MPI.COMM_WORLD.Allreduce(mine, found),
        ]
        times: list[list[float]] = [[], []]
        once = slowest(group, timed(calls[0]))
        for _ in range(max(5, min(2000, int(seconds / (2 * once))))):  # as often on all ranks
            for call, mine_ in zip(calls, times, strict=True):
                mine_.append(timed(call))
        ours, theirs = (slowest(group, statistics.median(each)) for each in times)
        lines.append(f"{size:>10,} {1e6 * ours:>9.0f} us {1e6 * theirs:>11.0f} us {ours / theirs:>7.2f}")
    return lines


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Trainer:
    """One training step of a model on images of noise."""

    def __init__(self, name: str, images: int, group: Any = None) -> None:
        mn.manual_seed(0)
        self.model = models.BY_NAME[name](channels=3, size=32)
        self.parallel = None
        if group is not None:
            self.model = nn.SyncBatchNorm.convert_sync_batchnorm(self.model, group)
            self.parallel = dist.DistributedDataParallel(self.model, group)
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.images, self.labels = mn.randn(images, 3, 32, 32), mn.randint(0, 10, (images,))

    def step(self) -> None:
        """Forward, backward, step."""
        loss = F.cross_entropy(self.model(self.images), self.labels)
        self.optimizer.zero_grad()
        if self.parallel is None:
            loss.backward()
        else:
            self.parallel.backward(loss, len(self.labels))
        self.optimizer.step()


def medians(group: Any, steps: list[Callable[[], Any]], seconds: float) -> list[float]:
    """Time the steps in turn, equally often on all ranks; return the slowest rank's median of each."""
    times: list[list[float]] = [[] for _ in steps]
    once = slowest(group, sum(timed(step) for step in steps))
    for _ in range(max(3, int(seconds / once))):
        for step, mine in zip(steps, times, strict=True):
            group.barrier()
            mine.append(timed(step))
    return [slowest(group, statistics.median(mine)) for mine in times]


def scaling(group: Any, name: str, images: int, seconds: float) -> list[str]:
    """Measure weak and strong scaling with the current ranks."""
    size = group.size
    together, alone = Trainer(name, images, group), Trainer(name, images)
    weak, own = medians(group, [together.step, alone.step], seconds)
    share = Trainer(name, max(1, images // size), group)
    (strong,) = medians(group, [share.step], seconds)
    whole = 0.0
    if group.rank == 0:  # while the others sleep: waiting in MPI would take a processor each
        (whole,) = in_turn([alone.step], seconds)
    else:
        time.sleep(seconds + 1)
    whole = slowest(group, whole)
    threads = mn.get_num_threads()
    weak_, own_, strong_, whole_ = (f"{1000 * time:.1f} ms" for time in (weak, own, strong, whole))
    return [
        f"{name}, {threads} thread{'s' if threads > 1 else ''} a process",
        f"weak:   {size} x {images} images {weak_} a step, {images} images alone {own_}: efficiency {own / weak:.0%}",
        f"strong: {images} images on {size} ranks {strong_}, on one {whole_}: {whole / strong:.2f} times as fast",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each table")
    parser.add_argument("--images", type=int, default=32, help="of each rank, in weak scaling; of all in strong")
    parser.add_argument("--model", choices=("resnet20", "digits"), default="resnet20")
    parser.add_argument("--project", action="store_true", help="compute the tables for 8 to 1024 ranks")
    parser.add_argument("--image-ms", type=float, help="milliseconds an image for --project; measured unless given")
    parser.add_argument("--fixed-ms", type=float, default=0.0, help="with --image-ms: of a step, besides the images")
    parser.add_argument("--noise", type=float, default=0.5, help="deviation of a rank's time, in per cent")
    parser.add_argument("--batch", type=int, default=4096, help="images a step, for --project's strong scaling")
    args = parser.parse_args()
    if args.project:
        fixed, image = args.fixed_ms / 1000, args.image_ms and args.image_ms / 1000
        if image is None:
            few, many = in_turn([Trainer("resnet20", count).step for count in (4, 32)], args.seconds)
            image = (many - few) / 28
            fixed = max(0.0, few - 4 * image)
        project(fixed, image, args.noise / 100, args.images, args.batch)
        return
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if launched()[1] == 1:
        parser.error("it measures several processes: mpiexec -n 2 python -m benchmarks.distributed; or --project")

    def program(group: Any) -> None:
        lines = []
        if group.size > processors:
            lines.append(f"{group.size} processes share {processors} processors: THIS IS NO MEASUREMENT\n")
        lines += [*collectives(group, args.seconds), "", *scaling(group, args.model, args.images, args.seconds)]
        if group.rank == 0:
            print("\n".join(lines))

    dist.run(program)


if __name__ == "__main__":
    main()
