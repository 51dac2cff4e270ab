"""The cases that run on a GPU: operations, shapes and types; and each operation as a float64 formula on whole arrays.

A case is a normalization, a shape and a type. `forward` calls minorm's functional on tensors, `peer` PyTorch's, and
`expected` is NumPy in float64, which knows neither loops nor kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import minorm as mn
import minorm.functional as F

EPS = 1e-5
TYPES = ("float32", "bfloat16", "float16", "float64")
GROUPS = 8


class Case(NamedTuple):
    """One operation on one shape in one type."""

    op: str
    shape: tuple[int, ...]
    dtype: str
    last: bool = False  # channels last

    def __str__(self) -> str:
        order = ", channels last" if self.last else ""
        return f"{self.op} {'x'.join(map(str, self.shape))} {self.dtype}{order}"

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    @property
    def passes(self) -> tuple[int, int]:
        """How often the tensor must move, forward and backward."""
        if self.op == "evaluation":
            return 2, 3
        return (3, 5) if self.op == "batch" else (2, 3)


SMALL = [  # for parity: odd sizes, one element a row, rows in a warp, in a block, in chunks
    *[("layer", shape) for shape in ((3, 1), (5, 7), (64, 96), (33, 1000), (7, 4096), (3, 16384), (2, 40000))],
    *[("rms", shape) for shape in ((5, 7), (64, 96), (33, 1000), (7, 4096))],
    *[("batch", shape) for shape in ((70, 12), (4096, 256), (6, 5, 9, 7), (32, 64, 28, 28), (8, 256, 14, 14))],
    *[("evaluation", shape) for shape in ((70, 12), (6, 5, 9, 7), (32, 64, 28, 28))],
    *[("instance", shape) for shape in ((3, 5, 9, 7), (8, 16, 64, 64), (2, 4, 200, 200))],
    *[("group", shape) for shape in ((3, 16, 9, 7), (8, 64, 28, 28), (2, 32, 100, 100))],
]
LARGE = [
    *[("layer", (2**26 // width, width)) for width in (256, 512, 1024, 4096, 16384, 65536)],
    *[("rms", (2**26 // width, width)) for width in (1024, 4096)],
    ("batch", (128, 64, 56, 56)), ("batch", (256, 256, 14, 14)), ("batch", (512, 512, 7, 7)), ("batch", (65536, 1024)),
    ("evaluation", (128, 64, 56, 56)),
    ("instance", (128, 64, 56, 56)), ("instance", (16, 32, 256, 256)),
    ("group", (128, 64, 56, 56)), ("group", (16, 128, 128, 128)),
]  # fmt: skip
QUICK = [
    ("layer", (2**18, 256)), ("layer", (2**16, 1024)), ("layer", (2**12, 16384)), ("rms", (2**14, 4096)),
    ("batch", (128, 64, 56, 56)), ("batch", (512, 512, 7, 7)), ("instance", (128, 64, 56, 56)),
    ("group", (128, 64, 56, 56)),
]  # fmt: skip
IMAGES = ("batch", "evaluation", "instance", "group")


def cases(table: list[tuple[str, tuple[int, ...]]], types: tuple[str, ...]) -> list[Case]:
    """Every line of a table in every type, images in both memory orders."""
    found = []
    for op, shape in table:
        orders = (False, True) if len(shape) == 4 and op in IMAGES else (False,)
        found += [Case(op, shape, dtype, last) for dtype in types for last in orders]
    return found


def width(case: Case) -> int:
    """Return the number of elements of scale and of bias."""
    return case.shape[-1] if case.op in ("layer", "rms") else case.shape[1]


def arrays(case: Case, offset: float = 0.0) -> dict[str, np.ndarray]:
    """x, dy, scale, bias, mean and var, of the case's type; random, of some offset."""
    rng = np.random.default_rng(0)
    shape, n = case.shape, width(case)
    if case.last:
        shape = (shape[0], *shape[2:], shape[1])
    x, dy = rng.standard_normal((2, *shape), np.float32)
    given = {"x": x + np.float32(offset), "dy": dy}
    given |= {name: rng.standard_normal(n, np.float32) for name in ("scale", "bias", "mean")}
    given["var"] = rng.random(n, np.float32) + 0.5
    given = {name: value.astype(case.dtype) for name, value in given.items()}
    if case.last:
        given |= {name: np.moveaxis(given[name], -1, 1) for name in ("x", "dy")}
    return given


