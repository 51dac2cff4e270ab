"""A critic's step of WGAN-GP, minorm and PyTorch: time, and the memory that it takes at its peak.

    python -m benchmarks.gradient_penalty [--threads 2] [--seconds 3]

The step differentiates a gradient: that of the critic for images, of which the penalty is made. Critics are three
convolutions with a normalization behind each, or three linear layers. Times are medians, each library in turn;
memory is measured in a separate process, as in benchmarks.peak.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peak import STEPS, resident
from benchmarks.timing import in_turn

SIDES = ("minorm", "torch")


def convolutions(nn: Any, norm: Callable[[Any, int], Any]) -> Any:
    """1 x 32 x 32 to one number."""
    layers = []
    for narrow, wide in ((1, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(narrow, wide, 4, stride=2, padding=1), norm(nn, wide), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, 1))


def linear_layers(nn: Any) -> Any:
    """The same of vectors."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(1024, 256), nn.LayerNorm(256), nn.SiLU(), nn.Linear(256, 256), nn.LayerNorm(256),
        nn.SiLU(), nn.Linear(256, 1),
    )  # fmt: skip


CASES: dict[str, Callable[[Any], Any]] = {
    "instance": lambda nn: convolutions(nn, lambda nn, n: nn.InstanceNorm2d(n, affine=True)),
    "group": lambda nn: convolutions(nn, lambda nn, n: nn.GroupNorm(8, n)),
    "batch": lambda nn: convolutions(nn, lambda nn, n: nn.BatchNorm2d(n)),
    "none": lambda nn: convolutions(nn, lambda nn, _: nn.Identity()),
    "linear": linear_layers,
}
BATCH = 32


def step_of(name: str, library: Any, batch: int = BATCH) -> Callable[[], Any]:
    """A step of the critic, without the optimizer."""
    critic, rng = CASES[name](library.nn), np.random.default_rng(0)
    real, drawn = (library.from_numpy(rng.standard_normal((batch, 1, 32, 32), np.float32)) for _ in range(2))
    share = library.from_numpy(rng.random((batch, 1, 1, 1), np.float32))

    def step() -> None:
        between = (share * real + (1 - share) * drawn).requires_grad_()
        (slope,) = library.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = ((slope.flatten(1).norm(2, 1) - 1) ** 2).mean()
        for p in critic.parameters():
            p.grad = None
        (critic(drawn).mean() - critic(real).mean() + 10 * penalty).backward()

    return step


def peak(name: str, side: str, threads: int) -> float:
    """MB that the steps add to this process at their peak."""
    library = import_module(side)
    library.set_num_threads(threads)
    step_of(name, library, 2)()
    step = step_of(name, library)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    for _ in range(STEPS):
        step()
    return resident("VmHWM") - before


def in_a_process(name: str, side: str, threads: int) -> float:
    """`peak` in a separate process."""
    command = [sys.executable, "-m", "benchmarks.gradient_penalty", "--case", name, "--side", side]
    done = subprocess.run([*command, "--threads", str(threads)], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description="A step of WGAN-GP, minorm and PyTorch.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3, help="for each critic")
    parser.add_argument("--case", choices=CASES, help="one critic")
    parser.add_argument("--side", choices=SIDES, help="the peak of one side, in this process")
    args = parser.parse_args()
    if args.side:
        print(peak(args.case, args.side, args.threads))
        return
    libraries = [import_module(side) for side in SIDES]
    for library in libraries:
        library.set_num_threads(args.threads)
    print(f"{'critic':10}{'minorm':>10}{'torch':>10}{'ratio':>8}{'minorm':>11}{'torch':>10}{'ratio':>8}")
    for name in [args.case] if args.case else CASES:
        ours, theirs = in_turn([step_of(name, library) for library in libraries], args.seconds)
        small, large = (in_a_process(name, side, args.threads) for side in SIDES)
        times = f"{1000 * ours:7.2f} ms{1000 * theirs:7.2f} ms{ours / theirs:8.2f}"
        print(f"{name:10}{times}{small:8.1f} MB{large:7.1f} MB{small / large:8.2f}", flush=True)


if __name__ == "__main__":
    main()
