"""The normalization kernels with a mask against the same without: time with / time without, forward and backward.

    python -m benchmarks.masked [--threads 2] [--seconds 2] [--dtype float32] [--level v4]

Each line is one layer on data that no cache holds, in one process, with every mask in turn. `padded` has a length for
each sample, `half` and `2 %` are random, `rows` is constant along the reduced axes (tokens of a LayerNorm), and `all`
is True everywhere. Ratios of medians.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import minorm as mn
import minorm_ext
from benchmarks.timing import in_turn
from minorm.devices import dtypes
from minorm.kernels.cpu import norm
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest, plan

CASES: dict[str, tuple[Any, ...]] = {  # shape, axes, groups, axes of the parameters, memory order
    "batch": ((64, 64, 56, 56), (0, 2, 3), 1, (1,), (0, 1, 2, 3)),
    "batch, channels-last": ((64, 64, 56, 56), (0, 2, 3), 1, (1,), (0, 2, 3, 1)),
    "batch, 7x7": ((512, 256, 7, 7), (0, 2, 3), 1, (1,), (0, 1, 2, 3)),
    "batch, N x C": ((32768, 256), (0,), 1, (1,), (0, 1)),
    "instance": ((64, 64, 56, 56), (2, 3), 1, (1,), (0, 1, 2, 3)),
    "group": ((64, 64, 56, 56), (2, 3), 8, (1, 2), (0, 1, 2, 3)),
    "layer, 64": ((131072, 64), (1,), 1, (1,), (0, 1)),
    "layer, 256": ((32768, 256), (1,), 1, (1,), (0, 1)),
    "layer, 768": ((16384, 768), (1,), 1, (1,), (0, 1)),
    "layer, 4096": ((2048, 4096), (1,), 1, (1,), (0, 1)),
    "layer over channels": ((32, 256, 32, 32), (1,), 1, (1,), (0, 1, 2, 3)),
}


def masks(shape: tuple[int, ...], axes: tuple[int, ...], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the masks by name; they broadcast to x."""
    lengths = rng.integers(shape[-1] // 4, shape[-1] + 1, (shape[0], *[1] * (len(shape) - 1)))
    return {
        "padded": np.arange(shape[-1]) < lengths,
        "half": rng.random(shape, np.float32) < 0.5,
        "2 %": rng.random(shape, np.float32) < 0.02,
        "rows": rng.random([1 if axis in axes else n for axis, n in enumerate(shape)]) < 0.6,
        "all": np.ones(shape, bool),
    }


def step(nest: Nest, x: np.ndarray, dy: np.ndarray, s: np.ndarray, mask: np.ndarray | None) -> Callable[[], Any]:
    """Forward and backward."""
    given = {} if mask is None else {"mask": mask}

    def run() -> None:
        y, stats = norm.forward(nest, x, s, s, Equation(), **given)
        del y  # its memory is dx's
        norm.backward(nest, dy, x, stats, s, Equation(), **given)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description="Normalization kernels, masked / unmasked.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2, help="for each line")
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32", "float64"], default="float32")
    parser.add_argument("--level", choices=minorm_ext.levels(), default=minorm_ext.levels()[-1])
    args = parser.parse_args()
    mn.set_num_threads(args.threads)
    norm._kernels = minorm_ext.kernels("norm", args.level)
    dtype = getattr(dtypes, args.dtype)
    print(f"{args.threads} threads, {args.dtype}, {args.level}")
    for name, (shape, axes, groups, param, order) in CASES.items():
        rng = np.random.default_rng(0)
        memory = rng.standard_normal((2, *(shape[axis] for axis in order)), np.float32)
        x, dy = memory.transpose(0, *(1 + np.argsort(order))).astype(dtype)
        nest = plan(shape, axes, groups, param, tuple(stride // x.itemsize for stride in x.strides))
        s = rng.standard_normal(nest.param_size).astype(dtypes.compute_type(dtype))
        given: dict[str, np.ndarray | None] = {"none": None}
        for kind, mask in masks(shape, axes, rng).items():
            given[kind] = like = np.empty_like(x, bool)
            like[...] = mask
        none, *others = in_turn([step(nest, x, dy, s, mask) for mask in given.values()], args.seconds, 5, 0)
        ratios = "".join(f"{kind:>9} {time / none:5.2f}" for kind, time in zip(list(given)[1:], others, strict=True))
        print(f"{name:22} {1000 * none:7.2f} ms{ratios}", flush=True)


if __name__ == "__main__":
    main()