def forward(case: Case, t: dict[str, Any]) -> Callable[[], Any]:
    """The call in minorm."""
    x, scale, bias, mean, var = (t[name] for name in ("x", "scale", "bias", "mean", "var"))
    return {
        "batch": lambda: F.batch_norm(x, mean, var, scale, bias, True, 0.9, EPS),
        "evaluation": lambda: F.batch_norm(x, mean, var, scale, bias, False, 0.9, EPS),
        "instance": lambda: F.instance_norm(x, None, None, scale, bias, True, 0.9, EPS),
        "group": lambda: F.group_norm(x, groups(case), scale, bias, EPS),
        "layer": lambda: F.layer_norm(x, case.shape[-1:], scale, bias, EPS),
        "rms": lambda: F.rms_norm(x, case.shape[-1:], scale, EPS),
    }[case.op]


def peer(case: Case, t: dict[str, Any]) -> Callable[[], Any]:
    """The call in PyTorch, whose momentum is the share of the new value."""
    from torch.nn import functional as TF

    x, scale, bias, mean, var = (t[name] for name in ("x", "scale", "bias", "mean", "var"))
    return {
        "batch": lambda: TF.batch_norm(x, mean, var, scale, bias, True, 0.1, EPS),
        "evaluation": lambda: TF.batch_norm(x, mean, var, scale, bias, False, 0.1, EPS),
        "instance": lambda: TF.instance_norm(x, None, None, scale, bias, True, 0.1, EPS),
        "group": lambda: TF.group_norm(x, groups(case), scale, bias, EPS),
        "layer": lambda: TF.layer_norm(x, case.shape[-1:], scale, bias, EPS),
        "rms": lambda: TF.rms_norm(x, case.shape[-1:], scale, EPS),
    }[case.op]


def groups(case: Case) -> int:
    return GROUPS if case.shape[1] % GROUPS == 0 else 1


def tensors(given: dict[str, np.ndarray], device: str) -> dict[str, mn.Tensor]:
    """Copy the arrays to the device in their memory order; x, scale and bias require gradients."""
    on_device = {name: mn.Tensor(value).to(device) for name, value in given.items()}
    for name in ("x", "scale", "bias"):
        on_device[name].requires_grad = True
    return on_device


def spread(case: Case) -> dict[str, mn.Tensor]:
    """Make large tensors on the GPU: one block of random numbers repeats, as drawing more would take longer."""
    order = (0, *range(2, len(case.shape)), 1) if case.last else range(len(case.shape))
    stored = [case.shape[axis] for axis in order]
    count = int(np.prod(stored))
    few = arrays(case._replace(shape=(max(1, min(count, 1 << 20) // width(case)), width(case)), last=False))
    found = {name: mn.tensor(few[name], device="cuda") for name in ("scale", "bias", "mean", "var")}
    for name in ("x", "dy"):
        block = mn.tensor(few[name].reshape(-1), device="cuda")
        whole = block.repeat(-(-count // block.numel()))[:count].reshape(*stored)
        found[name] = whole.permute(*[list(order).index(axis) for axis in range(len(stored))])
    for name in ("x", "scale", "bias"):
        found[name].requires_grad = True
    return found


def expected(case: Case, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return y and the gradients, in float64."""
    x, dy, scale, bias, mean, var = (given[k].astype(np.float64) for k in ("x", "dy", "scale", "bias", "mean", "var"))
    along = [1] * x.ndim
    along[-1 if case.op in ("layer", "rms") else 1] = -1
    scale, bias = scale.reshape(along), bias.reshape(along)
    others = tuple(i for i, n in enumerate(along) if n == 1)
    split, axes = x.shape, others
    if case.op in ("layer", "rms"):
        axes = (x.ndim - 1,)
    elif case.op == "instance":
        axes = tuple(range(2, x.ndim))
    elif case.op == "group":
        split = (x.shape[0], groups(case), -1)
        axes = (2,)
    xs, gs = x.reshape(split), (dy * scale).reshape(split)
    if case.op == "evaluation":
        mean, var = mean.reshape(along), var.reshape(along)
    else:
        mean = xs.mean(axes, keepdims=True) if case.op != "rms" else np.zeros_like(xs[..., :1])
        var = np.square(xs - mean).mean(axes, keepdims=True)
    rstd = 1 / np.sqrt(var + EPS)
    xhat = (xs - mean) * rstd
    dx = gs * rstd
    if case.op != "evaluation":
        centre = gs.mean(axes, keepdims=True) if case.op != "rms" else 0
        dx = rstd * (gs - centre - xhat * (gs * xhat).mean(axes, keepdims=True))
    xhat = xhat.reshape(x.shape)
    found = {"y": xhat * scale + bias, "dx": dx.reshape(x.shape), "dscale": (dy * xhat).sum(others)}
    if case.op == "rms":
        found["y"] = xhat * scale
    else:
        found["dbias"] = dy.sum(others)
    return found
