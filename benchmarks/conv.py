"""Convolution next to PyTorch: `python -m benchmarks.conv [--seconds 1] [--threads 2] [words ...]`.

For every shape: milliseconds and GFLOP/s of minorm forward and forward + backward (input and weights), and how many
times as long PyTorch takes, with its tensors in NCHW and in channels-last order. Above 1.00, minorm is faster. Words
choose the shapes whose name contains one of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import minorm as mn
import minorm.functional as F
from benchmarks.timing import in_turn

# name, x, output channels, kernel, stride, padding, groups
SHAPES: list[tuple[str, tuple[int, ...], int, int, int, int, int]] = [
    ("digits 1->16 8x8", (64, 1, 8, 8), 16, 3, 1, 1, 1),
    ("digits 16->32 8x8", (64, 16, 8, 8), 32, 3, 1, 1, 1),
    ("digits 32->64 4x4", (64, 32, 4, 4), 64, 3, 1, 1, 1),
    ("lenet 1->6 28x28 5x5", (128, 1, 28, 28), 6, 5, 1, 2, 1),
    ("lenet 1->16 28x28 5x5", (128, 1, 28, 28), 16, 5, 1, 2, 1),
    ("lenet 6->16 14x14 5x5", (128, 6, 14, 14), 16, 5, 1, 0, 1),
    ("resnet 3->16 32x32", (64, 3, 32, 32), 16, 3, 1, 1, 1),
    ("resnet 16->16 32x32", (64, 16, 32, 32), 16, 3, 1, 1, 1),
    ("resnet 16->32 32x32 /2", (64, 16, 32, 32), 32, 3, 2, 1, 1),
    ("resnet 32->32 16x16", (64, 32, 16, 16), 32, 3, 1, 1, 1),
    ("resnet 32->64 16x16 /2", (64, 32, 16, 16), 64, 3, 2, 1, 1),
    ("resnet 64->64 8x8", (64, 64, 8, 8), 64, 3, 1, 1, 1),
    ("resnet 1x1 16->32 /2", (64, 16, 32, 32), 32, 1, 2, 0, 1),
    ("resnet 1x1 32->64 /2", (64, 32, 16, 16), 64, 1, 2, 0, 1),
    ("depthwise 64 16x16", (64, 64, 16, 16), 64, 3, 1, 1, 64),
    ("depthwise 32 32x32", (64, 32, 32, 32), 32, 3, 1, 1, 32),
    ("1x1 64->64 16x16", (64, 64, 16, 16), 64, 1, 1, 0, 1),
    ("1x1 64->256 56x56", (8, 64, 56, 56), 256, 1, 1, 0, 1),
    ("3x3 64->64 56x56", (64, 64, 56, 56), 64, 3, 1, 1, 1),
    ("one image 64 56x56", (1, 64, 56, 56), 64, 3, 1, 1, 1),
    ("one image 512 7x7", (1, 512, 7, 7), 512, 3, 1, 1, 1),
]


def ours(x: Any, w: Any, dy: Any, options: dict[str, int]) -> list[Callable[[], Any]]:
    """Return two calls: forward, and forward + backward."""
    inputs = mn.from_numpy(x), mn.from_numpy(w)
    leaves = mn.tensor(x, requires_grad=True), mn.tensor(w, requires_grad=True)

    def both() -> None:
        for leaf in leaves:
            leaf.grad = None
        F.conv2d(*leaves, **options).backward(dy)

    return [lambda: F.conv2d(*inputs, **options), both]


def theirs(torch: Any, x: Any, w: Any, dy: Any, options: dict[str, int], layout: Any) -> list[Callable[[], Any]]:
    """The same in PyTorch."""
    tensors = [torch.from_numpy(a).to(memory_format=layout) for a in (x, w, dy)]
    leaves, gradient = [t.clone().requires_grad_() for t in tensors[:2]], tensors[2]
    conv2d = torch.nn.functional.conv2d

    def forward() -> None:
        with torch.no_grad():
            conv2d(*tensors[:2], **options)

    return [forward, lambda: torch.autograd.grad(conv2d(*leaves, **options), leaves, gradient)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only shapes whose name contains one of these")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each of the two columns of each shape")
    parser.add_argument("--threads", type=int, default=mn.get_num_threads())
    arguments = parser.parse_args()
    mn.set_num_threads(arguments.threads)
    layouts = []
    try:
        import torch

        torch.set_num_threads(arguments.threads)
        layouts = [torch.contiguous_format, torch.channels_last]
    except ModuleNotFoundError:
        print("PyTorch is not installed: times of minorm alone")
    print(f"{arguments.threads} threads, float32" + " " * 22 + "forward" + " " * 22 + "forward + backward")
    titles = "       ms GFLOP/s" + ("   NCHW  ch.last" if layouts else "")
    print(f"{'':24}{titles} |{titles}")
    ratios: list[list[float]] = [[], [], [], []]
    rng = np.random.default_rng(0)
    for name, x_shape, outputs, kernel, stride, padding, groups in SHAPES:
        if arguments.words and not any(word in name for word in arguments.words):
            continue
        options = {"stride": stride, "padding": padding, "groups": groups}
        x = rng.standard_normal(x_shape, np.float32)
        w = rng.standard_normal((outputs, x_shape[1] // groups, kernel, kernel), np.float32)
        y_shape = F.conv2d(mn.from_numpy(x), mn.from_numpy(w), **options).shape
        dy = rng.standard_normal(y_shape, np.float32)
        sides = [ours(x, w, dy, options), *(theirs(torch, x, w, dy, options, layout) for layout in layouts)]
        operations = 2e-9 * dy.size * w[0].size
        columns = []
        for which, factor in enumerate((1, 3)):
            times = in_turn([side[which] for side in sides], arguments.seconds)
            column = f"{times[0] * 1e3:9.3f} {factor * operations / times[0]:7.0f}"
            for i, time in enumerate(times[1:]):
                ratios[2 * which + i].append(time / times[0])
                column += f"   {time / times[0]:6.2f}"
            columns.append(column)
        print(f"{name:24}" + " |".join(columns), flush=True)
    if ratios[0]:
        means = [f"   {np.exp(np.mean(np.log(column))):6.2f}" for column in ratios]
        print(f"{'geometric mean':41}{''.join(means[:2])} |{'':17}{''.join(means[2:])}")


if __name__ == "__main__":
    main()
