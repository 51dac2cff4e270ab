"""Bits as one line a case, to compare between machines: `python -m tests.digests > here.txt`, there too, then diff.

Normalization computes the same bits on every processor and with every compiler that setup.py takes. Other families are
shown after it. Of these convolution and matmul fuse products and sums where the processor can: "baseline" differs.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import minorm as mn
import minorm.functional as F
from minorm import nn, optim

Bits = Iterator[Any]
DTYPES = {"float16": mn.float16, "bfloat16": mn.bfloat16, "float32": mn.float32, "float64": mn.float64}


def numbers(seed: int, shape: tuple[int, ...], dtype: Any, offset: float = 0.0) -> Any:
    """Numbers around the offset, from integers: normal draws come out of the machine's own log and exp."""
    rng = np.random.default_rng(seed)
    whole = rng.integers(-(2**20), 2**20, size=shape) + rng.integers(-(2**20), 2**20, size=shape)
    return mn.tensor(whole / 2**20 + offset, dtype=dtype)


def followed(function: Callable[..., Any], *inputs: Any) -> Bits:
    """Yield the result, and the gradient of every input."""
    for x in inputs:
        x.requires_grad_()
    y = function(*inputs)
    yield y
    y.backward(numbers(99, y.shape, y.dtype))
    yield from (x.grad for x in inputs)


SHAPES = {  # name: the shape, and what is normalized
    "batch 32x5": (32, 5),
    "batch 1000x33": (1000, 33),
    "batch 4x7x9x11": (4, 7, 9, 11),
    "batch 8x16x28x28": (8, 16, 28, 28),
    "batch 2x3x130x130": (2, 3, 130, 130),
    "instance 3x5x17x19": (3, 5, 17, 19),
    "instance 2x4x100x101": (2, 4, 100, 101),
    "group 4x12x7x7": (4, 12, 7, 7),
    "group 2x32x28x28": (2, 32, 28, 28),
    "layer 50x17": (50, 17),
    "layer 64x64": (64, 64),
    "layer 30x768": (30, 768),
    "layer 3x5001": (3, 5001),
    "layer 2000x1024": (2000, 1024),
    "rms 64x96": (64, 96),
    "rms 7x2049": (7, 2049),
    "mean-variance 4x6x10x10": (4, 6, 10, 10),
    "mean-variance 2x5x64x64": (2, 5, 64, 64),
}


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "exp": mn.exp,
    "log": lambda x: mn.log(x * x + 1),
    "tanh": mn.tanh,
    "sigmoid": mn.sigmoid,
    "erf": mn.erf,
    "gelu": F.gelu,
    "silu": F.silu,
}


def normalized(kind: str, shape: tuple[int, ...], dtype: Any, channels_last: bool, offset: float) -> Bits:
    x = numbers(1, shape, dtype, offset)
    if channels_last:
        x = mn.tensor(np.ascontiguousarray(x.array.transpose(0, 2, 3, 1))).permute(0, 3, 1, 2)
    width = shape[-1:] if kind in ("layer", "rms") else shape[1:2]
    scale, bias = numbers(2, width, dtype, 1.0), numbers(3, width, dtype)
    if kind == "batch":
        mean, var = mn.zeros(width), mn.ones(width)
        yield from followed(lambda x, s, b: F.batch_norm(x, mean, var, s, b, training=True), x, scale, bias)
        yield from (mean, var, F.batch_norm(x, mean, var, scale, bias))
    elif kind == "instance":
        yield from followed(lambda x, s, b: F.instance_norm(x, weight=s, bias=b), x, scale, bias)
    elif kind == "group":
        yield from followed(lambda x, s, b: F.group_norm(x, 4, s, b), x, scale, bias)
    elif kind == "layer":
        yield from followed(lambda x, s, b: F.layer_norm(x, width, s, b), x, scale, bias)
    elif kind == "rms":
        yield from followed(lambda x, s: F.rms_norm(x, width, s), x, scale)
    else:
        yield from followed(nn.MeanVarianceNorm(), x)


def normalizations() -> Iterator[tuple[str, Bits]]:
    for name, shape in SHAPES.items():
        for label, dtype in DTYPES.items():
            for channels_last in (False, True) if len(shape) == 4 else (False,):
                for offset in (0.0, 100.0):
                    case = f"{name} {label} {'channels-last' if channels_last else 'row-major'} around {offset:g}"
                    yield case, normalized(name.split()[0], shape, dtype, channels_last, offset)


def others() -> Iterator[tuple[str, Bits]]:
    """Yield families that do not everywhere keep normalization's promise of equal bits."""
    for name in ("float32", "float64"):
        dtype = DTYPES[name]
        x = numbers(4, (3, 4, 20, 21), dtype)
        for label, function in ELEMENTWISE.items():
            yield f"{label} {name}", followed(function, numbers(4, x.shape, dtype))
        yield f"softmax {name}", followed(lambda x: F.softmax(x, dim=-1), numbers(4, x.shape, dtype))
        yield f"sum {name}", followed(lambda x: x.sum((0, 2, 3)), numbers(4, x.shape, dtype))
        yield f"max_pool2d {name}", followed(lambda x: F.max_pool2d(x, 3, 2, 1), numbers(4, x.shape, dtype))
        yield f"avg_pool2d {name}", followed(lambda x: F.avg_pool2d(x, 3, 2, 1), numbers(4, x.shape, dtype))
        yield f"adam {name}", stepped(optim.Adam, dtype)
        yield f"sgd {name}", stepped(lambda p, lr: optim.SGD(p, lr, momentum=0.9, weight_decay=0.01), dtype)
        yield f"matmul {name}", followed(mn.matmul, numbers(5, (37, 65), dtype), numbers(6, (65, 43), dtype))
        yield f"conv2d {name}", followed(lambda x, w: F.conv2d(x, w, padding=1), x, numbers(7, (8, 4, 3, 3), dtype))


def stepped(make: Callable[..., Any], dtype: Any) -> Bits:
    p = nn.Parameter(numbers(8, (123, 45), dtype))
    optimizer = make([p], lr=0.01)
    for step in range(3):
        p.grad = numbers(9 + step, p.shape, dtype)
        optimizer.step()
    yield p


def digest(bits: Bits) -> str:
    found = hashlib.sha256()
    for x in bits:
        found.update(np.ascontiguousarray(x.numpy()).tobytes())
    return found.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.digests", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=2, help="of the kernels; the bits are the same for any number")
    mn.set_num_threads(parser.parse_args().threads)
    for family, cases in (("norm", normalizations()), ("other", others())):
        for case, bits in cases:
            print(family, case, digest(bits), flush=True)


if __name__ == "__main__":
    main()
